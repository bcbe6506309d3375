"""A recorded run's calls again: the same calls in the same order with the same dependencies, nothing decided anew.

Each sample becomes an episode that yields the calls of its recorded steps and ignores the replies, so that two servers, models or
schedulers are compared on the same work. Knows the journal, no model.

Try: python -m models profile --replay RUN --url http://127.0.0.1:8000/v1 --key KEY
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from models.agents import Call, Episode
from models.errors import CallFailed, RunError
from models.journal import Journal, Record, restore
from models.requests import Message, Request


@dataclass(frozen=True)
class Recorded:
    """A run's calls by sample and step. `steps` holds, for each sample, its round trips, each a list of calls; `lost` counts calls
    that the run made but never got a reply to, which cannot be sent again."""

    steps: dict[str, list[list[Call[str]]]]
    lost: int

    @property
    def calls(self) -> int:
        return sum(len(step) for steps in self.steps.values() for step in steps)


def recorded(journal: Journal, limit: int | None = None) -> Recorded:
    """What the journal holds, of the first `limit` samples. Raises RunError when it holds no calls."""
    rows: dict[str, Record] = {record.key: record for record in journal.calls()}
    steps: dict[str, list[list[Call[str]]]] = {}
    lost = 0
    for sample, of_sample in groupby(journal.uses(), key=lambda use: use.sample):
        if limit is not None and len(steps) >= limit:
            break
        trips: list[list[Call[str]]] = []
        for _, of_step in groupby(of_sample, key=lambda use: use.step):
            trip = []
            for use in of_step:
                record, described = rows.get(use.key), journal.request(use.key)
                if record is None or described is None:
                    lost += 1
                    continue
                trip.append(Call(record.role, record.stage, restore(described), _same, record.round))
            if trip:
                trips.append(trip)
        if trips:
            trips[-1] = [replace(call, last=True) for call in trips[-1]]
            steps[sample] = trips
    if not steps:
        raise RunError("the journal holds no calls", where=str(journal.path), remedy="give the folder of a run that asked a model")
    return Recorded(steps, lost)


def episodes(run: Recorded, salt: str = "") -> Iterator[tuple[str, Episode[int]]]:
    """(sample, episode) of each sample; an episode's value is the number of its failed calls. `salt`: see `salted`."""
    for sample, steps in run.steps.items():
        yield sample, _episode(steps, salt)


def _episode(steps: list[list[Call[str]]], salt: str) -> Episode[int]:
    failed = 0
    for step in steps:
        calls: list[Call[Any]] = [replace(call, request=salted(call.request, salt)) for call in step] if salt else list(step)
        try:
            yield calls
        except CallFailed:
            failed += 1
    return failed


def salted(request: Request, salt: str) -> Request:
    """The request with `salt` as its very first words: a prefix that no earlier run shared, so that a warm cache is of no use to it.

    Calls with the same salt still share their prefixes with one another.
    """
    first = request.messages[0]
    head = Message(first.role, (f"[{salt}] ", *first.parts))
    if first.parts and isinstance(first.parts[0], str):
        head = Message(first.role, (f"[{salt}] {first.parts[0]}", *first.parts[1:]))
    return replace(request, messages=(head, *request.messages[1:]))


def _same(text: str) -> str:
    return text
