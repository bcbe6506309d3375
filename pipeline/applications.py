"""Applications beside the text search: products, places, the knowledge graph, and those that a user adds.

An application is a small class with a name, a description, examples and `search(intent) → passages`; one that has to ask models
itself (the knowledge graph's retriever does) has `episode(intent)` instead. A user's own stands in a file of twenty lines, named as
``package.module:Class`` or ``path/to/file.py:Class``, or as an entry point of the group ``untamed.applications``; see docs/pipeline.md.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from kg.agents import Agents as GraphAgents
from kg.graph import Graph
from kg.search import Query as GraphQuery
from kg.search import SearchConfig, View, search
from models.agents import Episode
from models.errors import ConfigError
from models.requests import Picture
from pipeline.collection import Searchable
from pipeline.documents import Value
from pipeline.passages import Passage

GROUP = "untamed.applications"


@dataclass(frozen=True, slots=True)
class Intent:
    """What an application is asked: the refined intent, its search query, and what it came from."""

    text: str
    query: str
    question: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()

    def dump(self) -> str:
        """Every field but the pictures, as JSON."""
        fields = {"text": self.text, "query": self.query, "question": self.question, "description": self.description}
        return json.dumps({**fields, "tags": self.tags}, ensure_ascii=False)

    @staticmethod
    def load(text: str, pictures: tuple[Picture, ...] = ()) -> Intent:
        row = json.loads(text)
        return Intent(**{**row, "tags": tuple(row["tags"])}, pictures=pictures)


class Described(Protocol):
    """What the selector asks about."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def examples(self) -> Sequence[str]: ...


@runtime_checkable
class Application(Described, Protocol):
    def search(self, intent: Intent) -> Sequence[Passage]:
        """Passages for the intent, best first; runs in a thread of its own and may take its time."""


@runtime_checkable
class EpisodeApplication(Described, Protocol):
    def episode(self, intent: Intent) -> Episode[Sequence[Passage]]:
        """The same, asking models on the way."""


@dataclass(frozen=True)
class Products:
    """A collection of products. Understands prices ("under 50", "between 20 and 40") and the attributes that its rows have."""

    collection: Searchable
    name: str = "products"
    description: str = "finds products to buy: names, brands, features, prices, sellers"
    examples: tuple[str, ...] = ("Where can I buy this lamp?", "Find red shoes like these under 50")
    limit: int = 10

    @property
    def digest(self) -> str:
        return self.collection.digest

    def search(self, intent: Intent) -> list[Passage]:
        low, high = price_range(f"{intent.question} {intent.query}")
        found = self.collection.search([intent.query], 10 * self.limit)[0]
        kept = [p for p in found if _within(p.attributes.get("price"), low, high)]
        wanted = _words(f"{intent.question} {intent.query}")
        ranked = sorted(enumerate(kept), key=lambda pair: (-_agreeing(pair[1].attributes, wanted), pair[0]))
        return [_told(replace(p, source=self.name)) for _, p in ranked[: self.limit]]


@dataclass(frozen=True)
class Places:
    """A collection of places with `area`, `latitude` and `longitude`. Understands names, areas, and "within N km of NAME"."""

    collection: Searchable
    name: str = "places"
    description: str = "finds places: restaurants, cafes, sights, hotels; addresses, opening hours, what is near"
    examples: tuple[str, ...] = ("Find me a place like this in Gangwon-do", "A quiet cafe near the station")
    limit: int = 10

    @property
    def digest(self) -> str:
        return self.collection.digest

    def search(self, intent: Intent) -> list[Passage]:
        text = f"{intent.question} {intent.query}"
        found = self.collection.search([intent.query], 10 * self.limit)[0]
        around = re.search(r"within\s+(\d+(?:\.\d+)?)\s*(km|m)\s+(?:of|from)\s+(.+?)(?:[?.!,]|$)", text, re.I)
        if around:
            radius = float(around[1]) * (1.0 if around[2].lower() == "km" else 0.001)
            centre = next(iter(self.collection.search([around[3]], 1)[0]), None)
            here = _position(centre) if centre else None
            if here and centre:
                far = [(p, distance_km(here, there)) for p in found if p.key != centre.key and (there := _position(p))]
                near = sorted(((p, d) for p, d in far if d <= radius), key=lambda pair: pair[1])
                return [
                    _told(replace(p, source=self.name, attributes={**p.attributes, "distance_km": round(d, 2)}))
                    for p, d in near[: self.limit]
                ]
        folded = text.casefold()
        inside = [p for p in found if (area := str(p.attributes.get("area", ""))) and area.casefold() in folded]
        named = [p for p in found if p.title and p.title.casefold() in folded]
        rows = {p.key: p for p in [*named, *(inside or found)]}
        return [_told(replace(p, source=self.name)) for p in list(rows.values())[: self.limit]]


