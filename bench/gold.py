"""Gold routes as walks in the graph: the annotated subgraph I of one question, as the paths from its root to each of its leaves.

A path counts up to a leaf (MH-MMKG, sections 3.2 and 8.2), so a route that only begins another one is part of that one: one question of
the published list writes both, and no search that stops at a sufficient entity could ever find the two.

Knows no file format; `python -m kg check` reports routes that do not exist. Here such a route keeps its place in the denominator of
recall: it can never be found, and leaving it out would flatter.
"""

from __future__ import annotations

from dataclasses import dataclass

from kg.dataset import Question
from kg.graph import Graph, Walk
from kg.routes import RouteProblem, resolve_route, walk_along

MISSING = -1


@dataclass(frozen=True, slots=True)
class Gold:
    """The annotated subgraph I of one question.

    Attributes:
        topic: the root e_0; None when it is not in the graph.
        nodes: every distinct route to a leaf as entity numbers; `MISSING` and its position stand for one that cannot be walked.
        walks: the routes that can be walked, with the first edge between each two entities.
    """

    topic: int | None
    nodes: tuple[tuple[int, ...], ...]
    walks: tuple[Walk, ...]


def gold(graph: Graph, question: Question) -> Gold:
    """The question's routes in the graph; equal routes count once, and what begins another route is part of it."""
    topic = graph.find(question.root, question.root)
    nodes: list[tuple[int, ...]] = []
    walks: list[Walk] = []
    routes = dict.fromkeys(question.routes)
    for i, route in enumerate(routes):
        if any(len(other) > len(route) and other[: len(route)] == route for other in routes):
            continue
        found = resolve_route(graph, route, question.root)
        if isinstance(found, RouteProblem):
            nodes.append((MISSING, i))
        elif found not in nodes:
            nodes.append(found)
            walks.append(walk_along(graph, found))
    return Gold(topic if topic in set(graph.roots) else None, tuple(nodes), tuple(walks))
