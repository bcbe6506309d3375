"""Runs episodes: sends their calls to the engines, journals the replies, resumes the episodes.

Server engines are streamed: a call goes out as soon as it is yielded and its episode resumes as soon as its own calls are back.
Batch engines run in lock step: when no sample can move otherwise, one batch takes the waiting calls of all live samples. A run may
mix both. Everything happens in one thread. Knows no model and no task. What an episode returns depends on the replies alone: they
are handed over in the order in which they were asked, and of several failed calls the first by position is thrown.

Try: python -m pytest tests/models/test_drivers.py
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from models.agents import Call, Episode
from models.dispatch import Dispatcher, Flight
from models.engines import BatchEngine, Engine, ServerEngine
from models.errors import CallFailed, ConfigError, StackError
from models.journal import Journal
from models.requests import Completion

T = TypeVar("T")
AGAIN = 0.02  # seconds until a source that had nothing is asked again
# Samples moved before what they ask is sent. All at once, a server that has answered a crowd would stand idle until the last of it is read;
# one at a time, ranks are not held against each other and every reply costs a turn of the loop.
STRIDE = 8


@dataclass(frozen=True)
class Limits:
    """Bounds of a run.

    Attributes:
        live: samples under way at once; the rest wait as an unread iterator, so memory does not grow with the data set.
        calls: calls of one sample; beyond it ``CallFailed("call-limit")`` is thrown into the episode.
        seconds: wall clock of the whole run; what is not done then is a failure of reason ``run-deadline``.
    """

    live: int = 512
    calls: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Failure:
    """Why a sample has no value: the agent (or ``episode``), a countable reason, and the words of whoever refused."""

    stage: str
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What became of one sample. Exactly one of `value` and `failure` counts; `failure` is None for a sample that ended well.

    `calls` are those that the episode made, `reused` those of them answered by the journal or by an identical call in flight,
    `rounds` its round trips. `seconds` is wall clock in this process; `call_seconds` sums the calls' own times and
    `critical_seconds` the slowest of each round trip (both also after a resume: they come from the journal).
    """

    value: T | None
    failure: Failure | None
    calls: int
    reused: int
    rounds: int
    seconds: float
    call_seconds: float
    critical_seconds: float

    @property
    def ok(self) -> bool:
        return self.failure is None


@dataclass(frozen=True)
class Progress:
    """Counts so far; `in_flight` are calls that an engine has."""

    done: int
    failed: int
    live: int
    calls: int
    reused: int
    in_flight: int


