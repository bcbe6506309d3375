"""The CUE-M flow, as in the paper's figure: enrich the picture, refine the intent, choose, search, weigh, answer; safety on the way.

    screen → { describe, similar pictures } → tag search → refine → { queries, applications?, categories?, safe? }
           → { searches, applications } → relevance → answer

An episode: it asks and is answered, and does no I/O. A row of `ROWS` switches stages off (the paper's ablations, its table of win
rates). Knows no model, no index, no file. Try: python -m pytest tests/pipeline/test_flow.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from models.agents import Call, Episode, ask
from models.requests import Picture
from pipeline import agents as tools
from pipeline.agents import Agents
from pipeline.applications import Application, Described, EpisodeApplication, Intent
from pipeline.parallel import parallel
from pipeline.passages import Passage
from pipeline.replies import Judgement, Queries
from pipeline.safety.verdicts import REFUSAL, Verdict, first_block
from pipeline.tags import Clicks, Tag, extract, tags_of
from pipeline.trace import Trace

MAX_QUESTION = 20_000  # characters; what is longer is cut, and the trace says so


@dataclass(frozen=True, slots=True)
class Query:
    """What a user asks. Either part may be missing; `history` holds (who, text), oldest first."""

    text: str = ""
    pictures: tuple[Picture, ...] = ()
    history: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Stages:
    """Which stages run. Safety has a switch of its own: the ablations are about answers."""

    image_search: bool = True
    enrichment: bool = True
    refiner: bool = True
    queries: bool = True
    relevance: bool = True
    applications: bool = True
    safety: bool = True


# The six rows of CUE-M's ablation table: bare model, + image search, + enriched retrieval, − refiner, − relevance, full.
ROWS: Mapping[str, Stages] = {
    "mllm": Stages(False, False, False, False, False, False),
    "image-search": Stages(True, False, False, False, False, False),
    "enriched": Stages(True, True, False, False, True, False),
    "no-refiner": Stages(refiner=False),
    "no-relevance": Stages(relevance=False),
    "full": Stages(),
}


@dataclass(frozen=True, slots=True)
class Category:
    """A safety category with a fixed response (category-wise filtering): asked of the selector like an application."""

    name: str
    description: str
    response: str = REFUSAL
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kit:
    """What all questions share and none writes to.

    Attributes:
        clicks: the collections' click log. threshold: P(true) from which an application is used.
        category_threshold, harm_threshold: P from which a category's response is given, and P(harmful) from which the detector blocks.
        search_k, similar_k: passages of one search; kept: passages for the answer; relevant: P(relevant) below which one is dropped.
    """

    agents: Agents
    applications: Mapping[str, Application | EpisodeApplication] = field(default_factory=dict)
    categories: tuple[Category, ...] = ()
    clicks: Clicks = field(default_factory=dict)
    stages: Stages = Stages()
    threshold: float = 0.5
    category_threshold: float = 0.5
    harm_threshold: float = 0.5
    search_k: int = 10
    similar_k: int = 5
    kept: int = 5
    relevant: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer with its evidence. `sources` are the passages given, [1] first; `cited` their numbers; `blocked`: what ended it.

    `dropped` holds what the relevance classifier left out, each with its score: nothing is lost.
    """

    text: str
    sources: tuple[Passage, ...] = ()
    cited: tuple[int, ...] = ()
    dropped: tuple[Passage, ...] = ()
    intent: Intent | None = None
    tags: tuple[Tag, ...] = ()
    blocked: Verdict | None = None
    not_found: bool = False
    verdicts: tuple[Verdict, ...] = ()
    trace: Trace = field(default_factory=Trace)


def answer(query: Query, kit: Kit) -> Episode[Answer]:
    """One question's whole life. A failed call ends it with CallFailed: this question alone is lost."""
    state = _State(kit, Trace(), kit.stages)
    query = state.cut(query)
    yield from state.screen(query, ())
    if state.blocked:
        return state.refusal()
    seen = yield from state.look(query)
    if seen.tags:
        yield from state.screen(query, tuple(tag.text for tag in seen.tags))  # what stands only in the picture
    if not state.blocked:
        found = yield from state.enrich(query, seen)
        intent = yield from state.refine(query, seen, found)
        plan = yield from state.plan(query, intent, found)
    if state.blocked:
        return state.refusal(seen.tags)
    more = yield from state.gather(plan, intent)
    given, dropped = yield from state.weigh(intent, [*found, *more])
    return (yield from state.reply(query, seen, intent, given, dropped))


@dataclass(frozen=True, slots=True)
class _Seen:
    description: str = ""
    similar: tuple[Passage, ...] = ()
    tags: tuple[Tag, ...] = ()


@dataclass(frozen=True, slots=True)
class _Plan:
    queries: tuple[str, ...] = ()
    applications: tuple[str, ...] = ()


