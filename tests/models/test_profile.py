"""The profile on engines that answer after a set time: what is counted, in which order, and what the reports hold."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from models import profile_report, timeline
from models.agents import Call, Episode, ask
from models.drivers import Limits, run
from models.engines import Engine, Workload
from models.errors import CallFailed, ConfigError, ModelError, RunError
from models.journal import Journal
from models.managed import ManagedEngine
from models.metrics import Watch, Watched, parse
from models.profile import mean_sd, one_level, quantile, questions, rows, spread, sweep
from models.replay import episodes, recorded, salted
from models.requests import Completion, Picture, Request, user


class Stub:
    """Answers after `seconds`; keeps what it was sent and how many calls overlapped."""

    can_constrain = frozenset[str]()
    name, digest = "stub", "stub:1"

    def __init__(self, slots: int = 64, seconds: float = 0.002, fail: str = "") -> None:
        self.slots, self.seconds, self.fail = slots, seconds, fail
        self.sent: list[Request] = []
        self.now = self.most = 0

    def check(self, work: Workload) -> None:
        pass

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def complete(self, request: Request) -> Completion:
        self.sent.append(request)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.seconds)
        self.now -= 1
        if self.fail and self.fail in request.text:
            raise CallFailed("http-400", "no")
        return Completion(f"re: {request.text[-5:]}", "stop", 100, 5, 40, self.seconds, self.seconds / 5)


def question(i: int, picture: Picture | None = None) -> Episode[int]:
    (first,) = yield from ask([Call("agent", "topic", user(f"q{i} topic"), str)])
    parts = (picture,) if picture else ()
    calls = [Call("agent", "expand", user(*parts, f"q{i} step {k} after {first}"), str, 1) for k in range(3)]
    replies = yield from ask(calls)
    yield from ask([Call("validator", "validate", user(f"q{i} is {replies[0]} right? shared"), str, 2)])
    return len(replies)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """The journal of a run of four questions, one picture among their calls."""
    (tmp_path / "p.bin").write_bytes(b"picture")
    picture = Picture.of(tmp_path / "p.bin")
    path = tmp_path / "journal.sqlite"
    stub = Stub()
    with Journal(path) as open_:
        run(((f"s{i}", question(i, picture)) for i in range(4)), {"agent": stub, "validator": stub}, open_)
    return path


def engines(made: list[Stub], **how: Any) -> Any:
    def build(slots: int) -> dict[str, Engine]:
        made.append(Stub(slots, **how))
        return dict.fromkeys(("agent", "validator"), made[-1])

    return build


def test_a_replay_sends_the_same_calls_in_the_same_dependencies(journal: Path, tmp_path: Path) -> None:
    with Journal(journal, writable=False) as held:
        work = recorded(held)
    assert (len(work.steps), work.calls, work.lost) == (4, 20, 0)
    assert [len(step) for step in work.steps["s0"]] == [1, 3, 1]
    again = Stub(1, 0.0)
    with Journal(tmp_path / "again.sqlite") as new:
        outcomes = run(episodes(work), {"agent": again, "validator": again}, new, limits=Limits(live=1))
        assert [outcome.value for outcome in outcomes.values()] == [0, 0, 0, 0]
    texts = [request.text for request in again.sent]
    first = [text for text in texts if text.startswith("q0")]
    assert first == ["q0 topic", *[f"q0 step {k} after re: topic" for k in range(3)], "q0 is re: topic right? shared"]
    assert sum(bool(request.pictures) for request in again.sent) == 12


def test_a_replay_goes_on_after_a_failed_call(journal: Path, tmp_path: Path) -> None:
    with Journal(journal, writable=False) as held:
        work = recorded(held, limit=2)
    assert len(work.steps) == 2
    bad = Stub(8, 0.0, fail="step 1")
    with Journal(tmp_path / "again.sqlite") as new:
        outcomes = run(episodes(work), {"agent": bad, "validator": bad}, new)
    assert [outcome.value for outcome in outcomes.values()] == [1, 1]
    assert sum("shared" in request.text for request in bad.sent) == 2


def test_an_empty_run_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.sqlite").close()
    with Journal(tmp_path / "journal.sqlite", writable=False) as held, pytest.raises(RunError, match="holds no calls"):
        recorded(held)


def test_a_salt_stands_first_and_changes_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "p.bin").write_bytes(b"picture")
    picture = Picture.of(tmp_path / "p.bin")
    request = user(picture, "what?", system="persona")
    assert salted(request, "ab").messages[0].text == "[ab] persona"
    assert salted(request, "ab").messages[1:] == request.messages[1:]
    bare = salted(user(picture, "what?"), "ab").messages[0]
    assert bare.parts == ("[ab] ", picture, "what?")


def test_levels_declare_their_cache_and_keep_concurrency(journal: Path, tmp_path: Path) -> None:
    with Journal(journal, writable=False) as held:
        work = recorded(held)
    made: list[Stub] = []
    told: list[int] = []
    levels = sweep(
        lambda salt: episodes(work, salt), engines(made), tmp_path / "out", concurrencies=(1, 3), repetitions=2,
        tell=lambda level: told.append(level.concurrency),
    )  # fmt: skip
    assert [(level.concurrency, level.repetition) for level in levels] == [(1, 0), (1, 1), (3, 0), (3, 1)] and told == [1, 1, 3, 3]
    assert [stub.most for stub in made[1:]] == [1, 1, 3, 3]
    assert all(level.cache.startswith("cold: a fresh prefix salt") for level in levels)
    heads = [{request.text.split("]")[0] for request in stub.sent} for stub in made]
    assert all(len(head) == 1 for head in heads) and len(set.union(*heads)) == 5  # one salt a pass, the warm-up's own
    assert all(len(level.records) == 20 and len(level.outcomes) == 4 for level in levels)


def test_cold_by_reset_and_warm_are_unsalted_and_say_so(journal: Path, tmp_path: Path) -> None:
    with Journal(journal, writable=False) as held:
        work = recorded(held)
    resets: list[int] = []

    def reset() -> bool:
        resets.append(1)
        return True

    made: list[Stub] = []
    common: dict[str, Any] = {"concurrencies": (2,), "repetitions": 2, "warm_up": False}
    cold = sweep(lambda salt: episodes(work, salt), engines(made), tmp_path / "a", reset=reset, **common)
    assert len(resets) == 2 and {level.cache for level in cold} == {"cold: caches emptied before each pass"}
    warm = sweep(lambda salt: episodes(work, salt), engines(made), tmp_path / "b", cache="warm", reset=reset, **common)
    assert len(resets) == 2 and {level.cache for level in warm} == {"warm: the same prompts were sent before"}
    assert [len(stub.sent) for stub in made] == [20] * 5  # two cold passes, the warming one, two warm
    assert all(not request.text.startswith("[") for stub in made for request in stub.sent)


def test_the_sweep_ends_when_it_no_longer_pays(journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(journal, writable=False) as held:
        work = recorded(held)
    rates = iter([1.0, 2.0, 2.01, 99.0])
    from models import profile

    monkeypatch.setattr(profile, "quantile", lambda values, q: next(rates))
    levels = sweep(
        lambda salt: episodes(work, salt), engines([], seconds=0.0), tmp_path, concurrencies=(1, 2, 4, 8), repetitions=1, warm_up=False
    )
    assert [level.concurrency for level in levels] == [1, 2, 4]


def test_figures(journal: Path, tmp_path: Path) -> None:
    with Journal(journal, writable=False) as held:
        work = recorded(held)
    made: list[Stub] = []
    level = one_level(lambda salt: episodes(work, salt), engines(made, fail="q3 step 2"), 4, tmp_path)
    by_stage = {(row.stage, row.round): row for row in rows([level])}
    assert set(by_stage) == {("topic", 0), ("expand", 1), ("validate", 2)}
    expand = by_stage["expand", 1]
    assert (expand.calls, expand.failed, expand.prompt_tokens, expand.output_tokens, expand.cached_share) == (12, 1, 100, 5, 0.4)
    assert expand.pictures == pytest.approx(11 / 12)  # a failed call leaves no request behind
    assert by_stage["topic", 0].pictures == 0
    assert expand.inter_token == pytest.approx([0.0004] * 3)
    (asked,) = questions([level])
    assert (asked.questions, asked.failed, asked.calls) == (4, 0, (5, 5, 5))
    assert asked.critical[0] == pytest.approx(3 * 0.002)
    assert asked.wall[0] >= asked.critical[0] and asked.stretch >= 1
    assert asked.calls_mean_sd == (5.0, 0.0)


def test_quantiles() -> None:
    assert quantile([], 0.5) == 0.0 and spread([]) == () and mean_sd([]) == (0.0, 0.0)
    assert quantile([3, 1, 2], 0.5) == 2 and quantile([1, 2], 0.5) == 1.5 and quantile([1, 2, 3, 4, 5], 0.9) == pytest.approx(4.6)
    assert mean_sd([2, 4, 4, 4, 5, 5, 7, 9]) == (5.0, 2.0)


def test_reports(journal: Path, tmp_path: Path) -> None:
    with Journal(journal, writable=False) as held:
        work = recorded(held)
    levels = sweep(lambda salt: episodes(work, salt), engines([]), tmp_path / "out", concurrencies=(1, 2), repetitions=1, warm_up=False)
    text = profile_report.table(levels)
    assert "57.06 ± 41.78" in text and "cold: a fresh prefix salt" in text and "expand" in text
    assert re.search(r"^1 +\d", text, re.M) and "–" in text
    profile_report.write(tmp_path / "out", levels, text, profile_report.lines(levels))
    kept = [json.loads(line) for line in (tmp_path / "out" / "profile.jsonl").read_text().splitlines()]
    assert [row["kind"] for row in kept] == ["level"] * 2 + ["calls"] * 6 + ["questions"] * 2
    assert len(ElementTree.fromstring((tmp_path / "out" / "throughput.svg").read_text()).findall("{*}circle")) == 2
    assert profile_report.table([]) == "nothing was measured"


def test_timeline(journal: Path) -> None:
    with Journal(journal, writable=False) as held:
        events = timeline.events([*held.calls()], [*held.uses()])
    slices = [event for event in events if event["ph"] == "X"]
    starts, ends = ([event for event in events if event["ph"] == ph] for ph in "sf")
    assert len(slices) == 20 and len({event["pid"] for event in slices}) == 4
    assert len(starts) == len(ends) == 4 * (3 + 1)  # topic → 3 expansions, the slowest expansion → 1 validation
    assert {event["id"] for event in starts} == {event["id"] for event in ends}
    for start, end in zip(starts, ends, strict=True):
        assert start["ts"] <= end["ts"]
    for event in slices:  # slices of one lane never overlap
        lane = sorted(
            (other["ts"], other["ts"] + other["dur"]) for other in slices if (other["pid"], other["tid"]) == (event["pid"], event["tid"])
        )
        assert all(a[1] <= b[0] for a, b in pairwise(lane))
    json.dumps(events)


METRICS = """\
# HELP vllm:prefix_cache_queries_total Prefix cache queries.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="a b{c}"} 10.0
vllm:prefix_cache_queries_total{engine="1",model_name="x"} 1.5e+01
vllm:prefix_cache_hits_total{engine="0"} %d
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:num_requests_running{engine="0"} 3
garbage line
process_start_time_seconds 1.7e9 1234
"""


def test_metrics_are_parsed_and_summed() -> None:
    found = parse(METRICS % 5)
    assert found["vllm:prefix_cache_queries_total"] == 25 and found["process_start_time_seconds"] == 1.7e9
    assert parse("") == {} and parse("\x00{}{") == {}


@pytest.fixture
def metrics_server() -> Iterator[tuple[str, list[str]]]:
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization", ""))
            self.send_response(200)
            self.end_headers()
            self.wfile.write((METRICS % (5 if len(seen) == 1 else 15)).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1", seen
    server.shutdown()
    thread.join()
    server.server_close()


def test_metrics_are_watched(metrics_server: tuple[str, list[str]]) -> None:
    url, seen = metrics_server
    with Watch([url], "key", seconds=0.01) as watched:
        while not watched.samples:
            threading.Event().wait(0.01)
    assert watched.counters["prefix_hits"] == 10 and watched.counters["prefix_queries"] == 0
    assert watched.samples[0].gauges == {"kv_use": 0.25, "running": 3.0}
    assert set(seen) == {"Bearer key"} and watched.share("prefix_hits", "prefix_queries") is None and watched.joules is None


def test_a_server_without_metrics_is_no_error() -> None:
    with Watch(["http://127.0.0.1:9/v1"]) as watched:
        pass
    assert watched == Watched()


class Fleet:
    def __init__(self) -> None:
        self.restarting, self.crashes, self.error = False, 0, ModelError("gone for good")
        self.dead = False

    def check(self) -> None:
        if self.dead:
            raise self.error


class Crashing(Stub):
    """Loses the first calls with its server, which then comes back after a while (or does not)."""

    def __init__(self, fleet: Fleet, losses: int, comes_back: bool = True, reason: str = "cut-off") -> None:
        super().__init__()
        self.fleet, self.losses, self.comes_back, self.reason = fleet, losses, comes_back, reason

    async def complete(self, request: Request) -> Completion:
        assert not self.fleet.restarting, "asked while the server was away"
        if self.losses:
            self.losses -= 1
            if self.reason == "cut-off":
                self.fleet.restarting = True
                self.fleet.crashes += 1
                asyncio.get_running_loop().call_later(0.3, self._back)
            raise CallFailed(self.reason, "lost")
        return await super().complete(request)

    def _back(self) -> None:
        self.fleet.restarting, self.fleet.dead = False, not self.comes_back


def test_calls_lost_with_their_server_are_sent_again_when_it_is_back() -> None:
    fleet = Fleet()
    engine = ManagedEngine(Crashing(fleet, 1), fleet)
    assert asyncio.run(engine.complete(user("hello"))).text == "re: hello"
    assert engine.digest == "stub:1" and engine.slots == 64


def test_a_server_that_is_gone_for_good_ends_the_run_with_its_own_words() -> None:
    fleet = Fleet()
    with pytest.raises(ModelError, match="gone for good"):
        asyncio.run(ManagedEngine(Crashing(fleet, 1, comes_back=False), fleet).complete(user("hello")))


def test_other_failures_pass_through() -> None:
    fleet = Fleet()
    with pytest.raises(CallFailed, match="http-400"):
        asyncio.run(ManagedEngine(Crashing(fleet, 1, reason="http-400"), fleet).complete(user("hello")))
    slow = ManagedEngine(Crashing(fleet, 1, reason="http-500"), fleet, notice_seconds=0.2)  # a 500 of a server that lives
    with pytest.raises(CallFailed, match="http-500"):
        asyncio.run(slow.complete(user("hello")))


def test_concurrency_lists() -> None:
    from models.profile_cli import _numbers

    assert _numbers("4,1, 2") == [1, 2, 4]
    for text in ("", "0", "1,x"):
        with pytest.raises(ConfigError, match="--concurrency"):
            _numbers(text)
