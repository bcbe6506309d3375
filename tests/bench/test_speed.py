"""The ratios' own arithmetic: the oracle, the stub server for real, scheduling in time that does not pass, rows against a made-up vLLM."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.config import ROLES, validate
from bench.predict import Job, longest_first
from bench.profile.target import Target
from bench.rows import settings_suite
from bench.speed import measures, served
from bench.speed.cli import line
from bench.speed.measures import Figure, drive, radix
from bench.speed.stub import NAME, digest, serving
from bench.speed.work import Work, configured, prepared
from bench.workshop import Workshop
from kg.load import load
from models import drivers
from models.journal import Journal
from models.openai_server import OpenAIServer, fire
from models.profile_cli import Served
from models.radix import Radix, bound
from models.replay import recorded
from models.requests import Completion, Request
from models.routing import Router
from models.wire import body_of


@pytest.fixture
def work(pond: Path, tmp_path: Path) -> Work:
    return prepared(Workshop(load(pond), tmp_path / "cache"), configured(pond, "perceptive", "full"))


def test_the_oracle_walks_the_gold_routes(work: Work) -> None:
    assert work.calls == sum(1 for _ in work.requests) and work.rounds >= 5
    assert {"topic", "expander", "validator", "summarizer"} == set(work.stages)
    assert set(work.table.values()) >= {"Pike", "Dart", "Bite", "Yes", "No", "None"} - {"None"}


def test_the_oracle_reads_both_orders_of_looking(pond: Path, tmp_path: Path) -> None:
    for prompts in ("full", "compact"):
        sighted = prepared(Workshop(load(pond), tmp_path / "cache"), configured(pond, "unaided-online", prompts))
        assert any(stage == "validator_online" for stage in sighted.stages)
        assert any("it moves as 'Bite' does" in reply for reply in sighted.table.values())


def test_driver_client_and_stub_together(work: Work) -> None:
    with serving(work.table) as url:
        outcomes, _, cpu = drive(work, url, copies=3)
        assert len(outcomes) == 3 * len(work.samples) and cpu > 0
        assert {outcome.value.answer for outcome in outcomes.values() if outcome.value} == {q.answer for q, _ in work.samples}
        assert sum(o.calls for o in outcomes.values()) == 3 * work.calls
        bodies = [body_of(request, NAME, file_urls=True, word_ids={}) for request in work.requests]
        assert asyncio.run(fire(url, bodies, 4)) == [200] * len(bodies)


def test_memory_is_measured_with_all_questions_under_way(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0

    def watched(*given: Any, **options: Any) -> Any:
        def note(progress: drivers.Progress) -> None:
            nonlocal most
            most = max(most, progress.live)

        return drivers.run(*given, progress=note, **options)

    monkeypatch.setattr(measures, "run", watched)
    assert measures.peak(work, 50) > 0 and most == 50


def test_marks_do_not_change_what_the_stub_knows() -> None:
    assert digest(b'{"q": "What? (#12)"}') == digest(b'{"q": "What?"}') != digest(b'{"q": "What!"}')


class _Clock(asyncio.SelectorEventLoop):
    """A loop whose time jumps to the next timer: nothing is slept, and what is computed takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            self.now += timeout or 0.0
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now


class _Timed:
    name = digest = "timed"
    can_constrain = frozenset[str]()
    slots = 64

    def __init__(self, table: dict[str, str]) -> None:
        self.table = table

    def check(self, work: object) -> None: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def complete(self, request: Request) -> Completion:
        await asyncio.sleep(0.1)
        return Completion(self.table[digest(body_of(request, NAME, file_urls=True, word_ids={}))], seconds=0.1)


def test_the_published_questions_are_scheduled_near_the_bound(mh_bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """142 questions, 0.1 s a call, 64 slots: wall against the longest question or all calls on all slots, whichever is more."""
    work = prepared(Workshop(load(mh_bench), tmp_path / "cache"), configured(mh_bench, "perceptive", "full"))
    clock = _Clock()
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: clock)
    with Journal(tmp_path / "journal") as journal:
        outcomes = drivers.run(work.episodes(), dict.fromkeys(ROLES, _Timed(work.table)), journal)
    calls = sum(outcome.calls for outcome in outcomes.values())
    assert calls == work.calls and all(outcome.ok for outcome in outcomes.values())
    assert clock.now / max(work.rounds * 0.1, calls * 0.1 / 64) <= 1.15


class _Replicas(_Timed):
    """Servers behind the client's router, each with a prefix cache of its own that forgets nothing, in blocks of 64 letters."""

    def __init__(self, table: dict[str, str], count: int) -> None:
        super().__init__(table)
        self.router, self.load, self.trees = Router(count), [0] * count, [Radix() for _ in range(count)]
        self.sent: list[list[int]] = []
        self.served = 0

    async def complete(self, request: Request) -> Completion:
        chosen = self.router.pick(request, self.load, range(len(self.load)))
        letters = [ord(letter) for letter in request.text]
        self.sent.append(letters)
        self.served += min(self.trees[chosen].add(letters), len(letters) - 1) // 64 * 64
        self.load[chosen] += 1
        try:
            return await super().complete(request)
        finally:
            self.load[chosen] -= 1


