"""The graph as arrays: compressed sparse rows, one string table. Entities and edges are built on demand.

The same class holds a graph of thirty entities in memory and one of a million mapped from disk (kg/store.py).
Knows no file format and no data set. Try: python -m kg show DATA "entity name"

Texts are numbered in the order of their UTF-8 bytes, so a text is found by bisection and "" is always number 0; an entity is
found by the pair (name, owner), packed into one sorted 64-bit key. Neither needs a table of hashes in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kg.graph import Edge, Entity

Array = NDArray[Any]

# name → dtype. n entities, m edges, t texts, k pictures; columns of entities and edges hold numbers of texts.
LAYOUT: Mapping[str, str] = {
    "text": "u1",  # all texts, UTF-8, end to end
    "text_at": "i8",  # t + 1
    "name": "u4", "owner": "u4", "kind": "u4", "caption": "u4", "info": "u4", "video": "u4",  # n each
    "image_at": "i8", "image": "u4",  # n + 1, k
    "edge_at": "i8",  # n + 1
    "target": "u4", "relation": "u4", "information": "u4", "condition": "u4",  # m each, sorted by source, else as given
    "node_key": "u8", "node": "u4",  # n each: (name << 32 | owner) ascending, and whose it is
    "roots": "u4",
}  # fmt: skip


class ArrayGraph:
    """A `kg.graph.Graph` over the arrays of `LAYOUT`; media paths are stored relative to `folder`."""

    def __init__(self, arrays: Mapping[str, Array], folder: Path) -> None:
        missing = [name for name in LAYOUT if name not in arrays]
        if missing:
            raise ValueError(f"a graph needs the arrays {', '.join(missing)}")
        self.arrays, self.folder = arrays, folder
        self._text, self._text_at = arrays["text"], arrays["text_at"]
        self._edge_at, self._image_at = arrays["edge_at"], arrays["image_at"]
        self._roots = tuple(int(i) for i in arrays["roots"])
        self._is_root = frozenset(self._roots)
        # a search looks at the same few entities over and over, and reading one is most of what its own code costs
        self._entity = lru_cache(maxsize=4096)(self._read)

    def __len__(self) -> int:
        return len(self.arrays["name"])

    @property
    def edge_count(self) -> int:
        return len(self.arrays["target"])

    def __repr__(self) -> str:
        return f"ArrayGraph({len(self)} entities, {self.edge_count} edges, {len(self._roots)} roots)"

    @property
    def roots(self) -> Sequence[int]:
        return self._roots

    def text(self, number: int) -> str:
        return self._bytes(number).decode("utf-8", "surrogatepass")

    def _bytes(self, number: int) -> bytes:
        piece: Array = self._text[self._text_at[number] : self._text_at[number + 1]]
        return piece.tobytes()

    def entity(self, index: int) -> Entity:
        """The entity with this number. Raises: IndexError."""
        if not 0 <= index < len(self):
            raise IndexError(f"entity {index} of {len(self)}")
        return self._entity(index)

    def _read(self, index: int) -> Entity:
        name, owner, kind, caption, info, video = (
            self.text(int(self.arrays[column][index])) for column in ("name", "owner", "kind", "caption", "info", "video")
        )
        pictures = self.arrays["image"][self._image_at[index] : self._image_at[index + 1]]
        images = tuple(self.folder / self.text(int(i)) for i in pictures)
        return Entity(index, name, owner, kind, images, self.folder / video if video else None, caption, info)

    def name(self, index: int) -> str:
        """Only the name: cheaper than the entity."""
        return self.text(int(self.arrays["name"][index]))

    def neighbours(self, index: int) -> Sequence[Edge]:
        """Edges that leave this entity, in the data set's order; O(degree). Raises: IndexError."""
        if not 0 <= index < len(self):
            raise IndexError(f"entity {index} of {len(self)}")
        start, stop = int(self._edge_at[index]), int(self._edge_at[index + 1])
        columns = (self.arrays[c][start:stop].tolist() for c in ("relation", "target", "information", "condition"))
        return [Edge(index, self.text(r), t, self.text(i), self.text(c)) for r, t, i, c in zip(*columns, strict=True)]

    def is_root(self, index: int) -> bool:
        return index in self._is_root

    def find(self, name: str, owner: str = "") -> int | None:
        """The entity that `owner` means by `name`: its own, else a shared one, else a root (roots own themselves)."""
        number = self.number(name)
        if number is None:
            return None
        mine = self.number(owner)
        for candidate in ([] if mine is None else [mine]) + ([0] if owner else []):
            found = self._pair(number, candidate)
            if found is not None:
                return found
        found = self._pair(number, number)
        return found if found is not None and found in self._is_root else None

    def number(self, text: str) -> int | None:
        """The number of a text that the graph holds; None for others."""
        wanted = text.encode("utf-8", "surrogatepass")
        at = bisect_left(range(len(self._text_at) - 1), wanted, key=self._bytes)
        return at if at < len(self._text_at) - 1 and self._bytes(at) == wanted else None

    def _pair(self, name: int, owner: int) -> int | None:
        keys = self.arrays["node_key"]
        key = np.uint64((name << 32) | owner)
        at = int(np.searchsorted(keys, key))
        return int(self.arrays["node"][at]) if at < len(keys) and keys[at] == key else None
