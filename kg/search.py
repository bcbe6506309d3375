"""The multi-agent retriever of MH-MMKG (section 4.1, Figure 3): topic selection, then expansion and validation in turn.

An episode: it asks and is answered, and does no I/O. Knows no model, no file, no data set.

    topic → validate the root → { expand every open entity → keep what is new → validate it } until nothing is open
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kg.agents import Agents, Scene
from kg.graph import Edge, Entity, Graph, Walk
from kg.replies import Names, Verdict
from models.agents import Call, Episode, ask
from models.requests import Picture

MAX_WALKS = 10_000  # a dense subgraph holds exponentially many walks; the first K are among the shortest


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked: the question as worded, its scene as text, and its frames (empty where the setting hides them)."""

    text: str
    caption: str
    frames: tuple[Picture, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """What a setting lets the search see of an entity: a caption from somewhere else, and frames to look at (online only)."""

    caption: Callable[[Entity], str]
    frames: Callable[[Entity], tuple[Picture, ...]] = lambda entity: ()


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """The paper's defaults; `max_paths` 0 means unlimited.

    Attributes:
        max_paths: K, the number of walks that are kept and used, the first by round and order.
        order: breadth first, or depth first (the paper's ablation, Figure 6b).
        visited: "node" visits an entity once (equations 6 and 9); "path" explores every path for itself, as the published code does.
        paths: what counts as retrieved: walks to entities judged sufficient, or walks to the leaves of the subgraph (equation 10).
        max_rounds, max_calls: limits of one search; said in the result when hit.
        constrained: hold replies to the list of names where the engine can.
    """

    max_paths: int = 5
    order: Literal["bfs", "dfs"] = "bfs"
    visited: Literal["node", "path"] = "node"
    paths: Literal["validated", "leaves"] = "validated"
    max_rounds: int = 8
    max_calls: int = 300
    constrained: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a search's log: an entity judged (`verdict`) or expanded (`chosen`)."""

    round: int
    entity: int
    verdict: bool | None = None
    chosen: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Î and what it cost. `captions` are those made online, of this question only; `unclear` counts replies that told nothing."""

    topic: int | None
    walks: tuple[Walk, ...] = ()
    captions: Mapping[int, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    rounds: int = 0
    calls: int = 0
    dropped: int = 0
    unclear: int = 0
    limits: tuple[str, ...] = ()


def search(query: Query, graph: Graph, agents: Agents, view: View, config: SearchConfig) -> Episode[SearchResult]:
    """Retrieve the walks that answer `query`. Raises whatever the driver throws in (CallFailed)."""
    roots = {graph.entity(root).name: root for root in graph.roots}
    call = agents.select_topic(query.text, list(roots), query.frames, constrained=config.constrained)
    (name,) = yield from ask([call])
    if name is None:
        return SearchResult(None, calls=1, unclear=1)
    state = _State(Scene(query.text, query.caption), graph, agents, view, config, calls=1)
    yield from _walk(state, roots[name])
    return SearchResult(
        roots[name],
        tuple(state.retrieved()),
        state.captions,
        tuple(state.steps),
        max((step.round for step in state.steps), default=0),
        state.calls,
        state.dropped,
        state.unclear,
        tuple(sorted(state.limits)),
    )


def _walk(state: _State, root: int) -> Episode[None]:
    start = Walk((root,))
    yield from state.validate([start])
    open_ = [] if start in state.sufficient else [start]  # equation 9: what was added last and is not yet sufficient
    while open_ and not state.done():
        batch, open_ = (open_, []) if state.config.order == "bfs" else (open_[:1], open_[1:])
        state.round = len(batch[0].edges) + 1
        if state.round > state.config.max_rounds:
            state.limits.add(f"{state.config.max_rounds} rounds")
            continue
        new = yield from state.expand(batch)
        yield from state.validate(new)
        unsettled = [walk for walk in new if walk not in state.sufficient]
        open_ = unsettled + open_


@dataclass
class _State:
    """The subgraph K_t while it grows. Walks in `tree` are how an entity (or, by path, a walk) was first reached."""

    scene: Scene
    graph: Graph
    agents: Agents
    view: View
    config: SearchConfig
    calls: int = 0
    round: int = 0
    dropped: int = 0
    unclear: int = 0
    captions: dict[int, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    limits: set[str] = field(default_factory=set)
    edges: dict[int, dict[int, Edge]] = field(default_factory=dict)  # V': source → target → edge, in the order of discovery
    found: dict[Edge, int] = field(default_factory=dict)  # when each edge was discovered
    tree: dict[int, Walk] = field(default_factory=dict)  # E': entity → the walk that reached it first
    walks: dict[Walk, None] = field(default_factory=dict)  # the root's, and by path every walk that was reached, in order
    parents: set[Walk] = field(default_factory=set)  # by path: walks that were extended
    sufficient: set[Walk] = field(default_factory=set)

    def caption(self, entity: Entity) -> str:
        return self.captions.get(entity.index) or self.view.caption(entity)

    def expand(self, batch: Sequence[Walk]) -> Episode[list[Walk]]:
        """Equations 5 to 7: one call per open entity with neighbours; returns the walks to what is new, in order."""
        jobs = [(walk, list(self.graph.neighbours(walk.end))) for walk in batch]
        jobs = [(walk, edges) for walk, edges in jobs if edges]
        replies = yield from ask([self._expansion(walk, edges) for walk, edges in jobs])
        self.calls += len(jobs)
        new: list[Walk] = []
        for (walk, edges), reply in zip(jobs, replies, strict=True):
            chosen = self._one_phase(reply, edges)
            self.dropped += len(reply.dropped)
            self.unclear += reply.unclear
            self.steps.append(Step(self.round, walk.end, chosen=tuple(self.graph.entity(edge.target).name for edge in chosen)))
            new += [step for edge in chosen if (step := self._add(walk, edge)) is not None]
        return new

    def _expansion(self, walk: Walk, edges: Sequence[Edge]) -> Call[Names]:
        return self.agents.expand(self.scene, self.graph, walk, edges, self.caption, round=self.round, constrained=self.config.constrained)

    def _one_phase(self, reply: Names, edges: Sequence[Edge]) -> list[Edge]:
        """The chosen edges in the order of the reply; of several phases only the first is followed (Table 10)."""
        by_name: dict[str, list[Edge]] = {}
        for edge in edges:
            by_name.setdefault(self.graph.entity(edge.target).name, []).append(edge)
        chosen: list[Edge] = []
        phase: int | None = None
        for name in reply.chosen:
            for edge in by_name[name]:
                if self.agents.card.phase_kind and self.graph.entity(edge.target).kind == self.agents.card.phase_kind:
                    if phase not in (None, edge.target):
                        continue
                    phase = edge.target
                chosen.append(edge)
        return chosen

    def _add(self, walk: Walk, edge: Edge) -> Walk | None:
        """Adds the edge to the subgraph; returns the walk when its end is to be judged and perhaps opened."""
        step = walk + edge
        if self.config.visited == "path":
            if edge.target in walk.nodes or step in self.walks:  # a loop is closed, not walked
                return None
            self.walks[step] = None
            self.parents.add(walk)
            return step
        if edge.target not in self.edges.setdefault(walk.end, {}):
            self.edges[walk.end][edge.target] = edge
            self.found[edge] = len(self.found)
        if edge.target in self.tree:
            return None
        self.tree[edge.target] = step
        return step

    def validate(self, walks: Sequence[Walk]) -> Episode[None]:
        """Equation 8: one call per new entity; online the reply also describes its frames."""
        replies = yield from ask([self._validation(walk) for walk in walks])
        self.calls += len(walks)
        for walk, reply in zip(walks, replies, strict=True):
            if not walk.edges:
                self.tree[walk.end], self.walks[walk] = walk, None
            if reply.value is None:
                self.unclear += 1
            elif reply.value:
                self.sufficient.add(walk)
            if reply.description:
                self.captions[walk.end] = reply.description
            self.steps.append(Step(self.round, walk.end, verdict=reply.value))

    def _validation(self, walk: Walk) -> Call[Verdict]:
        entity = self.graph.entity(walk.end)
        frames = self.view.frames(entity) if self.agents.card.describes(entity.kind) else ()
        return self.agents.validate(
            self.scene, self.graph, walk, self.caption, frames, round=self.round, constrained=self.config.constrained
        )

    def done(self) -> bool:
        """Whether the search ends here: enough walks, or too many calls, which is then said."""
        if self.calls >= self.config.max_calls:
            self.limits.add(f"{self.config.max_calls} calls")
            return True
        wanted = self.config.max_paths
        return bool(wanted and self.config.paths == "validated" and self.sufficient and len(self.retrieved()) >= wanted)

    def retrieved(self) -> list[Walk]:
        """The first K walks of Î: breadth first the shorter ones, depth first those that were complete earlier."""
        walks = [walk for walk in self._every_walk() if self._counts(walk)]
        if self.config.order == "dfs" and self.config.visited == "node":
            walks.sort(key=lambda walk: max((self.found[edge] for edge in walk.edges), default=-1))
        return walks[: self.config.max_paths or None]

    def _counts(self, walk: Walk) -> bool:
        if self.config.visited == "path":
            return walk in self.sufficient if self.config.paths == "validated" else walk not in self.parents
        if self.config.paths == "validated":
            return self.tree[walk.end] in self.sufficient
        return all(target in walk.nodes for target in self.edges.get(walk.end, ()))

    def _every_walk(self) -> Iterator[Walk]:
        """Every loop-free walk of the subgraph from its root; where an entity has several parents, one through each (eq. 7)."""
        if self.config.visited == "path":
            yield from self.walks
            return
        level = list(self.walks)
        budget = MAX_WALKS
        while level and budget > 0:
            yield from level
            budget -= len(level)
            level = [walk + edge for walk in level for target, edge in self.edges.get(walk.end, {}).items() if target not in walk.nodes]
            level = level[: max(budget, 0)]
