"""One sample's whole life, as if it were alone: perceive, search, answer (MH-MMKG, Figure 3).

An episode: asks and is answered, does no I/O, shares nothing that it writes. Knows no setting by name; a row of
bench/settings.py and the two tables turn into behaviour. Try: python -m pytest tests/bench/test_episode.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bench.gold import Gold
from bench.settings import SHOWS, Album, Knowledge, Scene, Setting
from kg.agents import Agents
from kg.graph import Entity, Graph, Walk
from kg.search import Query, SearchConfig, SearchResult, View, search
from models.agents import Call, Episode, ask, changed
from models.requests import Picture


@dataclass(frozen=True, slots=True)
class Sample:
    """One question as one row of a run asks it: the wording, what there is to see, and the gold subgraph."""

    question: str
    scene: Scene
    gold: Gold


@dataclass(frozen=True, slots=True)
class World:
    """What all samples of a row share and none writes to."""

    graph: Graph
    agents: Agents
    album: Album
    config: SearchConfig


@dataclass(frozen=True, slots=True)
class Prediction:
    """ŷ, and Î where the row searched (`result`). `captions`: entity number → what a model wrote about its clip."""

    answer: str
    perceived: str
    result: SearchResult | None = None
    captions: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """Walks to answer from (None: the row gives no knowledge), the view under which they are told, and the search that found them."""

    walks: tuple[Walk, ...] | None
    view: View | None = None
    result: SearchResult | None = None


def life(sample: Sample, setting: Setting, world: World) -> Episode[Prediction]:
    """Perceive, search, answer. A failed call ends it with CallFailed: this sample alone is lost."""
    scene = sample.scene
    if setting.perceives and scene.frames:
        (perceived,) = yield from ask([world.agents.perceive(sample.question, scene.frames)])
        scene = replace(scene, perceived=perceived)
    found = yield from KNOWLEDGE[setting.knowledge](sample, scene, setting, world)
    (answer,) = yield from ask([replace(_answer(sample.question, scene, found, setting, world), last=True)])
    return Prediction(answer, scene.perceived, found.result, _captions(found, setting, world))


def _captions(found: Found, setting: Setting, world: World) -> dict[int, str]:
    """What a model wrote about the entities that this search judged: online, or offline and looked up (Table 4 measures both)."""
    if found.result is None or found.view is None or setting.node_sees is None:
        return {}
    captions = dict(found.result.captions)
    if SHOWS[setting.node_sees].offline:
        judged = {step.entity for step in found.result.steps if step.chosen is None}
        captions |= {i: text for i in sorted(judged) if (text := found.view.caption(world.graph.entity(i)))}
    return captions


def decoded(episode: Episode[Prediction], temperature: float, seed: int) -> Episode[Prediction]:
    """The same episode, its calls sampled at this temperature with this seed; at 0 they stay greedy and as they are."""
    if not temperature:
        return episode
    return changed(episode, lambda request: request.with_decoding(temperature=temperature, seed=seed))


def _answer(question: str, scene: Scene, found: Found, setting: Setting, world: World) -> Call[str]:
    text, frames = SHOWS[setting.answer_sees].query(scene)
    if found.walks is None or found.view is None:
        return world.agents.answer(question, text, frames)
    made = found.result.captions if found.result else {}
    told = world.agents.style.knowledge(world.graph, found.walks, _told(found.view, made))
    return world.agents.summarize(question, text, told, frames)


def _told(view: View, made: Mapping[int, str]) -> Callable[[Entity], str]:
    """Captions made in this question's own search come first."""
    return lambda entity: made.get(entity.index) or view.caption(entity)


def _none(sample: Sample, scene: Scene, setting: Setting, world: World) -> Episode[Found]:
    yield from ()
    return Found(None)


def _gold(sample: Sample, scene: Scene, setting: Setting, world: World) -> Episode[Found]:
    yield from ()
    return Found(sample.gold.walks, _view(setting, world))


def _search(sample: Sample, scene: Scene, setting: Setting, world: World) -> Episode[Found]:
    view = _view(setting, world)
    text, _ = SHOWS[setting.search_sees].query(scene) if setting.search_sees else ("", ())
    frames: tuple[Picture, ...] = SHOWS[setting.topic_sees].query(scene)[1] if setting.topic_sees else ()
    result = yield from search(Query(sample.question, text, frames), world.graph, world.agents, view, world.config)
    return Found(result.walks, view, result)


def _view(setting: Setting, world: World) -> View:
    assert setting.node_sees is not None, "a row that uses the graph says what its nodes show"
    return SHOWS[setting.node_sees].node(world.album)


KNOWLEDGE: Mapping[Knowledge, Callable[[Sample, Scene, Setting, World], Episode[Found]]] = {
    "none": _none,
    "gold": _gold,
    "search": _search,
}
