"""A run from end to end, on real files and with scripted engines: what it writes, how it goes on, what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.config import Backend, RunConfig, validate
from bench.folder import RunFolder
from bench.rows import settings_suite
from bench.run import report, run_suite, score
from kg.load import load
from models.errors import CallFailed, ConfigError, ModelError, RunError, UserError
from models.requests import Request

Bench = Callable[..., RunFolder]


@pytest.fixture
def config(tmp_path: Path, pond: Path, prompts: Path) -> RunConfig:
    options = {"data": str(pond), "model": "oracle", "endpoint": "http://127.0.0.1:9/v1", "prompts": str(prompts)}
    return validate({**options, "runs": str(tmp_path / "runs"), "judge": "exact"})


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    def start(config: RunConfig, engine: Any, **changes: Any) -> RunFolder:
        changed = validate({**config.model_dump(), **changes})
        engines = engine if callable(engine) and not hasattr(engine, "digest") else lambda backend, options: engine
        return run_suite("settings", settings_suite(changed), changed, factory=engines, cache=tmp_path / "cache")

    return start


@pytest.fixture
def oracle(pond: Path, make_oracle: Any, make_scripted: Any) -> Any:
    return make_scripted(make_oracle(load(pond).questions, "fish"))


def test_all_six_settings(bench: Bench, config: RunConfig, oracle: Any) -> None:
    folder = bench(config, oracle)
    records = folder.records()
    assert len(records) == 6 * 4  # two questions share an id; both are kept, in every row
    assert all(r.ok for r in records.values())
    summary = report(folder)
    acc = {row["label"]: row["cells"]["acc"]["mean"] for row in summary["rows"]}
    assert acc == {
        "vanilla": 0.0,
        "vanilla+": 0.0,
        "knowledgeable": 1.0,
        "perceptive": 1.0,
        "unaided-offline": 1.0,
        "unaided-online": 1.0,
    }
    for row in summary["rows"]:
        searched = row["setting"] in ("perceptive", "unaided-offline", "unaided-online")
        assert row["cells"]["rec"]["mean"] == (1.0 if searched else None)
        assert row["cells"]["pre"]["mean"] == (1.0 if searched else None)
        assert row["cells"]["topic"]["mean"] == (1.0 if searched else None)
        assert row["cost"]["calls"]["mean"] >= 1 if row["setting"] != "knowledgeable" else True
    assert oracle.calls["captioner"] == 4  # one per move with a picture
    assert oracle.calls["perceiver"] == 3  # shared by both unaided settings; the question without media needs none


def test_rerun_asks_nothing_and_reports(bench: Bench, config: RunConfig, oracle: Any) -> None:
    first = bench(config, oracle)
    before, body = len(oracle.requests), first.samples.read_bytes()
    again = bench(config, oracle)
    assert again.path == first.path and len(oracle.requests) == before
    assert first.samples.read_bytes() == body
    assert report(again)["complete"]


def test_killed_anywhere_goes_on(bench: Bench, config: RunConfig, oracle: Any, tmp_path: Path) -> None:
    whole = bench(config, oracle, runs=str(tmp_path / "whole"))
    asked = len(oracle.requests)
    sent = [r.key("x") for r in oracle.requests]
    assert len(set(sent)) == asked

    class Killed(BaseException):
        pass

    for stop in range(3, asked, 7):
        oracle.requests.clear()
        shutil.rmtree(tmp_path / "cache" / "captions")  # else the captions of the run before would be used

        def kill(n: int, stop: int = stop) -> None:
            if n == stop:
                raise Killed

        oracle.before = kill
        runs = str(tmp_path / f"killed{stop}")
        with pytest.raises(Killed):
            bench(config, oracle, runs=runs, name=f"{stop}")
        oracle.before = lambda n: None
        folder = bench(config, oracle, runs=runs, name=f"{stop}")
        keys = [r.key("x") for r in oracle.requests]
        assert sorted(keys) == sorted(sent)  # over both processes: every call once, none again
        lines = [json.loads(line) for line in folder.samples.read_text().splitlines()]
        assert sorted(f"{line['row']}|{line['uid']}" for line in lines) == sorted(whole.records())
        assert {k: r.answer for k, r in folder.records().items()} == {k: r.answer for k, r in whole.records().items()}


def test_torn_last_line_is_finished_again(bench: Bench, config: RunConfig, oracle: Any) -> None:
    folder = bench(config, oracle, settings="vanilla+")
    body = folder.samples.read_bytes()
    folder.samples.write_bytes(body[:-20])
    before = len(oracle.requests)
    bench(config, oracle, settings="vanilla+")
    assert len(oracle.requests) == before
    assert sorted(folder.samples.read_bytes().splitlines()) and len(folder.records()) == 4


def test_changed_bytes_are_a_new_run(bench: Bench, config: RunConfig, oracle: Any, prompts: Path, pond: Path) -> None:
    first = bench(config, oracle, settings="vanilla+")
    answer = prompts / "answer.yaml"
    answer.write_text(answer.read_text().replace('"max_tokens": 64', '"max_tokens": 65'))
    second = bench(config, oracle, settings="vanilla+")
    assert second.path != first.path
    sheet = pond / "questions.csv"
    sheet.write_text(sheet.read_text().replace("look like", "eat"))
    assert bench(config, oracle, settings="vanilla+").path not in (first.path, second.path)
    oracle.digest = "another model"
    assert bench(config, oracle, settings="vanilla+").path not in (first.path, second.path)


def test_failed_call_loses_its_sample_only(bench: Bench, config: RunConfig, oracle: Any) -> None:
    right = oracle.reply
    oracle.reply = lambda r: CallFailed("http-500", "broken") if r.text.startswith("expander") and "hungry" in r.text else right(r)
    folder = bench(config, oracle, settings="perceptive")
    lost = [r for r in folder.records().values() if not r.ok]
    assert [(r.uid, r.stage, r.reason) for r in lost] == [("0002:q2", "expander", "http-500")]
    row = report(folder)["rows"][0]
    assert row["failed"] == {"expander: http-500": 1}
    assert row["cells"]["acc"]["n"] == 3 and row["cells"]["acc"]["mean"] == 1.0 and row["cells"]["acc"]["over total"] == 0.75
    oracle.reply = right
    assert len([r for r in bench(config, oracle, settings="perceptive").records().values() if not r.ok]) == 1  # finished stays finished
    assert all(r.ok for r in bench(config, oracle, settings="perceptive", retry=True).records().values())


def test_new_judge_predicts_nothing(bench: Bench, config: RunConfig, oracle: Any, make_scripted: Any, tmp_path: Path) -> None:
    folder = bench(config, oracle, settings="vanilla+,perceptive")
    asked = dict(oracle.calls)
    replies = iter(["yes.", "**Yes**", "No, yes would be wrong", "", "I think yes", "no", "Yes", "NO."])
    judge = make_scripted(lambda r: next(replies), digest="judge", name="judge")

    def factory(backend: Backend, options: RunConfig) -> Any:
        return judge if backend.model == "strict" else oracle

    score(folder.path, {"judge": "strict"}, factory=factory, cache=tmp_path / "cache")
    assert dict(oracle.calls) == asked and judge.calls["judge"] > 4
    verdicts = [s.value for s in folder.scores()["scores"].values()]  # type: ignore[index]
    assert verdicts.count(None) == 2 and len(verdicts) == 8
    summary = report(folder)
    assert summary["judge"]["label"] == "strict" and not summary["judge"]["itself"]
    assert sum(sum(row["unscored"].values()) for row in summary["rows"]) == 2
    before = len(judge.requests)
    score(folder.path, {"judge": "strict"}, factory=factory, cache=tmp_path / "cache")
    assert len(judge.requests) == before


def test_default_judge_is_the_judged_model_and_said(bench: Bench, config: RunConfig, oracle: Any) -> None:
    folder = bench(config, oracle, settings="vanilla+", judge=None)
    assert oracle.calls["judge"] == 4
    assert report(folder)["judge"]["itself"]
    assert "judged model itself" in (folder.path / "report.md").read_text()


def test_unreachable_judge_stops_before_predicting(bench: Bench, config: RunConfig, oracle: Any) -> None:
    class Down:
        digest, name, slots, can_constrain = "down", "down", 1, frozenset[str]()

        def check(self, work: object) -> None:
            return

        async def open(self) -> None:
            raise ConfigError("nothing answers at http://127.0.0.1:9/v1", remedy="start the server")

        async def complete(self, request: Request) -> Any:
            raise AssertionError("asked")

        async def close(self) -> None:
            return

    with pytest.raises(ConfigError, match="judge: nothing answers"):
        bench(config, lambda b, c: Down() if b.model == "gone" else oracle, settings="vanilla+", judge="gone")
    assert not oracle.requests


def test_a_model_that_cannot_be_opened_leaves_no_run(bench: Bench, config: RunConfig, oracle: Any) -> None:
    """Nothing was asked; a folder of a run that had started stays as it is."""

    class Unfit:
        name, digest, can_constrain = "unfit", "unfit", frozenset[str]()

        def check(self, work: object) -> None:
            raise ModelError("its weights are another shape's")

        complete_batch = None

    with pytest.raises(UserError, match="another shape"):
        bench(config, Unfit())
    assert not [path for path in Path(config.runs).iterdir() if path.name != ".lock"]
    kept = bench(config, oracle)
    with pytest.raises(UserError, match="another shape"):
        bench(config.model_copy(update={"k": 2}), Unfit())
    assert [path for path in Path(config.runs).iterdir() if path.name != ".lock"] == [kept.path]


def test_long_answers_and_control_characters_survive(bench: Bench, config: RunConfig, oracle: Any) -> None:
    long = "https://x.example/ \x00\x07\x1b[31m\u2028 \U0001f41f " + "a|b\n" * 10_000
    right = oracle.reply
    oracle.reply = lambda r: long if r.text.startswith("answer") else right(r)
    folder = bench(config, oracle, settings="vanilla+")
    assert {r.answer for r in folder.records().values()} == {long.strip()}
    report(folder)
    assert {r.answer for r in folder.records().values()} == {long.strip()}


def test_second_process_is_kept_out(bench: Bench, config: RunConfig, oracle: Any) -> None:
    folder = bench(config, oracle, settings="vanilla+")
    from models.journal import Journal

    with Journal(folder.journal), pytest.raises(RunError, match="another run"):
        bench(config, oracle, settings="vanilla+")


def test_offline_captions_can_be_brought(bench: Bench, config: RunConfig, oracle: Any, tmp_path: Path) -> None:
    path = tmp_path / "captions.json"
    path.write_text(json.dumps({"Pike/Dart": "brought", "Bite": "brought too"}))
    folder = bench(config, oracle, settings="unaided-offline", captions=str(path))
    assert oracle.calls["captioner"] == 0
    assert any("⟦brought⟧" in r.text for r in oracle.requests if r.text.startswith("summarizer"))
    assert "2 of 4 brought" in " ".join(report(folder)["notes"])


def test_report_says_what_was_not_run(bench: Bench, config: RunConfig, oracle: Any) -> None:
    folder = bench(config, oracle, settings="vanilla+", limit=3, name="Bob's | run", tags=["A, B", "C=D"])
    summary = report(folder)
    assert summary["run"]["tags"] == ["A, B", "C=D"]
    text = (folder.path / "report.md").read_text()
    assert text.startswith("# Bob's | run")
    assert "not run: settings vanilla, knowledgeable" in text and "1 of 4 questions" in text
    assert "Published figures, not measured here" in text and "Human (Knowledgeable)" in text
    assert json.loads((folder.path / "summary.json").read_text())["rows"][0]["questions"] == 3


def test_unusable_media_lose_their_sample(bench: Bench, config: RunConfig, oracle: Any, pond: Path) -> None:
    (pond / "dart.png").write_bytes(b"\x89PNG\r\n\x1a\nnot really")
    folder = bench(config, oracle, settings="vanilla,unaided-online")
    lost = [r for r in folder.records().values() if not r.ok]
    assert {(r.row, r.uid, r.stage) for r in lost} == {("vanilla", "0003:q2", "frames"), ("unaided-online", "0003:q2", "frames")}
    assert "1 entities of the graph have media that cannot be used" in " ".join(report(folder)["notes"])


def test_online_captions_stay_in_their_question(bench: Bench, config: RunConfig, oracle: Any) -> None:
    folder = bench(config, oracle, settings="unaided-online")
    told = [r.text for r in oracle.requests if r.text.startswith("summarizer")]
    assert len(told) == 4
    assert not any("seen at" in text for text in told if "look like" in text)
    assert {len(r.captions) for r in folder.records().values()} == {0, 1, 2}