@dataclass(frozen=True)
class KnowledgeGraph:
    """The multi-agent retriever of kg/ (MH-MMKG) as an application: each walk that it finds is a passage."""

    graph: Graph
    agents: GraphAgents
    view: View
    config: SearchConfig = field(default_factory=SearchConfig)
    name: str = "knowledge-graph"
    description: str = "follows facts about the entities of a knowledge graph: what belongs to what, what follows what"
    examples: tuple[str, ...] = ("What does it do after this attack?",)

    def episode(self, intent: Intent) -> Episode[Sequence[Passage]]:
        query = GraphQuery(intent.question or intent.text, intent.description, intent.pictures)
        found = yield from search(query, self.graph, self.agents, self.view, self.config)
        out = []
        for number, walk in enumerate(found.walks, start=1):
            text = self.agents.style.memory(self.graph, walk, lambda e: found.captions.get(e.index) or self.view.caption(e))
            names = [self.graph.entity(node).name for node in walk.nodes]
            out.append(Passage(f"{number}:{' > '.join(names)}", names[-1], self.name, " > ".join(names), text))
        return out


def load_graph(folder: Path) -> KnowledgeGraph:
    """The retriever over a data set folder of kg/, seeing the human captions of its clips. Raises DataError."""
    from kg.load import load

    dataset = load(folder)
    roots = ", ".join(dataset.graph.entity(root).name for root in dataset.graph.roots[:12])
    about = f"follows facts of the knowledge graph {dataset.card.name} about {roots}: what belongs to what, what follows what"
    return KnowledgeGraph(dataset.graph, GraphAgents.load(dataset.card), View(lambda entity: entity.caption), description=about)


def price_range(text: str) -> tuple[float | None, float | None]:
    """The lowest and the highest price that a text asks for; None where it names none."""
    number = r"[$€£₩]?\s*(\d[\d,]*(?:\.\d+)?)\s*(만\s*원|천\s*원)?"
    unit = {"만원": 10_000.0, "천원": 1_000.0}

    def value(digits: str, word: str | None) -> float:
        return float(digits.replace(",", "")) * unit.get(re.sub(r"\s", "", word or ""), 1.0)

    both = re.search(rf"between\s+{number}\s+and\s+{number}", text, re.I)
    if both:
        pair = sorted((value(both[1], both[2]), value(both[3], both[4])))
        return pair[0], pair[1]
    high = re.search(rf"(?:under|below|less than|cheaper than|at most|up to)\s+{number}|{number}\s*(?:원)?\s*(?:이하|미만)", text, re.I)
    low = re.search(rf"(?:over|above|more than|at least)\s+{number}|{number}\s*(?:원)?\s*(?:이상|초과)", text, re.I)

    def of(found: re.Match[str] | None) -> float | None:
        if found is None:
            return None
        return value(found[1] or found[3], found[2] if found[1] else found[4])

    return of(low), of(high)


def distance_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Great-circle distance of two (latitude, longitude) in degrees."""
    (p, q), (r, s) = ((math.radians(x) for x in point) for point in (a, b))
    h = math.sin((r - p) / 2) ** 2 + math.cos(p) * math.cos(r) * math.sin((s - q) / 2) ** 2
    return 2 * 6371.0 * math.asin(min(1.0, math.sqrt(h)))


def _position(passage: Passage) -> tuple[float, float] | None:
    latitude, longitude = passage.attributes.get("latitude"), passage.attributes.get("longitude")
    good = isinstance(latitude, (int, float)) and isinstance(longitude, (int, float))
    return (float(latitude), float(longitude)) if good else None  # type: ignore[arg-type]


def _within(price: Value | None, low: float | None, high: float | None) -> bool:
    if low is None and high is None:
        return True
    if isinstance(price, bool) or not isinstance(price, (int, float)):
        return False
    return (low is None or price >= low) and (high is None or price <= high)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def _agreeing(attributes: Mapping[str, Value], wanted: set[str]) -> int:
    return sum(isinstance(value, str) and bool(_words(value)) and _words(value) <= wanted for value in attributes.values())


def _told(passage: Passage) -> Passage:
    """The attributes said in the text, so that the answer can use them."""
    facts = "; ".join(f"{key}: {value}" for key, value in passage.attributes.items())
    return replace(passage, text=f"{passage.text}\n{facts}".strip()) if facts else passage


def load_class(name: str) -> Any:
    """The class of ``module:Class``, ``file.py:Class`` or an entry point's name. Raises ConfigError."""
    for point in importlib.metadata.entry_points(group=GROUP):
        if point.name == name:
            return point.load()
    place, _, attribute = name.rpartition(":")
    if not place:
        raise ConfigError(f"no application {name!r}", remedy=f"give module:Class, file.py:Class, or an entry point of {GROUP}")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            if spec is None or spec.loader is None:
                raise ImportError(place)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        return getattr(module, attribute)
    except (ImportError, OSError, AttributeError, SyntaxError) as error:
        raise ConfigError(f"the application {name!r} cannot be loaded: {error}", remedy="check the path and the class's name") from None


def table(applications: Sequence[object]) -> dict[str, Application | EpisodeApplication]:
    """By name. Raises ConfigError for a class that lacks something, and for two of one name."""
    out: dict[str, Application | EpisodeApplication] = {}
    for application in applications:
        if not isinstance(application, (Application, EpisodeApplication)):
            what = f"{type(application).__name__} is no application"
            raise ConfigError(what, remedy="it needs name, description, examples, and search(intent) or episode(intent)")
        if application.name in out:
            raise ConfigError(f"two applications are called {application.name!r}", remedy="give each a name of its own")
        out[application.name] = application
    return out
