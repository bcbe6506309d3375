"""Several episodes side by side in one: in each round trip, the calls of all that are still going.

Try: python -m pytest tests/pipeline/test_flow.py -k parallel
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from models.agents import Call, Episode

T = TypeVar("T")


def parallel(episodes: Sequence[Episode[T]]) -> Episode[list[T]]:
    """Their results, in order. A failed call ends all of them with CallFailed."""
    results: dict[int, T] = {}
    waiting: dict[int, Sequence[Call[Any]]] = {}

    def go(i: int, replies: Sequence[Any] | None) -> None:
        try:
            waiting[i] = episodes[i].send(replies)  # type: ignore[arg-type]
        except StopIteration as end:
            results[i] = end.value

    try:
        for i in range(len(episodes)):
            go(i, None)
        while waiting:
            now = sorted(waiting.items())
            waiting.clear()
            replies = list((yield [call for _, calls in now for call in calls]))
            for i, calls in now:
                own, replies = replies[: len(calls)], replies[len(calls) :]
                go(i, own)
    finally:
        for episode in episodes:
            episode.close()
    return [results[i] for i in range(len(episodes))]
