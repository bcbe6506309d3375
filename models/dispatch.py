"""Between driver and engines: the journal first, then one flight per distinct call, then the engine; settled in groups.

Replies that arrive together are journalled in one transaction and only then handed over. Knows nothing of episodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from models.agents import Call
from models.engines import BatchEngine, Engine, ServerEngine
from models.errors import CallFailed
from models.journal import Journal, Record, Use
from models.requests import Completion

Asker = tuple[str, int]  # sample, position among its calls of this round trip


@dataclass(slots=True)
class Flight:
    """A call under way. `askers` beyond the first share its reply. Of calls that wait the one of the lowest `rank` goes first."""

    engine: Engine
    call: Call[Any]
    sample: str
    step: int
    position: int
    rank: tuple[int, int] = (0, 0)
    key: str = ""
    asked: float = 0.0
    started: float = 0.0
    askers: list[Asker] = field(default_factory=list)


class Dispatcher:
    def __init__(self, journal: Journal, deliver: Callable[[Asker, Completion | CallFailed, bool], None]) -> None:
        self._journal, self._deliver = journal, deliver
        self._flights: dict[str, Flight] = {}
        self._queues: dict[int, list[tuple[tuple[int, int], int, Flight]]] = {}  # by id(engine): a heap of calls that wait for a slot
        self._asked = 0
        self._busy: dict[int, int] = {}
        self._batch: dict[int, list[Flight]] = {}
        self._batched: dict[int, bool] = {}  # by id(engine): asking a protocol whether it fits takes 0.1 ms
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived: list[tuple[Flight, Record]] = []
        self._uses: list[Use] = []
        self._wake = asyncio.Event()
        self._fatal: BaseException | None = None

    @property
    def in_flight(self) -> int:
        return sum(self._busy.values())  # not the tasks: theirs end one turn of the loop after their reply has arrived

    def ask(self, flight: Flight) -> None:
        """Answers from the journal at once, joins an identical flight, or starts one."""
        flight.key = key = flight.call.request.key(flight.engine.digest)
        asker = (flight.sample, flight.position)
        self._uses.append(Use(flight.sample, flight.step, flight.position, key))
        if key in self._flights:
            self._flights[key].askers.append(asker)
            return
        known = self._journal.find(key)
        if known is not None:
            self._deliver(asker, known, True)
            return
        flight.askers.append(asker)
        flight.asked = time.time()
        self._flights[key] = flight
        if self._is_batch(flight.engine):
            self._batch.setdefault(id(flight.engine), []).append(flight)
        else:
            self._asked += 1
            heapq.heappush(self._queues.setdefault(id(flight.engine), []), (flight.rank, self._asked, flight))

    def _is_batch(self, engine: Engine) -> bool:
        found = self._batched.get(id(engine))
        if found is None:
            found = self._batched[id(engine)] = isinstance(engine, BatchEngine)
        return found

    def pump(self) -> None:
        """Sends what there are slots for. Called when every sample that could move has moved, so that ranks are held against each other."""
        for queue in self._queues.values():
            while queue and self._busy.get(id(queue[0][2].engine), 0) < cast(ServerEngine, queue[0][2].engine).slots:
                flight = heapq.heappop(queue)[2]
                self._busy[id(flight.engine)] = self._busy.get(id(flight.engine), 0) + 1
                task = asyncio.get_running_loop().create_task(self._fly(cast(ServerEngine, flight.engine), flight))
                self._tasks.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not report a Ctrl-C that ends the run anyway

    async def _fly(self, engine: ServerEngine, flight: Flight) -> None:
        flight.started, begun = time.time(), time.perf_counter()
        try:
            result: Completion | CallFailed = await engine.complete(flight.call.request)
        except CallFailed as error:
            result = error
        except Exception as error:  # ModelError, or a bug of the engine: no further call can be trusted
            self._fatal = self._fatal or error
            self._wake.set()
            return
        finally:
            self._busy[id(engine)] -= 1
        self._arrived.append((flight, self._row(flight, result, time.perf_counter() - begun)))
        self._wake.set()

    def _row(self, flight: Flight, result: Completion | CallFailed, seconds: float) -> Record:
        call = flight.call
        took = result.seconds if isinstance(result, Completion) and result.seconds else seconds
        waited = max(0.0, flight.started - flight.asked)
        return Record(
            flight.key, flight.engine.name, call.role, call.stage, flight.sample, call.round, flight.started, took, _bare(result), waited
        )  # fmt: skip

    async def wait(self, seconds: float | None) -> None:
        """Until a reply is back (or the time is over). What has been asked goes out, also when replies are there already."""
        if self._wake.is_set():
            await asyncio.sleep(0)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    def settle(self, uses: bool = False) -> None:
        """Journals what has arrived, then hands it over. Raises what ended an engine.

        Which sample made which call is written along (`uses`: also when nothing arrived), at the latest when that sample ends: one that has
        not ended asks again after a kill and is told from the journal.
        """
        self._wake.clear()
        arrived = self._arrived
        if arrived or uses:
            self._write(arrived)
        self._arrived = []  # only now: what Ctrl-C finds here is written by `stop`
        for flight, record in arrived:
            self._release(flight, record.result)
        if self._fatal is not None:
            raise self._fatal

    def settle_uses(self, sample: str) -> None:
        """Before a sample's outcome is told: the journal knows which calls it made."""
        if any(use.sample == sample for use in self._uses):
            self._write([])

    def _write(self, arrived: list[tuple[Flight, Record]]) -> None:
        uses, self._uses = self._uses, []
        self._journal.record([(record, flight.call.request) for flight, record in arrived], uses)

    def _release(self, flight: Flight, result: Completion | CallFailed) -> None:
        del self._flights[flight.key]
        for i, asker in enumerate(flight.askers):
            self._deliver(asker, result, i > 0)

    def run_batches(self, tell: Callable[[], None]) -> bool:
        """One batch per batch engine, if every live sample waits for one (no server call is out). Journals each reply as it
        comes, hands over at the end in the order of asking, so that a run's log does not depend on which row ended first."""
        if not self._batch or self.in_flight or self._arrived:
            return False
        batches, self._batch = self._batch, {}
        for flights in batches.values():
            engine = flights[0].engine
            assert isinstance(engine, BatchEngine)
            results: list[Completion | CallFailed | None] = [None] * len(flights)
            started, begun = time.time(), time.perf_counter()
            for i, result in engine.complete_batch([flight.call.request for flight in flights]):
                flights[i].started = started
                results[i] = result
                self._write([(flights[i], self._row(flights[i], result, time.perf_counter() - begun))])
                tell()
            for flight, got in zip(flights, results, strict=True):
                self._release(flight, got if got is not None else CallFailed("no-reply", f"{engine.name} left a call of a batch out"))
        return True

    async def stop(self) -> None:
        """Ends what is in flight and journals what had arrived."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._write(self._arrived)
        self._arrived = []


def _bare(result: Completion | CallFailed) -> Completion | CallFailed:
    if isinstance(result, CallFailed):
        result.__traceback__ = None  # frames of the client would live as long as the outcome
    return result
