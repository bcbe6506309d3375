"""Gold behaviour of every agent on the sample world: what a perfect model would reply to a call of a search episode.

The episodes are the real ones (kg/search.py), so that a model is trained on exactly the prompts that it will be run on.
Knows no pixels and no tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from bench.world import lexicon as lx
from bench.world.creatures import Action, World
from bench.world.graph import WorldGraph
from bench.world.questions import WorldQuestion
from kg.graph import Entity, Walk
from models.agents import Call, Episode


@dataclass(frozen=True)
class Oracle:
    """Knows one question's gold routes as entity numbers, and which attack its clip shows."""

    world: World
    graph: WorldGraph
    question: WorldQuestion
    routes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, world: World, graph: WorldGraph, question: WorldQuestion) -> Oracle:
        return cls(world, graph, question, tuple(_resolve(graph, route) for route in question.question.routes))

    @property
    def shown(self) -> Action | None:
        """The attack in the question's clip."""
        name = self.question.action
        return None if name is None else self.world.creature(self.question.creature).action(name)

    def action(self, entity: Entity) -> Action | None:
        """The attack that an entity is, None for every other kind."""
        return self.world.creature(entity.owner).action(entity.name) if entity.kind == lx.ACTION else None

    def expand(self, walk: Walk) -> list[int]:
        """Neighbours on a gold route; where an attack has to be found by its looks, every attack that is listed there."""
        depth = len(walk.nodes)
        wanted = dict.fromkeys(route[depth] for route in self.routes if len(route) > depth and route[:depth] == walk.nodes)
        edges = self.graph.neighbours(walk.end)
        relations = {edge.relation for edge in edges if edge.target in wanted}
        return list(
            dict.fromkeys(
                edge.target for edge in edges if edge.target in wanted or (lx.HAS_ACTION in relations and edge.relation == lx.HAS_ACTION)
            )
        )

    def sufficient(self, walk: Walk) -> bool:
        """A walk suffices when it is a gold route."""
        return walk.nodes in self.routes

    def summary(self, walks: Sequence[Walk]) -> str:
        """The answer as far as these walks hold it, in their order; None when they do not."""
        gold = [walk for walk in walks if self.sufficient(walk)]
        if not gold:
            return "None"
        if self.question.question.task == 0:
            return self.question.question.answer
        return "; ".join(dict.fromkeys(self.graph.entity(walk.end).name for walk in gold))

    def reply(self, call: Call[object]) -> str:
        """The gold reply to a call of the search (topic, expander, validator)."""
        if call.stage == "topic":
            return self.question.creature
        walk = call.about
        assert isinstance(walk, Walk)
        if call.stage == "expander":
            return "; ".join(self.graph.entity(node).name for node in self.expand(walk)) or "None"
        verdict = "Yes" if self.sufficient(walk) else "No"
        if call.stage == "validator":
            return verdict
        action = self.action(self.graph.entity(walk.end))
        assert action is not None
        return f"{lx.caption(action.motion, action.element)}; {verdict}"


def play(episode: Episode[object], reply: Callable[[Call[object]], str]) -> list[tuple[Call[object], str]]:
    """Runs an episode against a reply function; returns every call with the reply that it got."""
    log: list[tuple[Call[object], str]] = []
    try:
        calls = next(episode)
        while True:
            texts = [reply(call) for call in calls]
            log += zip(calls, texts, strict=True)
            calls = episode.send([call.parse(text) for call, text in zip(calls, texts, strict=True)])
    except StopIteration:
        return log


def stray(rng: Random, rate: float, oracle: Oracle, call: Call[object]) -> str:
    """The gold reply, sometimes spoiled as a weak model would, so that training also visits walks beside the gold routes."""
    text = oracle.reply(call)
    if rng.random() > rate or call.stage != "expander":
        return text
    walk = call.about
    assert isinstance(walk, Walk)
    extra = oracle.graph.entity(rng.choice(oracle.graph.neighbours(walk.end)).target).name
    return extra if text == "None" else f"{text}; {extra}"


def _resolve(graph: WorldGraph, route: Sequence[str]) -> tuple[int, ...]:
    nodes: list[int] = []
    owner = ""
    for name in route:
        node = graph.find(name, owner)
        assert node is not None, (route, name)
        if graph.entity(node).kind == lx.ROOT:
            owner = name
        nodes.append(node)
    return tuple(nodes)
