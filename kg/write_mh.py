"""Writing the layout of kg/load_mh.py: where sheets hold no kinds, the card's rules are completed so that they come out the same.

Knows no spreadsheet library. Try: python -m kg convert DATA --to mh --out DIR
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from kg.arrays import ArrayGraph
from kg.card import CardFile, Rule, builtin_card
from kg.dataset import Dataset, Question
from kg.graph import Edge, Entity
from kg.load_mh import GRAPH, IMAGES, LIST, NODE_HEADER, NODES, QUESTION_HEADER, QUESTIONS, RELATION_HEADER, RELATIONS, VIDEOS
from kg.media import natural_key
from kg.write_card import write_card
from kg.write_xlsx import write_sheet
from models.errors import DataError


def write_mh(dataset: Dataset, card: CardFile, out: Path) -> None:
    """Folders of roots, the list of questions, dataset.toml.

    Raises:
        DataError: lists the names that the layout cannot hold. OSError: the disk refuses.
    """
    graph = dataset.graph
    if not isinstance(graph, ArrayGraph):
        raise DataError(f"a {type(graph).__name__} cannot be converted")
    entities = [graph.entity(i) for i in range(len(graph))]
    homes = _homes(graph, entities)
    edges = [(e, _sheet_of(graph, e, entities, homes)) for i in range(len(graph)) for e in graph.neighbours(i)]
    refuse(graph, entities, dataset.questions, [e for e, home in edges if home is None])
    write_card(out / "dataset.toml", _with_rules(graph, entities, card))
    used: dict[Path, set[str]] = defaultdict(set)
    nodes, relations = defaultdict[str, list[Sequence[str]]](list), defaultdict[str, list[Sequence[str]]](list)
    for e in sorted(entities, key=lambda e: not graph.is_root(e.index)):
        base = out / GRAPH / homes[e.index]
        images = _copy_pictures(e.images, base / IMAGES, e.name, used)
        video = _copy(e.video, base / VIDEOS, e.name, used) if e.video else ""
        nodes[homes[e.index]].append((e.name, images, video, e.caption, e.info))
    for edge, home in edges:
        relations[home or ""].append((graph.name(edge.source), edge.relation, edge.information, edge.condition, graph.name(edge.target)))
    for root in (graph.name(i) for i in graph.roots):
        write_sheet(out / GRAPH / root / NODES, NODE_HEADER, nodes[root])
        write_sheet(out / GRAPH / root / RELATIONS, RELATION_HEADER, relations[root])
    write_sheet(out / QUESTIONS / LIST, QUESTION_HEADER, [_row(q, out, used) for q in dataset.questions])


def _row(q: Question, out: Path, used: dict[Path, set[str]]) -> tuple[str | int, ...]:
    base = out / QUESTIONS / q.id
    images = _copy_pictures(q.images, base, "picture", used)
    video = _copy(q.video, base, "clip", used) if q.video else ""
    routes = ";".join(">".join(route) for route in q.routes)
    return (q.id, video, images, q.text, q.root, q.extra, q.perception, routes, q.answer, q.task)


def refuse(graph: ArrayGraph, entities: Sequence[Entity], questions: Sequence[Question], crossing: Sequence[Edge]) -> None:
    """Raise one DataError for everything that this layout cannot say."""
    wrong: list[str] = []
    roots = {graph.name(i) for i in graph.roots}
    shared = {e.name for e in entities if not e.owner}
    wrong += [f"{name!r} is no name for a folder" for name in sorted(roots) if not _folder_name(name)]
    for e in entities:
        if not graph.is_root(e.index) and e.name in roots:
            wrong.append(f"{e.name!r} of {e.owner or 'all'!r} has the name of a root")
        elif e.owner and e.name in shared:
            wrong.append(f"{e.name!r} is shared and also of {e.owner!r}")
    for edge in crossing:
        a, b = entities[edge.source], entities[edge.target]
        wrong.append(f"the edge {a.name!r} of {a.owner!r} to {b.name!r} of {b.owner!r} joins two roots' own entities")
    for q in questions:
        if q.has_media and not _folder_name(q.id):
            wrong.append(f"the question's id {q.id!r} is no name for a folder")
        wrong += [f"the route step {s!r} holds ';' or '>'" for route in q.routes for s in route if ";" in s or ">" in s]
    if wrong:
        more = f"\n  … and {len(wrong) - 20} more" if len(wrong) > 20 else ""
        raise DataError("the MH layout cannot hold this data set\n  " + "\n  ".join(wrong[:20]) + more + "\n", remedy="rename these")


def _folder_name(name: str) -> bool:
    return not re.search(r"[/\\\x00]", name) and not name.startswith(".") and 0 < len(name.encode()) < 240


def _homes(graph: ArrayGraph, entities: Sequence[Entity]) -> list[str]:
    """The folder of every entity: its owner's; for shared ones the first root's that an edge joins to them, else the first."""
    first: dict[int, str] = {}
    for e in entities:
        for edge in graph.neighbours(e.index) if e.owner else ():
            first.setdefault(edge.target, e.owner)
    roots = [graph.name(i) for i in graph.roots]
    return [e.owner or first.get(e.index, roots[0]) for e in entities]


def _sheet_of(graph: ArrayGraph, edge: Edge, entities: Sequence[Entity], homes: Sequence[str]) -> str | None:
    """The folder from which both ends can be named; None when there is none."""
    own = [entities[i].owner for i in (edge.source, edge.target) if entities[i].owner and not graph.is_root(i)]
    if len(set(own)) > 1:
        return None
    return own[0] if own else homes[edge.source]


def _with_rules(graph: ArrayGraph, entities: Sequence[Entity], card: CardFile) -> CardFile:
    """The card with rules in front of its own (or of the shipped ones) for every entity that those would read otherwise."""
    base = card.rules or [r for r in builtin_card("mh")[0].rules if r.kind in card.kinds]
    card = card.model_copy(update={"rules": base})
    incoming: dict[int, set[str]] = defaultdict(set)
    for e in entities:
        for edge in graph.neighbours(e.index):
            incoming[edge.target].add(edge.relation)
    odd: dict[str, dict[str, str]] = defaultdict(dict)  # name → owner → kind
    for e in entities:
        if not graph.is_root(e.index):
            fits = card.kind_of(e.name, e.owner, incoming[e.index]) == e.kind and card.is_shared(e.name) == (not e.owner)
            odd[e.name] |= {} if fits else {e.owner: e.kind}
    for e in entities:  # a rule by name reaches homonyms too: then each of them needs its own word
        if e.name in odd and odd[e.name] and not graph.is_root(e.index):
            odd[e.name][e.owner] = e.kind
    own, named = defaultdict[tuple[str, str], list[str]](list), defaultdict[tuple[str, bool], list[str]](list)
    for name, kinds in odd.items():
        if kinds:
            named[next(iter(kinds.values())), "" in kinds].append(name)
        for owner, kind in list(kinds.items())[1:]:
            if kind != next(iter(kinds.values())):
                own[owner, kind].append(name)
    rules = [Rule(kind=kind, names=names, owners=[owner]) for (owner, kind), names in own.items()]
    rules += [Rule(kind=kind, names=names, shared=shared) for (kind, shared), names in named.items()]
    return card.model_copy(update={"rules": [*rules, *base]})


def _copy_pictures(paths: Sequence[Path], base: Path, name: str, used: dict[Path, set[str]]) -> str:
    """One picture as a file, several as a folder whose natural order is theirs; the cell that names it."""
    if len(paths) <= 1:
        return _copy(paths[0], base, name, used) if paths else ""
    cell = _free(base, name, "", used)
    names = [p.name for p in paths]
    if len(set(names)) < len(names) or sorted(names, key=natural_key) != names:
        names = [f"f{i:04d}{p.suffix}" for i, p in enumerate(paths)]
    (base / cell).mkdir(parents=True)
    for path, file in zip(paths, names, strict=True):
        shutil.copy2(path, base / cell / file)
    return cell


def _copy(path: Path, base: Path, name: str, used: dict[Path, set[str]]) -> str:
    cell = _free(base, name, path.suffix, used)
    base.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, base / cell)
    return cell


def _free(base: Path, name: str, suffix: str, used: dict[Path, set[str]]) -> str:
    """A file name after `name` that is still free under `base`."""
    stem = re.sub(r"[^\w .()+-]", "_", name).strip(" .")[:60] or "media"
    number, cell = 1, f"{stem}{suffix}"
    while cell.casefold() in used[base]:
        number += 1
        cell = f"{stem} {number}{suffix}"
    used[base].add(cell.casefold())
    return cell
