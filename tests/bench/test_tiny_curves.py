"""Training curves from a log: what is drawn, and which logs are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.tiny.curves import POINTS, Log, curves, write
from models.errors import ConfigError


def line(step: int, **more: Any) -> str:
    tasks = {"topic": {"loss": 1.0 / step, "sure": 0.5, "n": 4}}
    return json.dumps({"step": step, "minutes": 1.0, "tokens": 1000 * step, "tokens_per_s": 10.0 * step, "tasks": tasks, **more}) + "\n"


def test_a_log_becomes_one_figure(tmp_path: Path) -> None:
    extra = {"tasks": {"topic": {"loss": 0.1, "sure": 1.0, "n": 1}, "intent": {"loss": 2.0, "sure": 0.0, "n": 3}}, "lr": 0.001}
    (tmp_path / "log.jsonl").write_text(line(25) + line(50) + line(75, **extra))
    write(tmp_path / "log.jsonl", tmp_path / "curves.svg")
    drawn = (tmp_path / "curves.svg").read_text()
    assert "topic" in drawn and "intent" in drawn and "not in this log" not in drawn
    log = Log.read(tmp_path / "log.jsonl")
    assert log.tasks == ["intent", "topic"]
    assert log.of_task("intent", "loss") == ([0.075], [2.0])  # a task begins where it entered the mix
    assert log.of("lr") == ([0.075], [0.001])


def test_neighbours_are_averaged_by_their_samples(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("".join(line(n) for n in range(1, 4 * POINTS + 1)))
    x, y = Log.read(tmp_path / "log.jsonl").of("tokens_per_s")
    assert len(x) == POINTS and y[0] == pytest.approx(25) and x[0] == pytest.approx(0.0025)


def test_what_a_kill_left_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(line(25) + line(50) + line(75) + line(50, lr=1.0) + line(75)[:-9])
    found = Log.read(log)
    assert [one["step"] for one in found.lines] == [25, 50], "done again from the last save; torn at the end"
    assert found.lines[-1]["lr"] == 1.0
    assert "not in this log" in curves(Log(found.lines[:1]))


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read"), ("", "holds no report yet"), ("{}\n", "line 1 is no report"), (line(1) + "nonsense\n" + line(2), "line 2")],
)
def test_other_files_are_refused(tmp_path: Path, content: str | None, said: str) -> None:
    log = tmp_path / "log.jsonl"
    if content is not None:
        log.write_text(content)
    with pytest.raises(ConfigError, match=said):
        write(log, tmp_path / "curves.svg")
    assert not (tmp_path / "curves.svg").exists()
