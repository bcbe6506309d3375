"""Agents are data, samples are generators: `Call`, `Episode`, and how an agent turns fields into calls.

An episode yields the calls that it needs now and is resumed with their parsed replies, in order. It does no I/O, so it can be
run by any driver, and by a test without a model:

    def greet() -> Episode[str]:
        (reply,) = yield [agent.call({"name": "Ada"}, parse=str.strip)]
        return reply

A failed call is thrown into the episode as `CallFailed`; an episode that does not catch it ends, and only its sample is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from models.errors import CallFailed
from models.prompts import Field, Prompt
from models.requests import Completion, Request

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """One call that an episode wants made.

    Attributes:
        role: the backend that answers (``agent``, ``validator``, ``judge`` …); roles are bound to models in the config.
        stage: the agent's name, for journals, profiles and reports.
        request: what is sent.
        parse: reply text → value; never raises for a strange reply, "could not tell" is a value.
        round: the search round (0 before the search), for the profile.
        about: what the call is about (a walk, an entity), for logs and oracles; never sent.
        read: completion → value, in place of `parse` where the reply's probabilities count too (`Decoding.probe`).
        last: no other call of the sample waits for this one, so that it may wait for others.
        whole: a reply that was cut at max_tokens is no reply: the driver throws CallFailed("cut") instead of parsing it.
    """

    role: str
    stage: str
    request: Request
    parse: Callable[[str], R]
    round: int = 0
    about: object = None
    whole: bool = False
    read: Callable[[Completion], R] | None = None
    last: bool = False

    def value(self, completion: Completion) -> R:
        """What the episode is resumed with."""
        return self.read(completion) if self.read is not None else self.parse(completion.text)


Episode = Generator[Sequence[Call[Any]], Sequence[Any], T]


@dataclass(frozen=True)
class Agent:
    """A row: a name, the role that answers it, and its prompt."""

    name: str
    role: str
    prompt: Prompt

    def call(
        self,
        fields: Mapping[str, Field],
        parse: Callable[[str], R],
        *,
        round: int = 0,
        choices: Sequence[str] | None = None,
        pattern: str | None = None,
        about: object = None,
        whole: bool = False,
    ) -> Call[R]:
        """The call for these fields. Raises ConfigError when a field that the prompt declares is missing."""
        request = self.prompt.render(fields)
        if choices is not None or pattern is not None:
            request = request.with_decoding(choices=tuple(choices) if choices is not None else None, pattern=pattern)
        return Call(self.role, self.name, request, parse, round, about, whole)


def changed(episode: Episode[T], change: Callable[[Request], Request], roles: Container[str] | None = None) -> Episode[T]:
    """The same episode, every request of its calls (to these roles, where some are named) changed on the way out."""
    try:
        calls = next(episode)
        while True:
            sent = [replace(call, request=change(call.request)) if roles is None or call.role in roles else call for call in calls]
            try:
                replies = yield sent
            except CallFailed as error:
                calls = episode.throw(error)
            else:
                calls = episode.send(replies)
    except StopIteration as end:
        value: T = end.value
        return value


def ask(calls: Sequence[Call[R]]) -> Generator[Sequence[Call[Any]], Sequence[Any], list[R]]:
    """``replies = yield from ask(calls)``, precisely typed. No calls, no round trip."""
    if not calls:
        return []
    return list((yield calls))
