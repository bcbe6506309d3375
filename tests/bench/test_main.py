"""The commands: exit codes, messages, and what is refused before a model is loaded; as a user calls them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bench.folder
import bench.run
import kg.__main__
from bench.__main__ import COMMANDS, PLACES, main
from bench.folder import RunFolder
from bench.rows import settings_suite


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(arguments)
    return code, capsys.readouterr().err


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0 and COMMANDS[command].help in " ".join(capsys.readouterr().out.split())


def test_misfits_come_at_once_and_before_any_model(blind: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(
        capsys,
        *("run", "--data", str(blind), "--model", str(tmp_path / "nowhere"), "--settings", "vanilla,unaided-online,perceptive"),
        *("--prompts", "nonsense", "--set", "roles.validator=missing", "--runs", str(tmp_path / "runs")),
    )
    assert code == 2
    for words in ("vanilla, unaided-online need pictures", "--settings perceptive", "of the graph", "nonsense", "nowhere", "validator: "):
        assert words in text
    assert "Traceback" not in text and not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "nowhere-at-all"], "nowhere-at-all"),
        (["--settings", "vanila"], "did you mean 'vanilla'"),
        (["--set", "kay=3"], "unknown option 'kay'"),
        (["--judge", ""], "the judge is empty"),
    ],
)
def test_refusals(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "run", *arguments)
    assert code == 2 and words in text and text.startswith("error: ") and "Traceback" not in text


def test_gpus_without_vllm_are_refused_before_anything_is_loaded(
    pond: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM", str(tmp_path / "nowhere" / "vllm"))
    code, text = said(capsys, "run", "--data", str(pond), "--model", str(tmp_path), "--gpu", "2", "--runs", str(tmp_path / "runs"))
    assert code == 2 and "vllm" in text and "Traceback" not in text
    assert not (tmp_path / "runs").exists()


def test_endpoint_that_is_down(pond: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data", str(pond), "--model", "m", "--endpoint", "http://127.0.0.1:9/v1", "--runs", str(tmp_path / "runs")]
    code, text = said(capsys, "run", *options, "--settings", "vanilla+")
    assert code == 2 and "127.0.0.1:9" in text and "Traceback" not in text


def test_ctrl_c_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench.run, "run_suite", stopped)
    code, text = said(capsys, "run", "--set", "name=Bob's", "--limit", "4")
    assert code == 130 and """kept. Go on with: python -m bench run --set 'name=Bob'"'"'s' --limit 4""" in text
    monkeypatch.setattr(bench.run, "report", stopped)
    monkeypatch.setattr(bench.folder.RunFolder, "manifest", lambda self: {"suite": "settings"})
    code, text = said(capsys, "report", "x")
    assert code == 130 and "From the start: python -m bench report x" in text and "kept" not in text


def test_ctrl_c_in_kg_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    for command, words in (("caption", "kept. Go on with: python -m kg caption"), ("check", "From the start: python -m kg check")):
        monkeypatch.setattr(importlib.import_module(kg.__main__.COMMANDS[command][0]), "run", stopped)
        arguments = [command, "a b", *(["--model", "m"] if command == "caption" else [])]
        assert kg.__main__.main(arguments) == 130 and f"{words} 'a b'" in capsys.readouterr().err


def test_full_disk_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "runs/x/samples.jsonl")

    monkeypatch.setattr(bench.run, "run_suite", full)
    code, text = said(capsys, "run")
    assert code == 2 and "samples.jsonl: No space left on device" in text


@pytest.mark.parametrize("number", sorted(PLACES))
def test_what_is_the_matter_with_a_place_is_said(number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "runs/x/samples.jsonl")

    monkeypatch.setattr(bench.run, "run_suite", refused)
    code, text = said(capsys, "run")
    assert code == 2 and f"samples.jsonl: {os.strerror(number)}" in text and "Traceback" not in text


@pytest.mark.parametrize("lines", [1, 999])
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("room", ["bench", "kg"])
def test_a_reader_that_leaves_early_is_no_fault(room: str, lines: int, unbuffered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    run = f"lambda _: sum(print('x' * 999) or 0 for _ in range({lines}))"
    code = {
        "bench": f"m.COMMANDS = dict(m.COMMANDS, report=m.COMMANDS['report']._replace(run={run}))\nsys.exit(m.main(['report']))",
        "kg": f"import kg.cli_check\nkg.cli_check.run = {run}\nsys.exit(m.main(['check', 'x']))",
    }[room]
    command = [sys.executable, "-c", f"import sys\nimport {room}.__main__ as m\n{code}"]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2], check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_connection_that_breaks_is_not_taken_for_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(bench.run, "run_suite", broken)
    with pytest.raises(BrokenPipeError):
        main(["run"])


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(bench.run, "run_suite", broken)
    with pytest.raises(ZeroDivisionError):
        main(["run"])


def test_no_command_imports_a_heavy_library() -> None:
    heavy = "torch transformers matplotlib av faiss decord vllm"
    code = (
        "import contextlib, io, sys\nfrom bench.__main__ import COMMANDS, main\nfor name in COMMANDS:\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n        main([name, '--help'])\n"
        f"print([m for m in '{heavy}'.split() if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def finished(tmp_path: Path, pond: Path, prompts: Path, make_scripted: Any, make_oracle: Any) -> Any:
    """Makes finished runs of the pond, with an oracle or one that errs."""
    from bench.config import validate
    from kg.load import load

    def make(name: str, wrong: bool = False) -> RunFolder:
        right = make_oracle(load(pond).questions, "fish")
        reply = (lambda r: "nothing" if r.text.startswith("summarizer") else right(r)) if wrong else right
        engine = make_scripted(reply, digest=name)
        options = {"data": str(pond), "model": name, "endpoint": "http://127.0.0.1:9/v1", "prompts": str(prompts), "judge": "exact"}
        config = validate({**options, "runs": str(tmp_path / "runs"), "settings": "perceptive"})
        return bench.run.run_suite("settings", settings_suite(config), config, factory=lambda b, c: engine, cache=tmp_path / "cache")

    return make


def test_compare(finished: Any, capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong = finished("right"), finished("wrong", wrong=True)
    assert main(["compare", str(right.path), str(wrong.path)]) == 0
    shown = capsys.readouterr().out
    assert "+1.000 [+1.000, +1.000]" in shown and "rec" in shown


def test_report_and_score_by_command(finished: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = finished("right")
    assert main(["report", "--runs", str(tmp_path / "runs")]) == 0
    assert "perceptive" in capsys.readouterr().out and (folder.path / "report.md").is_file()
    assert main(["score", str(folder.path), "--judge", "exact"]) == 0
    assert said(capsys, "report", str(tmp_path))[0] == 2
    assert said(capsys, "compare", str(folder.path), str(tmp_path))[0] == 2


def test_agreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from bench.agreement import agreement, read_labels

    path = tmp_path / "labels.csv"
    path.write_text("model,kind,judge,human1,human2\nA,answer,Yes.,yes,yes\nA,answer,no,no,yes\nA,answer,,no,no\nA,caption,no,no,no\n")
    lines = {(line.model, line.kind): line for line in agreement(read_labels(path))}
    assert lines["A", "answer"].share.mean == 0.5 and lines["A", "answer"].left_out == 1
    assert lines["all", "caption"].share.mean == 1.0
    assert main(["agreement", str(path)]) == 0 and "published: average" in capsys.readouterr().out
    path.write_text("model,judge,human\nA,perhaps,yes\n")
    code, text = said(capsys, "agreement", str(path))
    assert code == 2 and "labels.csv:2" in text and "perhaps" in text


def test_published_figures_are_the_papers() -> None:
    from bench.published import table

    three = table("table3")
    assert len(three.rows) == 15 and three.get("GPT-4o", "unaided-online.acc") == 0.5105
    assert three.get("Human (Knowledgeable)", "unaided-online.rec") == 0.8535
    assert three.get("Human (Random)", "perceptive.acc") is None
    # GPT-4o's accuracies are fractions of 237: one answer is kept for the two rows of one id
    assert all(abs(v * 237 - round(v * 237)) < 0.03 for v in (0.3122, 0.3924, 0.8565, 0.7383, 0.5105) if v in three.rows["GPT-4o"])
    assert table("table19").get("InternVL2.5-78B-MPO", "validator=GPT-4o") == 0.3413
    assert table("table17").get("name=false, extra=true", "unaided-online.topic") == 0.7365
