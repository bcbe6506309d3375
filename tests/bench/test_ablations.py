"""The grid: its rows, what they share, its figures."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from bench.ablations import PARTS, grid
from bench.config import RunConfig, validate
from bench.run import report, run_suite
from kg.load import load
from models.errors import ConfigError


@pytest.fixture
def config(tmp_path: Path, pond: Path, prompts: Path) -> RunConfig:
    options = {"data": str(pond), "model": "oracle", "endpoint": "http://127.0.0.1:9/v1", "prompts": str(prompts), "judge": "exact"}
    return validate({**options, "runs": str(tmp_path / "runs"), "settings": "perceptive,unaided-online"})


def test_rows_are_the_papers(config: RunConfig) -> None:
    labels = [row.label for row in grid(config, ["k", "order", "wording", "keyframes"])]
    assert len(labels) == len(set(labels))
    assert [label for label in labels if "k=" in label and label.startswith("perceptive")] == [f"perceptive k={k}" for k in range(1, 9)]
    assert "unaided-online keyframes=equal" in labels and "perceptive keyframes=equal" not in labels
    assert sum("name=" in label for label in labels) == 8


def test_roles_make_cross_model_rows(config: RunConfig) -> None:
    crossed = validate({**config.model_dump(), "roles": {"validator": "B"}})
    rows = grid(crossed, ["roles"])
    assert {row.label for row in rows} == {f"{s} {r}=B" for s in ("perceptive", "unaided-online") for r in ("summarizer", "validator")}
    assert all(set(row.config.roles) == set(row.changes["roles"]) for row in rows)


def test_grid_refuses(config: RunConfig) -> None:
    with pytest.raises(ConfigError, match="parts: plain, k, order"):
        grid(config, ["nothing"])
    with pytest.raises(ConfigError, match="perceptive, unaided-offline, unaided-online"):
        grid(validate({**config.model_dump(), "settings": "vanilla"}), list(PARTS))


def test_grid_shares_calls_and_draws_its_figures(
    config: RunConfig, pond: Path, tmp_path: Path, make_scripted: Any, make_oracle: Any
) -> None:
    right = make_oracle(load(pond).questions, "fish")

    def reply(request: Any) -> str:
        if "the fish" in request.text and not request.text.startswith("judge"):
            return {"topic": "Carp", "expander": "None", "validator": "No"}.get(request.text.split("\n", 1)[0], "No; seen")
        return str(right(request))

    engine = make_scripted(reply)
    config = validate({**config.model_dump(), "settings": "vanilla+,perceptive"})
    rows = grid(config, ["plain", "k", "order", "wording"])
    assert [row.label for row in rows if not row.changes] == ["vanilla+", "perceptive"]
    folder = run_suite("ablations", rows, config, factory=lambda b, c: engine, cache=tmp_path / "cache")
    assert len(folder.records()) == len(rows) * 4
    keys = [request.key("") for request in engine.requests]
    assert len(keys) == len(set(keys))  # equal calls of different rows are asked once
    summary = report(folder)
    for name in ("figure4", "figure6a", "figure6b"):
        ElementTree.parse(folder.path / f"{name}.svg")
        assert f"({name}.svg)" in (folder.path / "report.md").read_text()
    top = {row["label"]: row["cells"]["topic"]["mean"] for row in summary["rows"]}
    assert top["perceptive name=false extra=false"] == 0.0 and top["perceptive name=true extra=true"] == 1.0
    before = len(engine.requests)
    run_suite("ablations", rows, config, factory=lambda b, c: engine, cache=tmp_path / "cache")
    assert len(engine.requests) == before
