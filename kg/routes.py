"""Gold routes: from the names that a question list gives to entities of the graph.

Knows no file format. Try: python -m kg check DATA
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kg.graph import Edge, Graph, Walk


@dataclass(frozen=True, slots=True)
class RouteProblem:
    """Why a route cannot be walked. `step` counts from 0 at the root."""

    step: int
    message: str

    def __str__(self) -> str:
        return self.message


def resolve_route(graph: Graph, names: Sequence[str], root: str) -> tuple[int, ...] | RouteProblem:
    """The entities that a route names, each joined to the next by an edge, or why not.

    Names are local to `root`; the name of another root inside the route switches the owner of the names that follow.
    """
    if not names:
        return RouteProblem(0, "the route is empty")
    if names[0] != root:
        return RouteProblem(0, f"the route starts at {names[0]!r}, not at its root {root!r}")
    owner = root
    out: list[int] = []
    for step, name in enumerate(names):
        index = graph.find(name, owner)
        if index is None:
            return RouteProblem(step, f"{name!r} is no entity of {owner!r}")
        if out and not any(edge.target == index for edge in graph.neighbours(out[-1])):
            return RouteProblem(step, f"no edge leads from {names[step - 1]!r} to {name!r}")
        if _is_root(graph, index):
            owner = name
        out.append(index)
    return tuple(out) if _is_root(graph, out[0]) else RouteProblem(0, f"{root!r} is no root")


def walk_along(graph: Graph, nodes: Sequence[int]) -> Walk:
    """The walk over these entities by the first edge between each two. Raises: ValueError if one is missing."""
    edges: list[Edge] = []
    for source, target in pairwise(nodes):
        edge = next((e for e in graph.neighbours(source) if e.target == target), None)
        if edge is None:
            raise ValueError(f"no edge from {source} to {target}")
        edges.append(edge)
    return Walk(tuple(nodes), tuple(edges))


def _is_root(graph: Graph, index: int) -> bool:
    """A root owns itself; asked first because a graph may have 100,000 roots."""
    entity = graph.entity(index)
    return entity.owner in ("", entity.name) and index in graph.roots
