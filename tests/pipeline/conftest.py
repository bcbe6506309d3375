"""Fixtures of the pipeline's tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

from tests_pipeline import Colours, Words


@pytest.fixture
def words() -> Words:
    return Words()


@pytest.fixture
def colours() -> Colours:
    return Colours()


@pytest.fixture
def jsonl(tmp_path: Path) -> Callable[..., Path]:
    def write(*rows: Any, name: str = "docs.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


# No test may fail because the machine is busy.
settings.register_profile("pipeline", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pipeline")
