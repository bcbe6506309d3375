"""What a user gets wrong on this room's command line: one message, exit code 2; and what the help tells."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from video.__main__ import main
from video.errors import VideoError
from video.workers import Pool


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "--repeats", "0"], "repeats is 0"),
        (["bench", "--short", "-1", "--seeds", "0"], "short is -1"),
        (["bench", "--seeds", "-1"], "seeds is -1"),
        (["bench", "--frames", "0"], "frames is 0"),
        (["bench", "--size", "large"], "size is 'large'"),
        (["bench", "--size", "641x360"], "even numbers"),
        (["bench", "--size", "0x0"], "the width is 0"),
        (["clip.mp4", "--out", "out", "--workers", "0"], "workers is 0"),
        (["clip.mp4", "--out", "out", "--workers", "-1"], "workers is -1"),
        (["index", "."], "is a folder"),
        (["index", "absent.mp4"], "no such file"),
    ],
)
def test_one_message(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = main(arguments)
    said = capsys.readouterr().err
    assert code == 2 and said.startswith("error: ") and words in said and said.count("\n") == 1, said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["", "--out", "out"], ["clip.mp4", "--out", ""], ["index", ""]])
def test_an_empty_path_is_not_the_folder_one_stands_in(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2 and "an empty text is no path" in capsys.readouterr().err


def test_help_names_the_other_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert "python -m video index CLIP" in told and "python -m video bench" in told


def test_a_child_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = tmp_path / "python"
    locked.write_text("#!/bin/sh\n")  # no execute bit: starting it is refused, for root too
    monkeypatch.setattr(sys, "executable", str(locked))
    with pytest.raises(VideoError, match=r"cannot be started \(Permission denied\)"):
        Pool().run({"kind": "clip", "paths": ["clip.mp4"]}, 1.0)