def test_two_replicas_lose_little_of_what_one_cache_could_serve(mh_bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = prepared(Workshop(load(mh_bench), tmp_path / "cache"), configured(mh_bench, "perceptive", "full"))
    monkeypatch.setattr(asyncio, "new_event_loop", _Clock)
    engine = _Replicas(work.table, 2)
    with Journal(tmp_path / "journal") as journal:
        drivers.run(work.episodes(), dict.fromkeys(ROLES, engine), journal)
    assert engine.served / bound(engine.sent, 64).served >= 0.95


def test_a_perfect_cache_serves_three_quarters_of_the_published_questions(mh_bench: Path, tmp_path: Path) -> None:
    """Counted in characters: no tokenizer is needed to see whether calls extend one another."""
    works = [
        prepared(Workshop(load(mh_bench), tmp_path / "cache"), configured(mh_bench, setting, "full"))
        for setting in ("perceptive", "knowledgeable", "vanilla+")
    ]
    first, *_, every = radix(works, lambda request: [ord(letter) for letter in request.text])
    assert first.met and every.met and every.value is not None and every.value < 1


def test_longest_first_is_an_order_and_nothing_else(mh_bench: Path) -> None:
    questions = load(mh_bench).questions
    rows = settings_suite(validate({"settings": ["vanilla+", "perceptive"], "data": str(mh_bench)}))
    jobs = [Job(row, question) for row in rows for question in questions]
    ordered = longest_first(jobs)
    assert {job.key for job in ordered} == {job.key for job in jobs} and len(ordered) == len(jobs)
    lengths = [max(map(len, job.question.routes)) for job in ordered if job.row.setting.knowledge == "search"]
    assert lengths == sorted(lengths, reverse=True)
    assert all(job.row.setting.name == "vanilla+" for job in ordered[-len(questions) :])


def test_figures_in_words() -> None:
    assert line(Figure("a", 1.2, 1.0)) == "a: 1.200 ×  ≤ 1  MISSED"
    assert line(Figure("a", 1.2, 1.0, True, "", "why")) == "a: 1.200  ≥ 1  met   (why)"

    assert Figure("a", None, 1.0).met is None and Figure("a", 3.0).met is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rows", "nonsense"], "no row 'nonsense'"),
        (["--rows", ","], "no row"),
        (["--rows", "served"], "these rows need a server"),
        (["--limt", "3"], ""),
    ],
)
def test_speed_refuses(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["speed", *arguments])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2 and said in capsys.readouterr().err


@pytest.fixture
def vllm(chat: Any) -> Any:
    """The chat server as a vLLM: metrics too, and every reply is "Bite"."""
    chat.model = {"id": "tiny", "max_model_len": 100_000}
    chat.metrics = 'vllm:cache_config_info{block_size="8",x="y"} 1.0\n'
    chat.rules = [("", "Bite")]
    return chat


def test_the_rows_of_a_real_server(work: Work, vllm: Any, tmp_path: Path) -> None:
    engine: Callable[..., Any] = lambda slots, extra: OpenAIServer([vllm.url], "tiny", slots=slots, extra=extra)  # noqa: E731

    def reset() -> bool:
        vllm.resets += 1
        return True

    with serving(work.table) as url, Journal(tmp_path / "first") as journal:
        drivers.run(work.episodes(), dict.fromkeys(ROLES, OpenAIServer([url], NAME, file_urls=True)), journal)
        calls = recorded(journal)
    target = Target(Served((vllm.url,), "", "tiny", False, reset), engine, tmp_path)
    questions = {f"0:{question.uid}": question for question, _ in work.samples}
    figures = {figure.what: figure for figure in served.rows(target, calls, questions, tmp_path)}
    assert len(figures) == 6 and vllm.resets == 6
    assert figures["replies that are the same batched and alone, word for word"].value == 1.0
    cached = figures["prefix tokens cached ÷ what a perfect cache serves, 1 replica"]
    assert cached.value is not None and "blocks of 8" in cached.note
    assert figures["accuracy batched − alone, exact words"].value == 0.0
    assert sum(body.get("ignore_eos") is True for body in vllm.bodies) == 2 * len(work.requests)
    assert all(body["max_tokens"] == 32 for body in vllm.bodies if body.get("ignore_eos"))


def test_a_profile_of_agent_rounds_against_a_server(vllm: Any, pond: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "profile"
    options = ["--data", str(pond), "--model", "tiny", "--endpoint", vllm.url, "--prompts", "full", "--settings", "unaided-online"]
    assert main(["profile", *options, "--concurrency", "1,2", "--repetitions", "2", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "57.06 ± 41.78" in shown and "cold: caches emptied before each pass" in shown and "in blocks" in shown
    kept = [json.loads(row) for row in (out / "profile.jsonl").read_text().splitlines()]
    levels = [row for row in kept if row["kind"] == "level"]
    assert [(row["concurrency"], row["repetition"]) for row in levels] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert all(row["failed"] == 0 and row["calls"] > 4 for row in levels)
    bounds = [row for row in kept if row["kind"] == "prefix bound"]
    assert {row["block"] for row in bounds} == {8} and all(row["perfect"] >= row["blocks"] > 0 for row in bounds)
    assert {file.name for file in out.iterdir()} >= {"profile.txt", "timeline.json", "throughput.svg", "latency.svg"}
    events = json.loads((out / "timeline.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} >= {"X", "s", "f", "M"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--settings", "vanilla,perceptive"], "a profile is of one setting"),
        (["--repetitions", "0"], "at least 1"),
        (["--concurrency", "x"], "numbers with commas"),
        (["--set", "roles.validator={model: other, endpoint: http://127.0.0.1:9/v1}"], "measures one model"),
        (["--replay", "nowhere"], "no journal here"),
    ],
)
def test_profile_refuses(arguments: list[str], said: str, pond: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["--data", str(pond), "--model", "tiny", "--endpoint", "http://127.0.0.1:9/v1", "--out", str(tmp_path / "out")]
    assert main(["profile", *base, *arguments]) == 2
    assert said in capsys.readouterr().err
