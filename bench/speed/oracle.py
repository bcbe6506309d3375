"""Replies from the gold routes, for measuring what a run costs without a model: which calls are made does not depend on a model then.

Reads what a call is about (`Call.about`), never its prompt, so that it fits every prompt set. Knows no server.
Try: python -m bench speed --rows radix
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kg.dataset import Question
from kg.graph import Graph, Walk
from models.agents import Call, Episode
from models.requests import Completion


@dataclass(frozen=True)
class Oracle:
    """What a perfect model would reply to this question's calls. Right answers, right routes, stops at their ends."""

    question: Question
    graph: Graph

    def __call__(self, call: Call[Any]) -> str:
        return REPLIES[call.stage](self, call)

    def names(self, walk: object) -> tuple[str, ...]:
        assert isinstance(walk, Walk), "the search says which walk a call is about"
        return tuple(self.graph.entity(node).name for node in walk.nodes)

    def onward(self, walk: tuple[str, ...]) -> list[str]:
        """Names that a gold route visits right after `walk`."""
        routes = [route for route in self.question.routes if len(route) > len(walk) and route[: len(walk)] == walk]
        return list(dict.fromkeys(route[len(walk)] for route in routes))

    def expand(self, call: Call[Any]) -> str:
        return "; ".join(self.onward(self.names(call.about))) or "None"

    def verdict(self, call: Call[Any]) -> str:
        walk = self.names(call.about)
        return "Yes" if walk in self.question.routes and not self.onward(walk) else "No"

    def look(self, call: Call[Any]) -> str:
        """Verdict and description in the order that the prompt set asks for; both orders read right."""
        judged, seen = self.verdict(call), f"it moves as '{self.names(call.about)[-1]}' does"
        read: Any = call.parse(f"{judged}; {seen}")
        return f"{judged}; {seen}" if read.value is not None else f"{seen}; {judged}"


REPLIES: Mapping[str, Callable[[Oracle, Call[Any]], str]] = {
    "topic": lambda oracle, call: oracle.question.root,
    "expander": Oracle.expand,
    "validator": Oracle.verdict,
    "validator_online": Oracle.look,
    "perceiver": lambda oracle, call: oracle.question.perception or "nothing happens",
    "captioner": lambda oracle, call: "it moves",
    "summarizer": lambda oracle, call: oracle.question.answer,
    "answer": lambda oracle, call: oracle.question.answer,
}


def play(episode: Episode[Any], reply: Callable[[Call[Any]], str]) -> Iterator[list[tuple[Call[Any], str]]]:
    """Drives one episode with these replies: its round trips, each a list of (call, reply). No driver, no journal."""
    values: Sequence[Any] | None = None
    while True:
        try:
            calls = list(next(episode) if values is None else episode.send(values))
        except StopIteration:
            return
        made = [(call, reply(call)) for call in calls]
        yield made
        values = [call.value(Completion(text)) for call, text in made]
