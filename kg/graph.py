"""The knowledge graph as the search sees it: entities, edges, neighbours, routes. Read-only, built once.

Knows no file format (kg/load_*.py do) and no model. Entities are small integers; names are looked up only at the borders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entity:
    """One node of G = (E, V, R) with its attribute A(e) = (c, u): clip and text (MH-MMKG, section 3.1).

    Attributes:
        index: its number in the graph.
        name: its local name, as prompts and routes use it; never a key, two roots may own the same name.
        owner: the name of the root whose folder holds it; "" for names that all roots share.
        kind: a kind of the data set's card.
        images: chosen keyframes, in natural order. video: its clip. Either, both or none.
        caption: the human-written description of the clip, "" when there is none.
        info: additional textual information, "" when there is none.
    """

    index: int
    name: str
    owner: str
    kind: str
    images: tuple[Path, ...] = ()
    video: Path | None = None
    caption: str = ""
    info: str = ""

    @property
    def has_media(self) -> bool:
        return bool(self.images) or self.video is not None


@dataclass(frozen=True, slots=True)
class Edge:
    """v = (e, r, e') with the text that a relation may carry."""

    source: int
    relation: str
    target: int
    information: str = ""
    condition: str = ""


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk from a root: `nodes[0]` is the root, `edges[i]` leads from `nodes[i]` to `nodes[i + 1]`."""

    nodes: tuple[int, ...]
    edges: tuple[Edge, ...] = ()

    def __post_init__(self) -> None:
        if len(self.nodes) != len(self.edges) + 1:
            raise ValueError(f"a walk over {len(self.nodes)} nodes needs {len(self.nodes) - 1} edges, got {len(self.edges)}")

    @property
    def end(self) -> int:
        return self.nodes[-1]

    def __add__(self, edge: Edge) -> Walk:
        return Walk((*self.nodes, edge.target), (*self.edges, edge))


class Graph(Protocol):
    """What the search needs of a graph."""

    def __len__(self) -> int:
        """The number of entities."""

    @property
    def roots(self) -> Sequence[int]:
        """Entities of the root kind, in the data set's order (E_o)."""

    def entity(self, index: int) -> Entity:
        """The entity with this number."""

    def neighbours(self, index: int) -> Sequence[Edge]:
        """Edges that leave this entity, in the data set's order; O(degree)."""

    def find(self, name: str, owner: str = "") -> int | None:
        """The entity that `owner` means by `name`: its own first, then a shared one, then a root of that name."""
