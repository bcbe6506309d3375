"""Load a data set, whatever its layout: `load(folder)`.

Knows that layouts exist, not how they look. Errors raise one DataError that lists them; warnings stand in `Dataset.findings`.
Try: python -c "from kg.load import load; print(load('DATA').graph)"
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from kg import load_mh, load_plain
from kg.arrays import ArrayGraph
from kg.build import GraphBuilder
from kg.card import CardFile, builtin_card, read_card
from kg.dataset import Dataset, Question
from kg.findings import HINTS, Findings
from kg.media import Media
from kg.names import near
from kg.routes import RouteProblem, resolve_route
from kg.store import SUFFIX, open_compiled
from models.errors import DataError
from models.files import sha256

CARD = "dataset.toml"
_LAYOUTS: dict[str, ModuleType] = {"mh": load_mh, "plain": load_plain}


def load(folder: Path | str, strict: bool = True) -> Dataset:
    """The data set in this folder, or in this compiled file (kg/store.py).

    Args:
        strict: raise one DataError for all errors (the first twenty are listed). Otherwise rows in error are left out and the
            errors stand among the findings.

    Raises:
        DataError: also with `strict=False` when there is no folder, no known layout or no usable card.
    """
    folder = Path(folder).resolve()
    if folder.suffix == SUFFIX and folder.is_file():
        return open_compiled(folder)
    layout = layout_of(folder)
    module, findings = _LAYOUTS[layout], Findings(folder)
    card = card_of(folder, layout)
    media, builder = Media(folder, findings), GraphBuilder(folder, findings)
    module.read_graph(folder, card, media, builder)
    graph = builder.finish(card.root_kind)
    questions = _checked(graph, module.read_questions(folder, card, media, findings), module.question_file(folder), findings)
    if strict:
        findings.raise_errors()
    return Dataset(folder, card.card(), graph, tuple(questions), digest(folder, layout), tuple(findings.items))


def layout_of(folder: Path) -> str:
    """The name of the folder's layout. Raises: DataError."""
    if not folder.is_dir():
        raise DataError("is not a folder" if folder.exists() else "is not there", where=str(folder), remedy="give a data set's folder")
    fits = [name for name, module in _LAYOUTS.items() if module.fits(folder)]
    if len(fits) > 1:
        raise DataError("holds both mmkg/ and entities.csv|jsonl", where=str(folder), remedy="keep one layout to a folder")
    if fits:
        return fits[0]
    remedy = "it needs mmkg/<Root>/Node.xlsx and Relations.xlsx, or entities.csv|jsonl, relations.csv|jsonl and dataset.toml (docs/data.md)"
    raise DataError("holds no data set in a known layout", where=str(folder), remedy=remedy)


def card_of(folder: Path, layout: str) -> CardFile:
    """dataset.toml, or the card shipped for the layout. A card without rules borrows the shipped rules for kinds that it names."""
    path = folder / CARD
    if not path.is_file():
        if path.exists() or path.is_symlink():
            raise DataError("is no file that can be read", where=str(path), remedy="put the card itself there, or take this away")
        if layout != "mh":
            raise DataError(f"has no {CARD}", where=str(folder), remedy="docs/data.md shows one to start from")
        return builtin_card(layout)[0]
    card = read_card(path)
    if layout == "mh" and not card.rules:
        rules = [rule for rule in builtin_card(layout)[0].rules if rule.kind in card.kinds]
        return card.model_copy(update={"rules": rules})
    return card


def digest(folder: Path, layout: str) -> str:
    """SHA-256 over the bytes of sheets and card, and over names, sizes and times of every other file that is not hidden."""
    total = hashlib.sha256(layout.encode())
    sheets = {folder / CARD, *_LAYOUTS[layout].sources(folder)}
    if not (folder / CARD).is_file():
        total.update(builtin_card(layout)[1].encode())
    for path in _files(folder):
        relative = path.relative_to(folder).as_posix()
        if path in sheets and path.is_file():  # a pipe of that name would be waited for
            stamp = sha256(path)
        else:
            stat = path.stat(follow_symlinks=False)
            stamp = f"{stat.st_size} {stat.st_mtime_ns}"
        total.update(f"{relative}\0{stamp}\0".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(base) / name for name in sorted(files) if not name.startswith("."))


def _checked(graph: ArrayGraph, rows: list[tuple[Question, int]], file: Path, findings: Findings) -> list[Question]:
    """Questions whose root is in the graph; what else is wrong with them becomes findings."""
    places: dict[str, list[int]] = defaultdict(list)
    for question, row in rows:
        places[question.id].append(row)
    for id_, where in places.items():
        if len(where) > 1:
            message = f"the id {id_!r} is used by the rows {', '.join(map(str, where))}; all are kept"
            findings.warn("duplicate-id", message, file, where[1])
    out = []
    for question, row in rows:
        index = graph.find(question.root)
        if index is None or not graph.is_root(index):
            hint = near(question.root, (graph.name(i) for i in graph.roots)) if findings.error_count < HINTS else ""
            what = f"the question {question.id!r} asks about {question.root!r}, which is no root of the graph{hint}"
            findings.error("unknown-root", what, file, row)
            continue
        out.append(question)
        for field in ("text", "answer", "routes"):
            if not getattr(question, field):
                findings.warn(f"no-{field}", f"the question {question.id!r} has no {field}", file, row)
        for route in question.routes:
            problem = resolve_route(graph, route, question.root)
            if isinstance(problem, RouteProblem):
                findings.warn("route-broken", f"{'>'.join(route)}: {problem}", file, row)
    return out
