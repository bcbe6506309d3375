"""Training samples: calls of the real agents' episodes on train worlds, with gold replies. Endless, seeded, without pixels.

A `Sample` names the clip that its pictures show; whoever trains draws it. Knows no tokens.
Try: python -m bench.tiny.samples 3
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.tiny.oracle import Oracle, play, stray
from bench.world import lexicon as lx
from bench.world.creatures import Action, Look, World, make_world
from bench.world.graph import WorldGraph, card, world_graph
from bench.world.lexicon import Split
from bench.world.questions import WorldQuestion, make_questions
from kg.agents import Agents
from kg.graph import Entity, Walk
from kg.routes import walk_along
from kg.search import Query, SearchConfig, View, search
from models.agents import Call
from models.requests import Picture, Request

FRAMES = (Picture(Path("frame"), "0"), Picture(Path("frame"), "1"), Picture(Path("frame"), "2"))  # stand for drawn frames


@dataclass(frozen=True, slots=True)
class Clip:
    """What is to be drawn: `family` "arena" (the graph's clips) or "wild" (the questions'); `frames` pictures of it, 0: as it comes."""

    look: Look
    motion: str
    element: str | None
    family: str
    scene: int
    frames: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One call and its gold reply. `request` holds a picture part where the frames of `clip` belong."""

    task: str
    request: Request
    reply: str
    clip: Clip | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A question in its world, with what agents need to speak of it."""

    rng: Random
    agents: Agents
    world: World
    graph: WorldGraph
    question: WorldQuestion
    oracle: Oracle

    @property
    def text(self) -> str:
        return self.question.question.asked("creature")

    @property
    def caption(self) -> str:
        """The scene as text: the perceiver's words, or a human's; "" for pure text."""
        shown = self.oracle.shown
        if shown is None:
            return ""
        return lx.caption(shown.motion, shown.element) if self.rng.random() < 0.5 else self.question.question.perception

    def clip(self, action: Action, owner: str, family: str) -> Clip:
        return Clip(self.world.creature(owner).look, action.motion, action.element, family, self.rng.getrandbits(30))


def cases(seed: int, split: Split = "train", creatures: tuple[int, ...] = (2, 3, 4)) -> Iterator[Case]:
    """Endless questions, twelve of a world; the same seed gives the same ones."""
    rng = Random(f"cases/{split}/{seed}")
    agents = Agents.load(card(), "compact")
    while True:
        number = rng.getrandbits(50)
        world = make_world(number, rng.choice(creatures), split)
        graph = world_graph(world)
        for question in make_questions(world, number, (1, 3, 3, 3, 3, 2)):
            yield Case(rng, agents, world, graph, question, Oracle.of(world, graph, question))


# ---- the search's calls ----------------------------------------------------------------------------------------------
def searched(case: Case, online: bool) -> Iterator[Sample]:
    """A few calls of one search: verdicts half Yes and half No, lists of names oftener than None."""
    rng, oracle = case.rng, case.oracle
    canonical = rng.random() < 0.5  # captions of a model (offline) or of a human

    def caption(entity: Entity) -> str:
        action = oracle.action(entity)
        return lx.caption(action.motion, action.element) if canonical and action is not None else entity.caption

    def frames(entity: Entity) -> tuple[Picture, ...]:
        return FRAMES if online and entity.kind == lx.ACTION else ()

    view = View((lambda entity: "") if online else caption, frames)
    query = Query(case.text, case.caption, FRAMES if case.caption else ())
    episode = search(query, case.graph, case.agents, view, SearchConfig(max_paths=0))
    log = play(episode, lambda call: stray(rng, 0.15, oracle, call))
    kept: dict[str, list[tuple[Call[object], str]]] = {}
    for call, _ in log:
        gold = oracle.reply(call)
        head = gold.rsplit("; ", 1)[-1] if call.stage.startswith("validator") else ("None" if gold == "None" else "names")
        kept.setdefault(f"{call.stage}/{head}", []).append((call, gold))
    for group, found in kept.items():
        if group.startswith("topic"):
            continue
        count = {"names": 3, "None": 2, "Yes": 3, "No": 5}[group.split("/")[1]]
        hard = group.endswith(("/No", "/None"))
        picked = _hard_first(case, found, count) if hard else rng.sample(found, min(count, len(found)))
        for call, gold in picked:
            yield Sample(call.stage, call.request, gold, _entity_clip(case, call) if call.stage == "validator_online" else None)


def _hard_first(case: Case, found: list[tuple[Call[object], str]], count: int) -> list[tuple[Call[object], str]]:
    """Of the wrong walks one with the shown motion, two with the shown element, then any: a search meets a dozen for every right one."""
    shown = case.oracle.shown

    def shares(call: Call[object], what: str) -> bool:
        walk = call.about
        assert isinstance(walk, Walk)
        actions = [case.oracle.action(case.graph.entity(node)) for node in walk.nodes]
        return shown is not None and any(action is not None and getattr(action, what) == getattr(shown, what) for action in actions)

    left = case.rng.sample(found, len(found))
    picked: list[tuple[Call[object], str]] = []
    for what in ("element", "motion", "element"):
        near = next((pair for pair in left if shares(pair[0], what)), None)
        if near is not None:
            left.remove(near)
            picked.append(near)
    return [*picked, *left][:count]


def _entity_clip(case: Case, call: Call[object]) -> Clip:
    walk = call.about
    assert isinstance(walk, Walk)
    entity = case.graph.entity(walk.end)
    action = case.oracle.action(entity)
    assert action is not None
    return case.clip(action, entity.owner, "arena")


# ---- the other agents' calls -----------------------------------------------------------------------------------------
def perceived(case: Case) -> Iterator[Sample]:
    """Perceiver and captioner: frames to the canonical sentence. Motions evenly, not as often as questions show them."""
    rng = case.rng
    motion = rng.choice(list(lx.MOTIONS))
    element = rng.choice(lx.ELEMENTS) if motion in lx.NEEDS_ELEMENT or rng.random() < 0.45 else None
    look = rng.choice(case.world.creatures).look
    clip = Clip(look, motion, element, rng.choice(("arena", "wild")), rng.getrandbits(30))
    yield Sample("perceiver", case.agents.perceive(case.text, FRAMES).request, lx.caption(motion, element), clip)


def topics(case: Case) -> Iterator[Sample]:
    """Topic selection among all roots of a world of any size."""
    names = [creature.name for creature in case.world.creatures]
    size = case.rng.choice((4, 8, 16, 24))
    while len(names) < size:
        name = case.rng.choice(lx.FIRST) + case.rng.choice(lx.NEXT) + (case.rng.choice(lx.NEXT) if case.rng.random() < 0.3 else "")
        if name not in names and lx.split_of(name) == case.world.split:
            names.append(name)
    case.rng.shuffle(names)
    yield Sample("topic", case.agents.select_topic(case.text, names, ()).request, case.question.creature)


def summarized(case: Case) -> Iterator[Sample]:
    """The summarizer: gold walks among others that a search may have brought."""
    rng, oracle, graph = case.rng, case.oracle, case.graph
    gold = [walk_along(graph, route) for route in oracle.routes]
    walks = list(gold)
    others = [
        walk + edge for walk in _approaches(gold) for edge in graph.neighbours(walk.end) if (*walk.nodes, edge.target) not in oracle.routes
    ]
    likely = [walk for walk in others if graph.entity(walk.end).kind == graph.entity(gold[0].end).kind]  # what a search brings
    walks += rng.sample(others, min(len(others), rng.choice((0, 0, 1, 2))))
    walks += [walk for walk in rng.sample(likely, min(len(likely), rng.choice((0, 1, 2, 3)))) if walk not in walks]
    rng.shuffle(walks)
    walks = walks[:5]

    def caption(entity: Entity) -> str:
        action = oracle.action(entity)
        return lx.caption(action.motion, action.element) if action is not None and case.question.scene % 2 else entity.caption

    knowledge = case.agents.style.knowledge(graph, walks, caption)
    request = case.agents.summarize(case.text, case.caption, knowledge, ()).request
    yield Sample("summarizer", request, oracle.summary(walks))


def _approaches(gold: list[Walk]) -> list[Walk]:
    """Where a search stood before the last step of a gold walk, and before that."""
    return [
        Walk(walk.nodes[:depth], walk.edges[: depth - 1]) for walk in gold for depth in range(max(1, len(walk.nodes) - 2), len(walk.nodes))
    ]


def answered(case: Case) -> Iterator[Sample]:
    """Vanilla and vanilla+: plausible guesses, for names cannot be known."""
    shown = case.oracle.shown
    frames = FRAMES if shown is not None and case.rng.random() < 0.6 else ()
    request = case.agents.answer(case.text, "" if frames else case.caption, frames).request
    clip = case.clip(shown, case.question.creature, "wild") if frames and shown is not None else None
    yield Sample("answer", request, case.question.question.answer, clip)


def judged(case: Case) -> Iterator[Sample]:
    """The answer judge: the same in another form, or a near miss."""
    rng, gold = case.rng, case.question.question.answer
    same = rng.random() < 0.5
    items = gold.split("; ")
    if same:
        rng.shuffle(items)
    else:
        items = _spoiled(rng, items)
    text = "; ".join(items)
    form = rng.random()
    if form < 0.15:
        text = f"{case.question.creature} {text}"
    elif form < 0.25:
        text = f"The answer is {text}."
    request = case.agents.judge_answer(case.text, gold, text).request
    yield Sample("judge", request, "Yes" if same else "No")


def _spoiled(rng: Random, items: list[str]) -> list[str]:
    items = list(items)
    place, draw = rng.randrange(len(items)), rng.random()
    if len(items) > 1 and draw < 0.3:
        del items[place]
        return items
    if draw < 0.1:
        return ["None"]
    if draw < 0.2:
        return [*items, f"{rng.choice(lx.ADJECTIVES)} {rng.choice(lx.NOUNS)}"]
    words = items[place].split()
    pools = [pool for pool in (lx.ADJECTIVES, lx.NOUNS, lx.TITLES, lx.HABITATS, lx.SPECIES) if words[-1] in pool]
    if len(words) == 2 and draw < 0.5 and words[0] in lx.ADJECTIVES:
        words[0] = rng.choice([word for word in lx.ADJECTIVES if word != words[0]])
    elif pools and draw < 0.75:
        words[-1] = rng.choice([word for word in pools[0] if word != words[-1]])
    else:
        others = (*lx.EFFECTS, *lx.ELEMENT_NAMES, *lx.PROPS, *lx.PHASES, f"{rng.choice(lx.ADJECTIVES)} {rng.choice(lx.NOUNS)}")
        words = [rng.choice([other for other in others if other != items[place]])]
    items[place] = " ".join(words)
    return items


def compared(case: Case) -> Iterator[Sample]:
    """The caption judge: two wordings of one (motion, element), or of two."""
    rng = case.rng
    motion = rng.choice(list(lx.MOTIONS))
    element = rng.choice(lx.ELEMENTS) if motion in lx.NEEDS_ELEMENT or rng.random() < 0.5 else None
    other, another = motion, element
    same = rng.random() < 0.5
    while not same and (other, another) == (motion, element):
        if rng.random() < 0.5:
            other = rng.choice(list(lx.MOTIONS))
        another = rng.choice((None, *lx.ELEMENTS))
        if other in lx.NEEDS_ELEMENT and another is None:
            another = rng.choice(lx.ELEMENTS)
    texts = lx.caption(motion, element, rng), lx.caption(other, another, rng if rng.random() < 0.5 else None)
    yield Sample("caption_judge", case.agents.judge_caption(*texts).request, "Yes" if same else "No")


TASKS: Mapping[str, Callable[[Case], Iterator[Sample]]] = {
    "search": lambda case: searched(case, online=False),
    "online": lambda case: searched(case, online=True),
    "perceive": perceived,
    "topic": topics,
    "summarize": summarized,
    "answer": answered,
    "judge": judged,
    "compare": compared,
}


def stream(seed: int, weights: Mapping[str, float], split: Split = "train") -> Iterator[Sample]:
    """Endless samples; a task is drawn by its weight for every question."""
    tasks, shares = list(weights), list(weights.values())
    for case in cases(seed, split):
        (task,) = case.rng.choices(tasks, shares)
        yield from TASKS[task](case)


if __name__ == "__main__":
    samples = stream(int(sys.argv[1]) if len(sys.argv) > 1 else 0, dict.fromkeys(TASKS, 1.0))
    for sample in (next(samples) for _ in range(40)):
        print(f"{sample.task}: {sample.request.text}\n  -> {sample.reply}")
