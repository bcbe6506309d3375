"""`python -m kg show DATA NAME [--owner ROOT]`: an entity, what it leads to, and what is like-named elsewhere.

Data with errors is shown as far as it can be read; that something is left out is said.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

import numpy as np

from kg.arrays import ArrayGraph
from kg.load import load
from models.errors import DataError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("data", type=Path, help="a data set's folder or a compiled file")
    parser.add_argument("name", nargs="?", help="an entity's name; without it the roots are listed")
    parser.add_argument("--owner", default="", help="the root whose entity is meant")


def run(args: argparse.Namespace) -> int:
    """Print the entity. Raises: DataError naming the nearest names."""
    dataset = load(args.data, strict=False)
    graph = dataset.graph
    assert isinstance(graph, ArrayGraph)
    errors = [finding for finding in dataset.findings if finding.level == "error"]
    if errors:
        left_out = f"{len(errors)} errors in the data, and what they touch is left out, first: {errors[0]}"
        print(f"note: {args.data}: {left_out} — python -m kg check {args.data} lists them all", file=sys.stderr)
    if args.name is None:
        if not graph.roots:
            remedy = f"python -m kg check {args.data} says what is missing"
            raise DataError(f"no {dataset.card.root_kind} at which a search could start", where=str(args.data), remedy=remedy)
        print("\n".join(graph.name(i) for i in graph.roots))
        return 0
    found = _all(graph, args.name, args.owner)
    if not found:
        names = {graph.text(n) for n in np.unique(graph.arrays["name"]).tolist()}
        near = difflib.get_close_matches(args.name, sorted(names)[:200_000], n=5)
        whose = f" of {args.owner!r}" if args.owner else ""
        remedy = f"near: {', '.join(near)}" if near else "`show DATA` lists the roots"
        raise DataError(f"no entity {args.name!r}{whose}", where=str(args.data), remedy=remedy)
    print("\n\n".join(_text(graph, index, dataset.folder) for index in found))
    return 0


def _all(graph: ArrayGraph, name: str, owner: str) -> list[int]:
    if owner:
        found = graph.find(name, owner)
        return [] if found is None else [found]
    number = graph.number(name)
    return [] if number is None else [int(i) for i in np.flatnonzero(graph.arrays["name"] == number)]


def _text(graph: ArrayGraph, index: int, folder: Path) -> str:
    e = graph.entity(index)
    lines = [f"{e.name}   ({e.kind}{f' of {e.owner}' if e.owner else ', shared'})"]
    lines += [f"  caption: {e.caption}"] if e.caption else []
    lines += [f"  info: {e.info}"] if e.info else []
    lines += [f"  media: {p.relative_to(folder)}" for p in (*e.images, e.video) if p is not None]
    for v in graph.neighbours(index):
        extra = "".join(f" [{text}]" for text in (v.condition, v.information) if text)
        lines.append(f"  {v.relation} → {graph.name(v.target)}{extra}")
    return "\n".join(lines)