@dataclass
class _State:
    """One question under way: what it uses, its trace, and the verdicts so far."""

    kit: Kit
    trace: Trace
    stages: Stages
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def blocked(self) -> Verdict | None:
        return first_block(self.verdicts)

    def cut(self, query: Query) -> Query:
        if len(query.text) > MAX_QUESTION:
            self.trace.note("question cut", f"{len(query.text)} characters, {MAX_QUESTION} are read")
            return replace(query, text=query.text[:MAX_QUESTION])
        return query

    def screen(self, query: Query, tags: tuple[str, ...]) -> Episode[None]:
        """The cheap safety stages: text classifier, instance-wise policy; with the tags once they are known."""
        if not self.stages.safety:
            return
        (verdicts,) = yield from ask([tools.screen(query.text, tags, query.pictures)])
        self.verdicts += verdicts
        self.trace.add("screen", {"question": query.text, "tags": tags}, [str(verdict) for verdict in verdicts])

    def look(self, query: Query) -> Episode[_Seen]:
        """Description and similar pictures in one batch, then tags."""
        if not query.pictures or not (self.stages.image_search or self.stages.enrichment):
            return _Seen()
        describe = [self.kit.agents.describe(query.pictures)] if self.stages.enrichment else []
        similar = [tools.similar(query.pictures, self.kit.similar_k)] if self.stages.image_search else []
        replies = yield [*describe, *similar]
        description: str = replies[0] if describe else ""
        lists: tuple[tuple[Passage, ...], ...] = replies[-1] if similar else ()
        best: dict[tuple[str, str], Passage] = {}
        for passage in (p for row in lists for p in row):
            if passage.key not in best or passage.score > best[passage.key].score:
                best[passage.key] = passage
        found = tuple(sorted(best.values(), key=lambda p: -p.score)[: self.kit.similar_k])
        tags = tags_of(found, self.kit.clicks) if self.stages.enrichment else ()
        self.trace.add("describe", {"pictures": len(query.pictures)}, description)
        self.trace.add("similar pictures", {"pictures": len(query.pictures)}, [f"{p.score:.3f} {p.source} {p.id}" for p in found])
        self.trace.add("tags", [p.id for p in found], [f"{tag.text} ({tag.origin} {tag.score:.2f})" for tag in tags])
        return _Seen(description, found, tags)

    def enrich(self, query: Query, seen: _Seen) -> Episode[list[Passage]]:
        """Text search by tags and by the question; similar pictures' documents first."""
        found = {p.key: p for p in seen.similar} if self.stages.image_search else {}
        if self.stages.enrichment:
            words = [", ".join(tag.text for tag in seen.tags[:4]), query.text[:1000]]
            queries = [text for text in words if text.strip()]
            lists = (yield from ask([tools.search(queries, self.kit.search_k)]))[0] if queries else ()
            for row in lists:
                for passage in row:
                    found.setdefault(passage.key, passage)
            self.trace.add("tag search", queries, [[p.id for p in row] for row in lists])
        return list(found.values())

    def refine(self, query: Query, seen: _Seen, found: Sequence[Passage]) -> Episode[Intent]:
        """One structured intent and search query; the user's own words where there is no refiner or its reply holds none."""
        names = tuple(tag.text for tag in seen.tags)
        plain = " ".join(filter(None, (query.text[:1000], ", ".join(names[:3])))) or seen.description
        intent = Intent(query.text or plain, plain, query.text, seen.description, names, query.pictures)
        if not self.stages.refiner:
            return intent
        extracts = self._extracts(found, f"{query.text} {' '.join(names)}")
        call = self.kit.agents.refine(query.text, seen.description, extracts, query.history)
        (reply,) = yield from ask([call])
        if reply.unclear:
            self.trace.note("intent unclear", "the question and the tags are used")
        else:
            intent = replace(intent, text=reply.intent, query=reply.query)
        self.trace.add("refine", {"question": query.text, "description": seen.description, "found": extracts}, [intent.text, intent.query])
        return intent

    def plan(self, query: Query, intent: Intent, found: Sequence[Passage]) -> Episode[_Plan]:
        """In one batch: queries, every application and safety category, and whether the intent is safe."""
        agents, stages = self.kit.agents, self.stages
        asked: list[Described] = list(self.kit.applications.values()) if stages.applications else []
        categories = list(self.kit.categories) if stages.safety else []
        first: list[Call[Queries]] = []
        if stages.queries:
            first = [agents.queries(intent.text, self._extracts(found, intent.query), query.history)]
        detect = [agents.detect(intent.text, query.text)] if stages.safety else []
        choices = [agents.select(one, intent.text) for one in (*asked, *categories)]
        calls: list[Call[Queries] | Call[Judgement]] = [*first, *choices, *detect]
        replies = (yield calls) if calls else []
        made: Queries = replies[0] if first else Queries(())
        judged: list[Judgement] = list(replies[len(first) : len(first) + len(choices)])
        if detect:
            self._detected(replies[-1])
        self._categories(categories, judged[len(asked) :])
        chosen = self._chosen(asked, judged[: len(asked)])
        if made.unclear or made.dropped:
            self.trace.note("queries unclear" if made.unclear else "queries beyond three", str(made.dropped or "the reply held none"))
        self.trace.add("plan", intent.text, {"queries": made.queries, "applications": chosen, "verdicts": [str(v) for v in self.verdicts]})
        return _Plan(made.queries, chosen)

    def _detected(self, judged: Judgement) -> None:
        """The few-shot detector. A reply that tells nothing blocks: a filter that lets pass what silences it is none."""
        harm = 1.0 if judged.probability is None else 1.0 - judged.probability
        reason = "the detector's reply told nothing" if judged.probability is None else "P(not safe) of the refined intent"
        self.verdicts.append(Verdict("detector", harm, self.kit.harm_threshold, reason))

    def _categories(self, categories: Sequence[Category], judged: Sequence[Judgement]) -> None:
        rows = [(c, j.probability) for c, j in zip(categories, judged, strict=True) if j.probability is not None]
        for category, probability in sorted(rows, key=lambda row: -row[1]):
            reason = f"P(category {category.name!r})"
            self.verdicts.append(Verdict("category", probability, self.kit.category_threshold, reason, category.response))

    def _chosen(self, asked: Sequence[Described], judged: Sequence[Judgement]) -> tuple[str, ...]:
        for application, judgement in zip(asked, judged, strict=True):
            if judgement.probability is None:
                self.trace.note("application unclear", application.name)
        ranked = sorted(zip(asked, judged, strict=True), key=lambda pair: -(pair[1].probability or 0.0))
        return tuple(a.name for a, j in ranked if (j.probability or 0.0) >= self.kit.threshold)

    def gather(self, plan: _Plan, intent: Intent) -> Episode[list[Passage]]:
        """Searches and applications, all at once; those that ask models themselves run beside them."""
        lives: list[Episode[Sequence[Passage]]] = []
        if plan.queries:
            lives.append(_search(plan.queries, self.kit.search_k))
        for name in plan.applications:
            application = self.kit.applications[name]
            lives.append(application.episode(intent) if isinstance(application, EpisodeApplication) else _apply(name, intent))
        lists = yield from parallel(lives)
        names = [*(["search"] if plan.queries else []), *plan.applications]
        for name, row in zip(names, lists, strict=True):
            self.trace.add(f"run {name}", plan.queries if name == "search" else intent.query, [p.id for p in row])
        return [passage for row in lists for passage in row]

    def weigh(self, intent: Intent, found: Sequence[Passage]) -> Episode[tuple[list[Passage], list[Passage]]]:
        """The relevance classifier's top k, and what it dropped, each with its score; without it, the first k as found."""
        distinct = list({passage.key: passage for passage in reversed(found)}.values())[::-1]
        most = min(self.kit.kept, self.kit.agents.style.max_given)
        if not self.stages.relevance or not distinct:
            return distinct[:most], distinct[most:]
        (scores,) = yield from ask([tools.relevance(intent.query or intent.text, distinct)])
        ranked = sorted((p.scored(s) for p, s in zip(distinct, scores, strict=True)), key=lambda p: -p.score)
        kept = [p for p in ranked[:most] if p.score >= self.kit.relevant]
        self.trace.add("relevance", intent.query, [f"{p.score:.3f} {p.source} {p.id}" for p in ranked])
        return kept, ranked[len(kept) :]

    def reply(self, query: Query, seen: _Seen, intent: Intent, given: Sequence[Passage], dropped: Sequence[Passage]) -> Episode[Answer]:
        """The answer with its citations; "not found" when the evidence does not hold it."""
        said = intent.text if self.stages.refiner else ""
        call = self.kit.agents.answer(query.text, said, seen.description, given, query.history, query.pictures)
        (made,) = yield from ask([call])
        if made.unknown:
            self.trace.note("citations of sources that were not given", str(made.unknown))
        self.trace.add("answer", {"sources": [p.id for p in given]}, made.text)
        text = made.text or self.kit.agents.style.not_found
        return Answer(
            text, tuple(given), made.cited, tuple(dropped), intent, seen.tags, None, made.not_found, tuple(self.verdicts), self.trace
        )

    def refusal(self, tags: tuple[Tag, ...] = ()) -> Answer:
        blocked = self.blocked
        assert blocked is not None
        self.trace.note("blocked", str(blocked))
        return Answer(blocked.response, tags=tags, blocked=blocked, verdicts=tuple(self.verdicts), trace=self.trace)

    def _extracts(self, found: Sequence[Passage], focus: str) -> list[tuple[str, str]]:
        return [(p.title, extract(p, focus)) for p in found[: min(self.kit.search_k, self.kit.agents.style.max_found)]]


def _search(queries: tuple[str, ...], k: int) -> Episode[Sequence[Passage]]:
    (lists,) = yield from ask([tools.search(queries, k)])
    ranks = max((len(row) for row in lists), default=0)
    return [row[i] for i in range(ranks) for row in lists if i < len(row)]


def _apply(name: str, intent: Intent) -> Episode[Sequence[Passage]]:
    (found,) = yield from ask([tools.application(name, intent)])
    return found
