"""From rows to a graph: collects entities and edges by name, merges repeated rows, and lays out the arrays of kg/arrays.py.

Knows no file format; readers tell it where a row stood so that findings can say so.
Try: python -c "from kg.build import GraphBuilder; help(GraphBuilder)"
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kg.arrays import LAYOUT, Array, ArrayGraph
from kg.findings import Findings


@dataclass
class _Texts:
    """Texts by number of first use; `ranked` renumbers them by their bytes."""

    numbers: dict[str, int] = field(default_factory=lambda: {"": 0})

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def ranked(self) -> tuple[Array, Array, Array]:
        """(blob, offsets, old number → new number)."""
        raw = [text.encode("utf-8", "surrogatepass") for text in self.numbers]
        order = sorted(range(len(raw)), key=raw.__getitem__)
        rank = np.empty(len(raw), np.uint32)
        rank[order] = np.arange(len(raw), dtype=np.uint32)
        offsets = np.zeros(len(raw) + 1, np.int64)
        np.cumsum(np.fromiter((len(raw[i]) for i in order), np.int64, len(raw)), out=offsets[1:])
        return np.frombuffer(b"".join(raw[i] for i in order), np.uint8), offsets, rank


_NODE = ("name", "owner", "kind", "caption", "info", "video")
_EDGE = ("source", "relation", "target", "information", "condition", "file", "row")


class GraphBuilder:
    """Add rows, then `finish`. An entity is the pair (name, owner)."""

    def __init__(self, folder: Path, findings: Findings) -> None:
        self.folder, self.findings = folder, findings
        self._texts = _Texts()
        self._at: dict[tuple[str, str], int] = {}
        self._node = {column: array("I") for column in _NODE}
        self._edge = {column: array("I") for column in _EDGE}
        self._images: dict[int, tuple[str, ...]] = {}
        self._names: list[str] = []
        self._roots: set[str] = set()

    def __len__(self) -> int:
        return len(self._names)

    def add(
        self,
        name: str,
        owner: str,
        kind: str = "",
        *,
        images: Sequence[Path] = (),
        video: Path | None = None,
        caption: str = "",
        info: str = "",
    ) -> int:
        """A new entity's number. Raises: ValueError if the pair is there already (`find_exact` first)."""
        if (name, owner) in self._at:
            raise ValueError(f"entity {name!r} of {owner!r} twice")
        index = self._at[name, owner] = len(self._names)
        self._names.append(name)
        for column, text in zip(_NODE, (name, owner, kind, caption, info, self._relative(video)), strict=True):
            self._node[column].append(self._texts(text))
        if images:
            self._images[index] = tuple(self._relative(p) for p in images)
        return index

    def merge(self, index: int, *, images: Sequence[Path] = (), video: Path | None = None, caption: str = "", info: str = "") -> list[str]:
        """Fill what is still empty from another row about the same entity; what contradicts is left and its columns are named."""
        lost = []
        for column, text in (("video", self._relative(video)), ("caption", caption), ("info", info)):
            number = self._texts(text)
            if text and self._node[column][index] and self._node[column][index] != number:
                lost.append(column)
            elif text:
                self._node[column][index] = number
        pictures = tuple(self._relative(p) for p in images)
        if pictures and self._images.setdefault(index, pictures) != pictures:
            lost.append("images")
        return lost

    def find_exact(self, name: str, owner: str) -> int | None:
        return self._at.get((name, owner))

    def mark_root(self, name: str) -> None:
        self._roots.add(name)

    def is_root(self, name: str) -> bool:
        return name in self._roots

    def find(self, name: str, owner: str) -> int | None:
        """As `Graph.find`, while building; a root counts from `mark_root` on."""
        for pair in ((name, owner), (name, "")):
            if pair in self._at:
                return self._at[pair]
        return self._at.get((name, name)) if name in self._roots else None

    def pairs(self) -> Iterator[tuple[int, str, str]]:
        """(number, name, owner) of every entity."""
        return ((index, name, owner) for (name, owner), index in self._at.items())

    def set_kind(self, index: int, kind: str) -> None:
        self._node["kind"][index] = self._texts(kind)

    def edge(
        self, source: int, relation: str, target: int, information: str = "", condition: str = "", *, file: str = "", row: int = 0
    ) -> None:
        texts = self._texts
        values = (source, texts(relation), target, texts(information), texts(condition), texts(file), row)
        for column, value in zip(_EDGE, values, strict=True):
            self._edge[column].append(value)

    def incoming(self) -> dict[int, set[str]]:
        """Entity → the relations of edges that lead to it."""
        by_number = list(self._texts.numbers)
        out: dict[int, set[str]] = {}
        for target, relation in zip(self._edge["target"], self._edge["relation"], strict=True):
            out.setdefault(target, set()).add(by_number[relation])
        return out

    def finish(self, root_kind: str) -> ArrayGraph:
        """The graph. Repeated edges are dropped and self-loops kept, each with a warning; no root is an error."""
        for pictures in self._images.values():
            for picture in pictures:
                self._texts(picture)
        edge = {column: np.array(values, np.uint32) for column, values in self._edge.items()}
        keep = self._distinct(edge)
        edge = {column: values[keep] for column, values in edge.items()}
        order = np.argsort(edge["source"], kind="stable")
        blob, offsets, rank = self._texts.ranked()
        n = len(self)
        out: dict[str, Array] = {"text": blob, "text_at": offsets}
        for column, numbers in self._node.items():
            out[column] = rank[np.array(numbers, np.int64)]
        for column in ("relation", "information", "condition"):
            out[column] = rank[edge[column][order]]
        out["target"] = edge["target"][order]
        out["edge_at"] = _offsets(np.bincount(edge["source"], minlength=n))
        flat = [self._texts(p) for i in sorted(self._images) for p in self._images[i]]
        out["image_at"] = _offsets(np.fromiter((len(self._images.get(i, ())) for i in range(n)), np.int64, n))
        out["image"] = rank[np.array(flat, np.int64)]
        key = (out["name"].astype(np.uint64) << np.uint64(32)) | out["owner"].astype(np.uint64)
        out["node"] = np.argsort(key, kind="stable")
        out["node_key"] = key[out["node"]]
        root = self._texts.numbers.get(root_kind) if root_kind else None
        out["roots"] = np.flatnonzero(np.array(self._node["kind"], np.int64) == (-1 if root is None else root))
        if not len(out["roots"]):
            self.findings.error("no-root", f"no entity is of the root kind {root_kind!r}, so no search can start anywhere")
        return ArrayGraph({column: np.ascontiguousarray(out[column], dtype) for column, dtype in LAYOUT.items()}, self.folder)

    def _distinct(self, edge: dict[str, Array]) -> Array:
        columns = [edge[c] for c in ("condition", "information", "target", "relation", "source")]
        keep = np.ones(len(columns[0]), bool)
        order = np.lexsort(columns)  # stable: of equal edges the first stays
        same = np.ones(max(len(order) - 1, 0), bool)
        for column in columns:
            ranked = column[order]
            same &= ranked[1:] == ranked[:-1]
        keep[order[1:][same]] = False
        for code, rows in (("duplicate-edge", np.flatnonzero(~keep)), ("self-loop", np.flatnonzero(edge["source"] == edge["target"]))):
            by_number = list(self._texts.numbers) if len(rows) else []
            for i in rows.tolist():
                ends = f"{self._names[edge['source'][i]]!r} {by_number[edge['relation'][i]]} {self._names[edge['target'][i]]!r}"
                message = f"the edge {ends} stands here again; read once" if code == "duplicate-edge" else f"the edge {ends} is a self-loop"
                self.findings.warn(code, message, by_number[edge["file"][i]], int(edge["row"][i]) or None)
        return keep

    def _relative(self, path: Path | None) -> str:
        return "" if path is None else path.relative_to(self.folder).as_posix()


def _offsets(counts: Array) -> Array:
    out = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=out[1:])
    return out