def run(
    episodes: Iterable[tuple[str, Episode[T]] | None],
    backends: Mapping[str, Engine],
    journal: Journal,
    *,
    on_done: Callable[[str, Outcome[T]], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
    limits: Limits | None = None,
    keep: bool = True,
) -> dict[str, Outcome[T]]:
    """Drives every episode to its end: sample id → Outcome, in the order of finishing (empty when not `keep`).

    Args:
        episodes: (sample id, episode); ids are unique. Read lazily, `limits.live` ahead. None says that no further sample can start
            yet (its pictures are still being prepared): the samples under way go on, and the next item is asked for a moment later.
        backends: role → engine. One engine may serve several roles.
        on_done: called once per sample, as it finishes; what it raises ends the run.
        progress: called after every reply and every finished sample; throttle it yourself.

    Raises ModelError when an engine is beyond hope, RunError when the journal is, KeyboardInterrupt on Ctrl-C: in each case what
    had come back is journalled, and the same command goes on from there.
    """
    driver = _Driver(episodes, backends, journal, on_done, progress, limits or Limits(), keep)
    # Not asyncio.run: it would turn Ctrl-C into a cancellation that waits until a long batch has ended.
    loop = asyncio.new_event_loop()
    main = loop.create_task(driver.main())
    try:
        return loop.run_until_complete(main)
    finally:
        try:
            main.cancel()
            loop.run_until_complete(asyncio.gather(main, return_exceptions=True))
            loop.run_until_complete(driver.stop())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


@dataclass(slots=True)
class _Sample(Generic[T]):
    id: str
    index: int
    episode: Episode[T]
    begun: float
    batch: list[Call[Any]] = field(default_factory=list)
    replies: list[Completion | CallFailed | None] = field(default_factory=list)
    waiting: int = 0
    calls: int = 0
    reused: int = 0
    rounds: int = 0
    call_seconds: float = 0.0
    critical_seconds: float = 0.0
    stage: str = "episode"


class _Driver(Generic[T]):
    def __init__(
        self,
        episodes: Iterable[tuple[str, Episode[T]] | None],
        backends: Mapping[str, Engine],
        journal: Journal,
        on_done: Callable[[str, Outcome[T]], None] | None,
        progress: Callable[[Progress], None] | None,
        limits: Limits,
        keep: bool,
    ) -> None:
        self._source = iter(episodes)
        self._backends, self._limits, self._keep = backends, limits, keep
        self._on_done, self._progress = on_done, progress
        self._calls = Dispatcher(journal, self._deliver)
        self._ids: set[str] = set()
        self._live: dict[str, _Sample[T]] = {}
        self._ready: list[tuple[int, _Sample[T]]] = []  # a heap: what began earlier ends earlier, and gives its memory back
        self._outcomes: dict[str, Outcome[T]] = {}
        self._done = self._failed = self._made = self._reused = 0
        self._exhausted = self._held_up = False
        self._again = 0.0
        self._opened: list[ServerEngine] = []

    async def main(self) -> dict[str, Outcome[T]]:
        deadline = None if self._limits.seconds is None else time.monotonic() + self._limits.seconds
        for engine in {id(e): e for e in self._backends.values()}.values():
            if not isinstance(engine, (ServerEngine, BatchEngine)):
                raise TypeError(f"{engine!r} is neither a ServerEngine nor a BatchEngine")
            if isinstance(engine, ServerEngine):
                self._opened.append(engine)
                await engine.open()
        while True:
            more = self._advance()
            self._calls.pump()
            if not self._live and not self._held_up and not more:
                break
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                self._expire()
            elif more or self._calls.run_batches(self._tell):
                await asyncio.sleep(0)  # what has been asked goes out
            else:
                await self._calls.wait(min(left or AGAIN, AGAIN) if self._held_up else left)
            self._calls.settle()
            self._tell()
        self._calls.settle(uses=True)
        return self._outcomes

    async def stop(self) -> None:
        """After the end, whatever it was: calls cancelled, what had arrived journalled, episodes and engines closed."""
        try:
            await self._calls.stop()
        finally:
            for sample in self._live.values():
                sample.episode.close()
            for engine in self._opened:
                await engine.close()

    def _advance(self) -> bool:
        """Moves some of the samples that can move, then takes in new ones; whether there may be more to move at once."""
        for _ in range(STRIDE):
            if self._ready:
                self._resume(heapq.heappop(self._ready)[1])
            elif self._exhausted or len(self._live) >= self._limits.live or not self._take_in():
                return False
        return True

    def _take_in(self) -> bool:
        """The next sample of the source, if it has one now. One that had none is left alone for a moment: to look for one may be work."""
        if self._held_up and time.monotonic() < self._again:
            return False
        try:
            item = next(self._source)
        except StopIteration:
            self._exhausted, self._held_up = True, False
            return False
        self._held_up = item is None
        if item is None:
            self._again = time.monotonic() + AGAIN / 2
            return False
        name, episode = item
        if name in self._ids:
            raise ConfigError(f"two samples are called {name!r}", remedy="give every row an id of its own")
        self._ids.add(name)
        self._live[name] = sample = _Sample(name, len(self._ids), episode, time.monotonic())
        self._step(sample, None, None)
        return True

    def _resume(self, sample: _Sample[T]) -> None:
        """All calls of a round trip are back: parse them in order, or throw the first failure."""
        times = [r.seconds for r in sample.replies if isinstance(r, Completion)]
        sample.call_seconds += sum(times)
        sample.critical_seconds += max(times, default=0.0)
        values: list[Any] = []
        for call, reply in zip(sample.batch, sample.replies, strict=True):
            sample.stage = call.stage
            if isinstance(reply, CallFailed):
                # A copy: one exception object thrown into several episodes would carry their tracebacks on.
                self._step(sample, None, CallFailed(reply.reason, reply.detail))
                return
            assert reply is not None
            if call.whole and reply.finish != "stop":
                self._step(sample, None, CallFailed("cut", f"the {call.stage}'s reply did not end: {reply.text[:80]!r}"))
                return
            try:
                values.append(call.value(reply))
            except Exception as error:
                self._finish(sample, None, Failure(call.stage, "parse-error", _tell(error)))
                return
        self._step(sample, values, None)

    def _step(self, sample: _Sample[T], values: list[Any] | None, thrown: CallFailed | None) -> None:
        try:
            calls = list(sample.episode.throw(thrown) if thrown is not None else sample.episode.send(values))  # type: ignore[arg-type]
        except StopIteration as end:
            self._finish(sample, end.value, None)
        except CallFailed as error:
            self._finish(sample, None, Failure(sample.stage, error.reason, error.detail))
        except Exception as error:
            reason = "refused" if isinstance(error, StackError) else "exception"
            self._finish(sample, None, Failure(sample.stage, reason, _tell(error)))
        else:
            self._send(sample, calls)

    def _send(self, sample: _Sample[T], calls: list[Call[Any]]) -> None:
        sample.batch, sample.replies, sample.waiting = calls, [None] * len(calls), len(calls)
        sample.rounds += 1
        if not calls:
            heapq.heappush(self._ready, (sample.index, sample))
        for position, call in enumerate(calls):
            sample.calls += 1
            self._made += 1
            engine = self._backends.get(call.role)
            if engine is None:
                raise ConfigError(f"no model is bound to the role {call.role!r}", remedy=f"roles bound: {', '.join(self._backends)}")
            if self._limits.calls is not None and sample.calls > self._limits.calls:
                self._deliver((sample.id, position), CallFailed("call-limit", f"more than {self._limits.calls} calls"), False)
                continue
            # Samples that began earlier go first: they end earlier, and their prompts are still in the server's cache. When no more
            # samples come, calls that no other call waits for are kept for the end, where slots would else stand empty.
            rank = (int(call.last and self._exhausted), sample.index)
            self._calls.ask(Flight(engine, call, sample.id, sample.rounds, position, rank))

    def _deliver(self, asker: tuple[str, int], reply: Completion | CallFailed, reused: bool) -> None:
        name, position = asker
        sample = self._live.get(name)
        if sample is None:
            return  # expired
        sample.replies[position] = reply
        sample.waiting -= 1
        if reused:
            sample.reused += 1
            self._reused += 1
        if not sample.waiting:
            heapq.heappush(self._ready, (sample.index, sample))

    def _finish(self, sample: _Sample[T], value: T | None, failure: Failure | None) -> None:
        del self._live[sample.id]
        sample.episode.close()
        wall = time.monotonic() - sample.begun
        times = (wall, sample.call_seconds, sample.critical_seconds)
        outcome: Outcome[T] = Outcome(value, failure, sample.calls, sample.reused, sample.rounds, *times)
        self._done += 1
        self._failed += failure is not None
        self._calls.settle_uses(sample.id)
        if self._keep:
            self._outcomes[sample.id] = outcome
        if self._on_done is not None:
            self._on_done(sample.id, outcome)

    def _expire(self) -> None:
        detail = f"the run's {self._limits.seconds:g} seconds were over"
        for sample in list(self._live.values()):
            self._finish(sample, None, Failure(sample.stage, "run-deadline", detail))
        for item in self._source:
            if item is None:
                time.sleep(AGAIN)
                continue
            name, episode = item
            self._live[name] = sample = _Sample(name, 0, episode, time.monotonic())
            self._finish(sample, None, Failure("episode", "run-deadline", detail))
        self._exhausted, self._held_up = True, False
        self._ready.clear()

    def _tell(self) -> None:
        if self._progress is not None:
            in_flight = self._calls.in_flight
            self._progress(Progress(self._done, self._failed, len(self._live), self._made, self._reused, in_flight))


def _tell(error: Exception) -> str:
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    at = f" ({where.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{where.tb_lineno})" if where is not None else ""
    return f"{type(error).__name__}: {error}{at}"
