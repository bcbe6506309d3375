"""Training samples for CUE-M's stages: calls of the real flow (pipeline/flow.py) on made-up worlds, with gold replies.

One question's life gives samples of every stage; a task keeps its own. Prompts are pipeline/prompts/compact, as they will be run.

    python -m bench.tiny.cuem_samples 3
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any

from bench.cuem.prefer import Preference
from bench.tiny.cuem_oracle import GAMBLING, SHOWN, Offered, Oracle, offered
from bench.tiny.samples import FRAMES, Clip, Sample
from bench.world import lexicon as lx
from bench.world.asks import NOT_FOUND, Ask, make_ask
from bench.world.creatures import make_world
from bench.world.documents import Library
from bench.world.lexicon import Split
from models.agents import Call
from pipeline.agents import Agents
from pipeline.flow import ROWS, Category, Kit, Query, answer

SHARES: Mapping[str, float] = {"full": 6, "no-refiner": 1, "no-relevance": 1, "enriched": 1, "image-search": 0.5, "mllm": 0.5}
GRAPH = Offered("knowledge-graph", "follows facts about the entities of a knowledge graph: what belongs to what, what follows what")


@lru_cache(1)
def _agents() -> Agents:
    return Agents.load("compact")


def libraries(seed: int, split: Split = "train") -> Iterator[tuple[Random, Library]]:
    """Endless small worlds, each for a dozen questions."""
    rng = Random(f"libraries/{split}/{seed}")
    while True:
        library = Library(make_world(rng.getrandbits(50), rng.choice((2, 3, 4)), split))
        for _ in range(12):
            yield rng, library


def lived(library: Library, rng: Random, about: str = "", row: str = "") -> tuple[Oracle, list[tuple[Call[Any], str]]]:
    """One question through the flow; the oracle and the agents' calls with gold replies."""
    ask = make_ask(library, rng, about)
    applications = offered()
    if rng.random() < 0.3:
        applications[GRAPH.name] = GRAPH
    row = row or rng.choices(list(SHARES), list(SHARES.values()))[0]
    categories: tuple[Category, ...] = (GAMBLING,) if rng.random() < 0.6 else ()
    clicks: dict[str, dict[str, int]] = {}
    for query, document in library.clicks:
        own = clicks.setdefault(document, {})
        own[query] = own.get(query, 0) + 1
    kit = Kit(_agents(), applications, categories, clicks, ROWS[row])
    oracle = Oracle(library, ask, rng)
    oracle.play(answer(Query(ask.text, SHOWN if ask.pictured else ()), kit))
    return oracle, oracle.log


def _clip(oracle: Oracle, rng: Random, frames: int = 1) -> Clip:
    creature = oracle.library.world.creature(oracle.ask.subject.creature)
    action = creature.action(oracle.ask.subject.action)
    return Clip(creature.look, action.motion, action.element, rng.choice(("arena", "wild")), rng.getrandbits(30), frames)


def _described(library: Library, rng: Random) -> Iterator[Sample]:
    """Motions evenly; mostly one picture, now and then three of one attack."""
    motion = rng.choice(list(lx.MOTIONS))
    element = rng.choice(lx.ELEMENTS) if motion in lx.NEEDS_ELEMENT or rng.random() < 0.45 else None
    one = rng.random() < 0.85
    look = rng.choice(library.world.creatures).look
    clip = Clip(look, motion, element, rng.choice(("arena", "wild")), rng.getrandbits(30), 1 if one else 3)
    yield Sample("describe", _agents().describe(SHOWN if one else FRAMES).request, lx.caption(motion, element), clip)


def _stage(task: str, stage: str, about: Callable[[Random], str] = lambda rng: "", row: str = "") -> Callable[..., Iterator[Sample]]:
    def samples(library: Library, rng: Random) -> Iterator[Sample]:
        oracle, log = lived(library, rng, about(rng), row)
        for call, gold in log:
            if call.stage == stage:
                clip = _clip(oracle, rng) if call.request.pictures else None
                yield Sample(task, call.request, gold, clip)

    return samples


def _safe_or_not(rng: Random) -> str:
    return "harm" if rng.random() < 0.5 else rng.choice(("", "fight", "fight", "bet"))


def _needing(rng: Random) -> str:
    return rng.choice(("buy", "cost", "weapon", "camp", "bet")) if rng.random() < 0.6 else ""


def _preferred(library: Library, rng: Random) -> Iterator[Sample]:
    """Which of two answers agrees with the gold one: a good one, a wrong one, none at all, or both alike."""
    ask = make_ask(library, rng)
    gold = ask.answer(library)
    if gold == NOT_FOUND:
        return
    other = make_ask(library, rng)
    wrong = rng.choice((NOT_FOUND, NOT_FOUND, _misled(library, rng, ask), other.answer(library)))
    pair = [gold, wrong] if rng.random() < 0.75 else rng.choice(([gold, gold], [wrong, wrong]))
    rng.shuffle(pair)
    right = [text == gold for text in pair]
    verdict = "equal" if right[0] == right[1] else "first" if right[0] else "second"
    yield Sample("prefer", Preference.load("compact").call(ask.text, gold, pair[0], pair[1]).request, verdict)


def _misled(library: Library, rng: Random, ask: Ask) -> str:
    """The answer for another creature and attack."""
    for _ in range(5):
        another = make_ask(library, rng, ask.about)
        text = replace(ask, subject=another.subject).answer(library)
        if text != ask.answer(library):
            return text
    return NOT_FOUND


TASKS: Mapping[str, Callable[[Library, Random], Iterator[Sample]]] = {
    "describe": _described,
    "intent": _stage("intent", "refine"),
    "queries": _stage("queries", "queries"),
    "need": _stage("need", "select", _needing),
    "safe": _stage("safe", "detect", _safe_or_not),
    "respond": _stage("respond", "answer"),
    "prefer": _preferred,
}


def stream(seed: int, weights: Mapping[str, float], split: Split = "train") -> Iterator[Sample]:
    """Endless samples; a task is drawn by its weight for every question."""
    tasks, shares = list(weights), list(weights.values())
    for rng, library in libraries(seed, split):
        (task,) = rng.choices(tasks, shares)
        yield from TASKS[task](library, rng)


if __name__ == "__main__":
    samples = stream(int(sys.argv[1]) if len(sys.argv) > 1 else 0, dict.fromkeys(TASKS, 1.0))
    for sample in (next(samples) for _ in range(60)):
        print(f"{sample.task}: {sample.request.text}\n  -> {sample.reply}")
