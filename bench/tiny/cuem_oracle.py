"""Gold behaviour of CUE-M's agents on the sample world, and its tools without an index: what a perfect model and a fair search would give.

The oracle reads what the model reads (the documents in the prompt), so every reply can be learnt from its prompt; where a picture's
search failed, its reply is the best guess. The flow is the real one (pipeline/flow.py). Knows no pixels and no tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.world import lexicon as lx
from bench.world.asks import Ask, Fact, Subject, fact_of
from bench.world.documents import ARTICLES, PLACES, PRODUCTS, Library, WorldDocument, words_in
from models.agents import Call, Episode
from models.errors import CallFailed
from models.requests import Picture
from pipeline.applications import Intent, Places, Products
from pipeline.flow import Answer, Category
from pipeline.passages import Passage

SHOWN: Final = (Picture(Path("picture"), "0"),)  # stands for a drawn picture
GAMBLING: Final = Category("gambling", "bets on creatures for money", "Bets are not answered here.", ("How much can I bet on it?",))
SEARCH: Final = "Search "
_GRAPH_PARTS: Final = frozenset({"stop", "effect", "follow"})
_FIND: Final = 0.75  # how often the similar picture's document is among the first three


@dataclass(frozen=True)
class Offered:
    """An application as far as the selector and the flow see it; its passages come from `Oracle`."""

    name: str
    description: str
    examples: tuple[str, ...] = ()

    def search(self, intent: Intent) -> Sequence[Passage]:
        raise CallFailed("offered", "the oracle answers for this application")


def offered() -> dict[str, Offered]:
    """The two of the sample world, worded as pipeline/applications.py words them."""
    return {made.name: Offered(made.name, made.description, made.examples) for made in (Products, Places)}


@dataclass
class Oracle:
    """Answers one question's calls. `refined`: the subject that the refiner named, None without a refiner."""

    library: Library
    ask: Ask
    rng: Random
    refined: Subject | None = None
    log: list[tuple[Call[Any], str]] = field(default_factory=list)

    def play(self, episode: Episode[Answer]) -> Answer:
        """Runs the flow to its end; `log` keeps the agents' calls with their gold replies."""
        try:
            calls = next(episode)
            while True:
                calls = episode.send([self._value(call) for call in calls])
        except StopIteration as end:
            answer: Answer = end.value
            return answer

    def _value(self, call: Call[Any]) -> Any:
        tool = _TOOLS.get(call.stage)
        if tool is not None:
            return tool(self, call)
        text = self.reply(call)
        self.log.append((call, text))
        return call.parse(text)

    # ---- agents ------------------------------------------------------------------------------------------------------
    def reply(self, call: Call[Any]) -> str:
        """The gold reply to an agent's call."""
        text = call.request.text
        if call.stage == "describe":
            return self.caption
        if call.stage == "refine":
            self.refined = self.resolve(described(text), self.documents_of(text))
            return SEARCH + " and ".join(self.ask.clauses(self.refined))
        if call.stage == "queries":
            return self._queries(self.documents_of(text))
        if call.stage == "select":
            return "true" if self.needs(str(call.about)) else "false"
        if call.stage == "detect":
            return "true" if self.ask.kind.safe else "false"
        return self._answer(described(text), self.passages_of(text))

    @property
    def caption(self) -> str:
        """What a perceiver says of the picture."""
        creature = self.library.world.creature(self.ask.subject.creature)
        action = creature.action(self.ask.subject.action)
        return lx.caption(action.motion, action.element)

    def needs(self, name: str) -> bool:
        """Whether an application, or a category, is the right one."""
        if name == GAMBLING.name:
            return self.ask.kind.category
        if name == "knowledge-graph":
            return any(part in _GRAPH_PARTS for part in self.ask.parts)
        return name == self.ask.kind.application

    def resolve(self, description: str, documents: Sequence[WorldDocument]) -> Subject:
        """What the question is about: what it names, or what the first document with the described attack tells, or just the first."""
        if self.ask.named:
            return self.ask.subject
        attacks = [d for d in documents if d.action]
        seen = lx.caption_class(description)
        fitting = [d for d in attacks if seen is not None and self._class(d) == seen]
        best = fitting or attacks or [d for d in documents if d.creature]
        if not best:
            return Subject()
        found = best[0]
        action = self.library.world.creature(found.creature).action(found.action) if found.action else None
        return Subject(found.creature, found.action, action.stopped_by if action is not None else "")

    def _class(self, document: WorldDocument) -> tuple[str, str | None]:
        action = self.library.world.creature(document.creature).action(document.action)
        return action.motion, action.element

    def _facts(self, subject: Subject) -> list[Fact | None]:
        return [fact_of(self.library, part, subject) for part in self.ask.parts]

    def _queries(self, documents: Sequence[WorldDocument]) -> str:
        kind = self.ask.kind
        if kind.application or not kind.safe or self.ask.about == "look":
            return "none"
        subject = self.refined if self.refined is not None else self.resolve("", documents)
        there = {d.id for d in documents}
        wanted = []
        for clause, fact in zip(self.ask.clauses(subject), self._facts(subject), strict=True):
            known = fact is not None and bool(there & set(fact.documents))
            told = fact is None and bool(subject.action) and f"{subject.creature}/{subject.action}" in there and self.ask.about != "unknown"
            if not known and not told:
                wanted.append(clause)
        return "; ".join(wanted) or "none"

    def _answer(self, description: str, given: Sequence[WorldDocument]) -> str:
        if self.ask.about == "look" and self.ask.pictured:
            return description or self.caption
        subject = self.refined if self.refined is not None else self.resolve(description, given)
        said = []
        for fact in self._facts(subject):
            number = next((n for n, d in enumerate(given, start=1) if fact is not None and d.id in fact.documents), None)
            if fact is not None and number is not None:
                said.append(f"{fact.sentence} [{number}].")
        return " ".join(said) or "not found"

    def documents_of(self, text: str) -> list[WorldDocument]:
        """The documents whose extracts stand in a prompt, in its order."""
        inside = text.rpartition("found : ")[2].strip("« »")
        titles = [row.partition(" : ")[0] for row in inside.split(" ; ")]
        return [self.library.by_title[title] for title in titles if title in self.library.by_title]

    def passages_of(self, text: str) -> list[WorldDocument]:
        """The numbered passages of an answer's prompt."""
        titles = re.findall(r"\d+ « (.*?)\n", text.rpartition("sources : ")[2])
        return [self.library.by_title[title] for title in titles]

    # ---- tools -------------------------------------------------------------------------------------------------------
    def search(self, query: str, k: int, collection: str = ARTICLES) -> list[Passage]:
        """Documents by shared words, with some disorder: what bags of words and vectors do together."""
        words = words_in(query)
        scored = []
        for document in self.library.documents:
            if document.collection == collection:
                shared = len(words & self.library.words[document.id])
                scored.append((shared + self.rng.random() * 1.5, document))
        scored.sort(key=lambda pair: -pair[0])
        return [passage(document, score) for score, document in scored[:k]]

    def similar(self, k: int) -> list[Passage]:
        """Documents with similar pictures: the shown attack's own mostly first, then others of the same or another creature."""
        pictured = [d for d in self.library.documents if d.creature]
        own = f"{self.ask.subject.creature}/{self.ask.subject.action}"
        others = [d for d in pictured if d.id != own]
        kin = [d for d in others if d.creature == self.ask.subject.creature]
        row = [self.rng.choice(kin if self.rng.random() < 0.6 else others) for _ in range(k + 2)]
        if self.rng.random() < _FIND:
            row.insert(self.rng.choice((0, 0, 0, 0, 1, 2)), self.library.by_id[own])
        distinct = list({d.id: d for d in row}.values())[:k]
        return [passage(d, 0.95 - 0.03 * n) for n, d in enumerate(distinct)]

    def relevance(self, query: str, texts: Sequence[str]) -> list[float]:
        """P(relevant): high for a document that answers, else by shared words."""
        subject = self.refined if self.refined is not None else self.ask.subject
        gold = {id_ for fact in self._facts(subject) if fact is not None for id_ in fact.documents[:1]}
        gold_titles = tuple(self.library.by_id[id_].title for id_ in gold)
        words = words_in(query)
        out = []
        for text in texts:
            share = len(words & words_in(text)) / (1 + len(words))
            right = text.startswith(tuple(f"{title}. " for title in gold_titles)) if gold_titles else False
            out.append(min(1.0, 0.5 * share + 0.15 * self.rng.random() + (0.5 if right and self.rng.random() < 0.9 else 0.0)))
        return out


