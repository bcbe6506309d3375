"""Small clips for the tests of video/, made once a session; the bad ones come from ``make_clips.py`` beside this file."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from video.make_clips import Recipe, make, read_number, sound_recipes
from video.options import FrameOptions
from video.source import FrameStore

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT, LENGTH = 320, 180, 150


def _makers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bad_clip_makers", Path(__file__).with_name("make_clips.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


makers = _makers()


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Recipe, Path]]:
    """Sound clips by name, each with the recipe that says what is in it."""
    folder = tmp_path_factory.mktemp("sound")
    recipes = sound_recipes(WIDTH, HEIGHT, LENGTH, preset="superfast")
    return {recipe.name: (recipe, make(recipe, folder / recipe.name)) for recipe in recipes}


@pytest.fixture(scope="session")
def closed(clips: dict[str, tuple[Recipe, Path]]) -> Path:
    return clips["h264_closed.mp4"][1]


@pytest.fixture(scope="session")
def bad_clips(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bad")
    for name, kind in makers.KINDS.items():
        kind(folder / name)
    return {name: folder / name for name in makers.KINDS}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameStore]:
    """A store that asks for ten evenly spaced frames; its child process serves the whole module."""
    with FrameStore(tmp_path_factory.mktemp("store"), FrameOptions(strategy="uniform"), workers=1) as made:
        yield made


@pytest.fixture(scope="session")
def shared_clips() -> Path:
    folder = Path(os.environ.get("MH_CLIPS", ROOT / ".." / "shared" / "clips"))
    if not folder.is_dir():
        pytest.skip(f"no shared clips at {folder}; set MH_CLIPS")
    return folder


def numbers(paths: Any) -> list[int]:
    """The frame numbers that written pictures carry."""
    found = []
    for path in paths:
        with Image.open(path) as image:
            found.append(read_number(np.asarray(image.convert("RGB"))))
    return found


def command(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """``python -m video`` as a user runs it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-m", "video", *map(str, arguments)], capture_output=True, text=True, cwd=cwd, env=environment)


@pytest.fixture
def read_numbers() -> Any:
    return numbers


@pytest.fixture
def run_video(tmp_path: Path) -> Any:
    return lambda *arguments: command(*arguments, cwd=tmp_path)
