"""A run folder that somebody edited, or that a disk damaged: one message that names the file and the remedy, or the run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bench.folder
from bench.__main__ import main
from bench.config import validate
from bench.folder import RunFolder, find_or_make
from bench.records import Record, Score
from bench.rows import settings_suite
from bench.run import report, run_suite
from bench.shapes import misfit
from kg.load import load
from models.errors import RunError

Edit = Callable[[Path], None]


@pytest.fixture
def options(tmp_path: Path, pond: Path, prompts: Path) -> dict[str, Any]:
    folders = {"data": str(pond), "prompts": str(prompts), "runs": str(tmp_path / "runs")}
    return {**folders, "model": "oracle", "endpoint": "http://127.0.0.1:9/v1", "judge": "exact", "settings": "vanilla+,perceptive"}


@pytest.fixture
def again(options: dict[str, Any], tmp_path: Path, pond: Path, make_oracle: Any, make_scripted: Any) -> Callable[[], RunFolder]:
    engine = make_scripted(make_oracle(load(pond).questions, "fish"))
    config = validate(options)
    return lambda: run_suite("settings", settings_suite(config), config, factory=lambda *_: engine, cache=tmp_path / "cache")


@pytest.fixture
def finished(again: Callable[[], RunFolder]) -> RunFolder:
    folder = again()
    report(folder)
    return folder


def field(name: str, key: str, value: object, line: int = 1) -> Edit:
    """Puts a value in place of another: of a line of samples.jsonl, or of a whole JSON file, at a dotted key."""

    def edit(folder: Path) -> None:
        path = next(folder.glob(name))
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        raw = json.loads(lines[line - 1])
        place: Any = raw
        *way, last = key.split(".")
        for step in way:
            place = place[int(step) if isinstance(place, list) else step]
        place[int(last) if isinstance(place, list) else last] = value
        lines[line - 1] = json.dumps(raw)
        path.write_text("\n".join(lines) + "\n")

    return edit


def text(name: str, content: str | bytes) -> Edit:
    return lambda folder: bytes_into(next(folder.glob(name)), content)


def bytes_into(path: Path, content: str | bytes) -> None:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def a_folder(name: str) -> Edit:
    def edit(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return edit


REFUSED: dict[str, tuple[Edit, str]] = {
    "a torn line": (
        lambda f: bytes_into(f / "samples.jsonl", b'{"row": "va\n' + (f / "samples.jsonl").read_bytes()),
        "line 1 cannot be read",
    ),
    "no text": (text("samples.jsonl", b"\xff\xfe\n"), "line 1 cannot be read"),
    "a list": (text("samples.jsonl", "[1]\n"), "line 1 cannot be read: it is '[1]', not a mapping"),
    "deep": (text("samples.jsonl", "[" * 100_000 + "\n"), "line 1 cannot be read"),
    "no answer": (field("samples.jsonl", "answer", None, 2), "line 2 cannot be read: answer is 'None', not a str"),
    "words for seconds": (field("samples.jsonl", "seconds", "x", 3), "line 3 cannot be read: seconds is 'x', not a float"),
    "a number of walks": (field("samples.jsonl", "walks", 5), "walks is '5', not a list"),
    "a walk of words": (field("samples.jsonl", "gold", [[0, "a"]]), "gold[0][1] is 'a', not a int"),
    "yes for a task": (field("samples.jsonl", "task", True), "task is 'True', not a int"),
    "a caption of nobody": (field("samples.jsonl", "captions", {"x": "y"}), "line 1 cannot be read"),
    "an unknown field": (field("samples.jsonl", "surprise", 1), "unknown fields ['surprise']"),
    "samples are a folder": (a_folder("samples.jsonl"), "samples.jsonl: cannot be read: Is a directory"),
    "config is no JSON": (text("config.json", "{"), "config.json: cannot be read"),
    "config without rows": (field("config.json", "rows", None), "config.json: was changed: rows is 'None', not a list"),
    "a row without a label": (field("config.json", "rows.0", {}), "rows[0] lacks label, setting, changes, questions"),
    "no seed": (field("config.json", "config.seed", "x"), "config.seed is 'x', not a int"),
    "scores are no JSON": (text("scores/*", "{"), "cannot be read"),
    "scores are a list": (text("scores/*", "[]"), "holds no judging: it is '[]', not a mapping"),
    "a judge without a name": (field("scores/*", "judge", {}), "judge lacks label, digest, itself, exact"),
    "a score without a verdict": (field("scores/*", "scores.0", {"key": "x"}), "holds a score that is none: it lacks answer_digest, value"),
    "a verdict in words": (field("scores/*", "scores.0.value", "Yes"), "value is 'Yes', not a bool or nothing"),
    "a score with more": (field("scores/*", "scores.0.surprise", 1), "unknown fields ['surprise']"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_one_message_with_file_and_remedy(
    name: str, finished: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    edit, says = REFUSED[name]
    edit(finished.path)
    before = (finished.path / "report.md").read_bytes()
    assert main(["report", str(finished.path)]) == 2
    said = capsys.readouterr().err
    assert says in said and str(finished.path) in said and " — " in said and said.count("\n") == 1 and "Traceback" not in said
    assert (finished.path / "report.md").read_bytes() == before


HARMLESS: dict[str, Edit] = {
    "blank lines": lambda f: bytes_into(f / "samples.jsonl", b"\n" + (f / "samples.jsonl").read_bytes() + b"\n  \n"),
    "environment is no JSON": text("environment.json", "{"),
    "environment is a mapping": text("environment.json", "{}"),
    "a start of nobody": text("environment.json", '[1, {}, {"started": 3}]'),
    "no environment": lambda f: (f / "environment.json").unlink(),
    "samples are gone": lambda f: (f / "samples.jsonl").unlink(),
    "the report is gone": lambda f: (f / "report.md").unlink(),
    "a sample of nobody": lambda f: bytes_into(
        f / "samples.jsonl", (f / "samples.jsonl").read_text() + Record("gone", "9:x", 0, True, "q", "g", answer="a").to_json() + "\n"
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_no_figure_depends_on_does_no_harm(name: str, finished: RunFolder, again: Callable[[], RunFolder]) -> None:
    before = report(finished)
    HARMLESS[name](finished.path)
    after = report(again())
    assert [row["cells"] for row in after["rows"]] == [row["cells"] for row in before["rows"]] and after["complete"]


def test_a_folder_that_could_not_be_made_is_taken_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.folder, "replace", full)
    with pytest.raises(RunError, match="No space left"):
        find_or_make(tmp_path / "runs", "settings", "m", {"predicting": {}})
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".lock"]


RECORD = Record(
    "r", "1:a", 0, True, "q", "g", answer="\ud800 \x00 'x'", topic=None, gold=((0, 1),), captions={3: "c"}, facts={"a": [1, None]}
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


def test_a_record_comes_back() -> None:
    assert Record.from_json(RECORD.to_json()) == RECORD


@given(st.sampled_from(sorted(json.loads(RECORD.to_json()))), JSON)
def test_any_value_in_any_field_is_read_or_refused(name: str, value: object) -> None:
    raw = {**json.loads(RECORD.to_json()), name: value}
    try:
        read = Record.from_json(json.dumps(raw))
    except ValueError:
        return
    assert json.loads(read.to_json()).keys() == raw.keys() and isinstance(read.answer_digest, str)


@given(JSON)
def test_anything_is_a_score_or_refused(value: Any) -> None:
    try:
        assert isinstance(Score.from_dict(value).key, str)
    except ValueError:
        return


@pytest.mark.parametrize(
    ("value", "shape", "says"),
    [
        (1, int, ""),
        (1, float, ""),
        (True, int, "it is 'True', not a int"),
        (True, float, "it is 'True', not a float"),
        (True, object, ""),
        (None, (int, type(None)), ""),
        ("x", (int, type(None)), "it is 'x', not a int or nothing"),
        ({"a": [{"b": 1}, {"b": "c"}]}, {"a": [{"b": int}]}, "a[1].b is 'c', not a int"),
        ({"x": 1}, {str: str}, "x is '1', not a str"),
        ([], {"a": int}, "it is '[]', not a mapping"),
        ({}, {"a": int, "b": int}, "it lacks a, b"),
        ({"a": 1, "more": 2}, {"a": int}, ""),
    ],
)
def test_shapes(value: object, shape: Any, says: str) -> None:
    assert misfit(value, shape) == says
