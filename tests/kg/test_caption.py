"""`python -m kg caption` with the embedded model: real frames, a real model, the file that a run takes; and what goes wrong."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path

import pytest
from PIL import Image

from kg.__main__ import main
from kg.captions import read_captions
from kg.load import load
from models.errors import DataError

TINY = Path(__file__).parents[2] / "models" / "tiny-qwen2.5-vl"
CARD = """
name = "Pond"
persona = "You know every fish."
root_kind = "fish"
action_kind = "move"
subject = "fish"
tasks = ["Facts"]

[kinds]
fish = "a fish"
move = "what a fish does"
"""


@pytest.fixture
def pond(tmp_path: Path) -> Path:
    folder = tmp_path / "pond"
    folder.mkdir()
    (folder / "dataset.toml").write_text(CARD)
    for i, name in enumerate(("dart", "roll")):
        Image.new("RGB", (64, 48), (90 * i, 120, 40)).save(folder / f"{name}.png")
    (folder / "bite.png").write_bytes(b"no picture")
    sheets = {
        "entities": [
            ["id", "name", "owner", "kind", "images", "caption", "info"],
            ["p", "Pike", "", "fish", "", "", ""],
            ["d", "Dart", "Pike", "move", "dart.png", "", ""],
            ["r", "Roll", "Pike", "move", "roll.png", "", ""],
            ["b", "Bite", "Pike", "move", "bite.png", "", ""],
        ],
        "relations": [["source", "relation", "target", "condition"], *(["p", "does", move, ""] for move in "drb")],
        "questions": [
            ["id", "text", "root", "extra", "perception", "images", "answer", "routes", "task"],
            ["q", "What does {} do?", "Pike", "", "", "", "Dart", "Pike>Dart", "Facts"],
        ],
    }
    for name, rows in sheets.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
    return folder


def caption(pond: Path, out: Path, model: Path = TINY, *more: str) -> int:
    cache = pond.parent / "cache"
    return main(["caption", str(pond), "--model", str(model), "--prompts", "compact", "--out", str(out), "--cache", str(cache), *more])


def test_captions_are_made_once_and_can_be_read_back(pond: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "made" / "captions.json"
    assert caption(pond, out) == 1  # one picture is none; the others are captioned
    said = capsys.readouterr().out
    assert "2 of 3 captions" in said and "not captioned: Pike/Bite: " in said and "bite.png" in said
    made = json.loads(out.read_text())
    assert sorted(made) == ["Pike/Dart", "Pike/Roll"] and all(made.values())
    assert len(read_captions(out, load(pond))) == 2
    out.write_text('{"Pike/Dart": 5}')
    with pytest.raises(DataError, match="'Pike/Dart' is none — write"):
        read_captions(out, load(pond))
    (journal,) = (tmp_path / "cache" / "captions").glob("*.sqlite")
    with sqlite3.connect(journal) as db:
        first = db.execute("SELECT count(*) FROM calls").fetchone()
    assert caption(pond, out) == 1
    with sqlite3.connect(journal) as db:
        assert db.execute("SELECT count(*) FROM calls").fetchone() == first == (2,)
    assert json.loads(out.read_text()) == made


def test_a_place_that_cannot_be_written_is_found_before_the_model_is_loaded(
    pond: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file where a folder is wanted")
    for out in (taken / "captions.json", pond):
        assert caption(pond, out, tmp_path / "no such model") == 2
        said = capsys.readouterr().err
        assert "cannot be written" in said and "--out" in said and "Traceback" not in said
    assert not (tmp_path / "cache").exists()


def test_a_data_set_without_media_and_a_missing_model_are_one_message(
    pond: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert caption(pond, tmp_path / "c.json", tmp_path / "no such model") == 2
    assert "no such model" in capsys.readouterr().err
    for picture in pond.glob("*.png"):
        picture.unlink()
    assert caption(pond, tmp_path / "c.json") == 2
    assert "has no clip or picture to caption" in capsys.readouterr().err
    assert not (tmp_path / "c.json").exists()
