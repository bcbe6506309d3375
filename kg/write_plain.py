"""Writing the plain layout of kg/load_plain.py. Knows no other layout. Try: python -m kg convert DATA --to plain --out DIR"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kg.arrays import ArrayGraph
from kg.card import CardFile
from kg.dataset import Dataset
from kg.load_plain import ENTITY, QUESTION, RELATION
from kg.write_card import write_card
from models.errors import DataError

Format = Literal["csv", "jsonl"]
MEDIA = "media"
Value = str | int | list[str] | list[list[str]]


@dataclass(frozen=True)
class _Writer:
    out: Path
    format: Format

    def sheet(self, name: str, columns: Sequence[str], rows: Iterable[dict[str, Value]]) -> None:
        with (self.out / f"{name}.{self.format}").open("w", encoding="utf-8", newline="") as f:
            if self.format == "jsonl":
                f.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
                return
            writer = csv.DictWriter(f, columns, quoting=csv.QUOTE_ALL, lineterminator="\n")
            writer.writeheader()
            writer.writerows({k: self._cell(name, v) for k, v in row.items()} for row in rows)

    def _cell(self, name: str, value: Value) -> str | int:
        if not isinstance(value, list):
            return value
        nested = [part if isinstance(part, list) else [part] for part in value]
        outer, inner = ("|", "") if name == "entities" or not any(isinstance(p, list) for p in value) else (";", ">")
        for text in (text for part in nested for text in part):
            held = [c for c in (outer, inner) if c and c in text]
            if held or text != text.strip():
                where = held[0] if held else "outer spaces"
                raise DataError(f"{text!r} holds {where!r}, which a .csv list cannot", remedy="convert to plain-jsonl instead")
        return outer.join(inner.join(part) for part in nested)


def write_plain(dataset: Dataset, card: CardFile, out: Path, format: Format) -> None:
    """dataset.toml, entities, relations, questions, and every picture and clip under media/ and its old relative path.

    Raises:
        DataError: a name or path holds a character that separates lists in .csv. OSError: the disk refuses.
    """
    graph = dataset.graph
    if not isinstance(graph, ArrayGraph):
        raise DataError(f"a {type(graph).__name__} cannot be converted")
    writer, media = _Writer(out, format), set[Path]()
    write_card(out / "dataset.toml", card)
    ids = _ids(graph)

    def relative(paths: Iterable[Path | None]) -> list[str]:
        there = [p for p in paths if p is not None]
        media.update(there)
        return [_place(p, dataset.folder) for p in there]

    def entities() -> Iterable[dict[str, Value]]:
        for index in range(len(graph)):
            e = graph.entity(index)
            owner = "" if graph.is_root(index) else e.owner
            values = (ids[index], e.name, owner, e.kind, relative(e.images), "".join(relative([e.video])), e.caption, e.info)
            yield dict(zip(ENTITY, values, strict=True))

    def relations() -> Iterable[dict[str, Value]]:
        for index in range(len(graph)):
            for v in graph.neighbours(index):
                yield dict(zip(RELATION, (ids[v.source], v.relation, ids[v.target], v.information, v.condition), strict=True))

    def questions() -> Iterable[dict[str, Value]]:
        for q in dataset.questions:
            shown = (relative(q.images), "".join(relative([q.video])))
            routes = [list(route) for route in q.routes]
            values = (q.id, q.text, q.root, q.extra, q.perception, *shown, q.answer, routes, q.task)
            yield dict(zip(QUESTION, values, strict=True))

    writer.sheet("entities", ENTITY, entities())
    writer.sheet("relations", RELATION, relations())
    writer.sheet("questions", QUESTION, questions())
    for path in sorted(media):
        target = out / _place(path, dataset.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def _place(path: Path, folder: Path) -> str:
    old = path.relative_to(folder)
    return (old if old.parts[0] == MEDIA else Path(MEDIA) / old).as_posix()


def _ids(graph: ArrayGraph) -> list[str]:
    """owner/name, numbered where that is taken: readable, unique, free of outer spaces."""
    out, taken = list[str](), set[str]()
    for index in range(len(graph)):
        e = graph.entity(index)
        wanted = id_ = e.name if graph.is_root(index) or not e.owner else f"{e.owner}/{e.name}"
        while id_ in taken:
            id_ = f"{wanted}#{index}"
            wanted = id_
        taken.add(id_)
        out.append(id_)
    return out
