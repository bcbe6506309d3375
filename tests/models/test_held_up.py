"""A source of samples may have nothing yet: what is under way goes on, and the rest starts when it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from models import drivers
from models.agents import Call, Episode, ask
from models.drivers import Limits, run
from models.engines import Workload
from models.journal import Journal
from models.requests import Completion, Request, user


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "j.sqlite") as opened:
        yield opened


class Batch:
    digest, name, can_constrain = "b", "b", frozenset[str]()

    def __init__(self) -> None:
        self.asked: list[str] = []

    def check(self, work: Workload) -> None:
        return

    def complete_batch(self, requests: Sequence[Request]) -> Iterator[tuple[int, Completion]]:
        for i, request in enumerate(requests):
            self.asked.append(request.text)
            yield i, Completion(request.text.upper())


class Streamed(Batch):
    slots = 2
    complete_batch = None  # type: ignore[assignment]

    async def open(self) -> None:
        return

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request.text)
        await asyncio.sleep(0)
        return Completion(request.text.upper())

    async def close(self) -> None:
        return


def episode(text: str) -> Episode[str]:
    call: Call[Any] = Call("agent", "stage", user(text), str)
    (first,) = yield from ask([call])
    return str(first)


@pytest.mark.parametrize("make", [Batch, Streamed])
def test_samples_start_when_they_come(journal: Journal, make: type[Batch]) -> None:
    """The second sample comes only after the first was asked: a driver that waited for all of them would wait for ever."""
    engine = make()

    def source() -> Iterator[tuple[str, Episode[str]] | None]:
        yield None  # nothing is live, and still this is not the end
        yield "a", episode("a")
        for _ in range(500):
            if engine.asked:
                break
            yield None
        assert engine.asked == ["a"]
        yield "b", episode("b")

    outcomes = run(source(), {"agent": engine}, journal)
    assert {name: outcome.value for name, outcome in outcomes.items()} == {"a": "A", "b": "B"}


def test_a_deadline_ends_also_what_never_came(journal: Journal) -> None:
    def source() -> Iterator[tuple[str, Episode[str]] | None]:
        yield from [None] * 20
        yield "late", episode("late")

    outcomes = run(source(), {"agent": Batch()}, journal, limits=Limits(seconds=0.05))
    assert outcomes["late"].failure is not None and outcomes["late"].failure.reason == "run-deadline"


def test_a_source_that_has_nothing_is_not_asked_at_every_reply(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for a sample that can start may mean to look at every picture's state: replies that come meanwhile do not wait for it."""
    monkeypatch.setattr(drivers, "AGAIN", 0.5)  # so long that a slow machine, too, has many replies in it
    engine = Streamed()
    asked = 0

    def source() -> Iterator[tuple[str, Episode[str]] | None]:
        nonlocal asked
        yield "long", long()
        while len(engine.asked) < 300:
            asked += 1
            yield None

    def long() -> Episode[str]:
        for i in range(300):
            yield from ask([Call("agent", "stage", user(f"{i}"), str)])
        return ""

    run(source(), {"agent": engine}, journal)
    assert len(engine.asked) == 300 and asked < 100