def _tool_search(oracle: Oracle, call: Call[Any]) -> Any:
    queries = [part for part in call.request.messages[-1].parts if isinstance(part, str)]
    return tuple(tuple(oracle.search(query, 10)) for query in queries)


def _tool_relevance(oracle: Oracle, call: Call[Any]) -> Any:
    query, *texts = (part for part in call.request.messages[-1].parts if isinstance(part, str))
    return tuple(oracle.relevance(query, texts))


def _tool_application(oracle: Oracle, call: Call[Any]) -> Any:
    intent = Intent.load(next(part for part in call.request.messages[-1].parts[1:] if isinstance(part, str)))
    collection = PRODUCTS if call.about == "products" else PLACES
    return tuple(oracle.search(intent.query, 6, collection))


_TOOLS: Final = {
    "screen": lambda oracle, call: (),
    "search": _tool_search,
    "similar": lambda oracle, call: (tuple(oracle.similar(5)),),
    "relevance": _tool_relevance,
    "application": _tool_application,
}


def passage(document: WorldDocument, score: float) -> Passage:
    """A document as a search hands it out."""
    source = document.collection
    return Passage(
        f"{document.id}#0", document.id, source, document.title, document.told, score, tags=document.tags, attributes=document.attributes
    )


def described(text: str) -> str:
    """The description in a refiner's or an answer's prompt; "" for none."""
    found = re.search(r"picture : « (.*?) »", text)
    return found[1] if found else ""
