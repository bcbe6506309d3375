"""The layout in which MH-MMKG is published: a folder of two sheets and media per root, and one list of questions.

    mmkg/<Root>/Node.xlsx           entity, picture or folder of keyframes, clip, human caption, additional information
    mmkg/<Root>/Relations.xlsx      entity, relation, information, condition, entity
    mmkg/<Root>/Knowledge_Images/…  mmkg/<Root>/Knowledge_Videos/…
    questions_mh/question_list.xlsx and questions_mh/<File>/…

Columns count by position and names are local to their folder; roots' names, and names that a shared rule of the card fits, mean
the same entity everywhere. Knows no spreadsheet library and no game. Try: python -m kg check DATA
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kg.build import GraphBuilder
from kg.card import CardFile
from kg.dataset import Question
from kg.findings import HINTS, Findings
from kg.media import Media, natural_key
from kg.names import near
from kg.sheets import Row, read_sheet

GRAPH, QUESTIONS, LIST = "mmkg", "questions_mh", "question_list.xlsx"
NODES, RELATIONS, IMAGES, VIDEOS = "Node.xlsx", "Relations.xlsx", "Knowledge_Images", "Knowledge_Videos"
NODE_HEADER = ("Entity", "Images", "Video", "Action Description", "Additional Information")
RELATION_HEADER = ("Entity 1", "Relation", "Information", "Condition", "Entity 2")
QUESTION_HEADER = (
    "File", "Video", "Image", "Question", "Monster Name", "Extra Information", "Perception", "Search Route", "Answer", "Type",
)  # fmt: skip


def fits(folder: Path) -> bool:
    return (folder / GRAPH).is_dir()


def sources(folder: Path) -> Iterator[Path]:
    """The sheets."""
    yield from sorted((folder / GRAPH).glob("*/*.xlsx"))
    yield from sorted((folder / QUESTIONS).glob("*.xlsx"))


def read_graph(folder: Path, card: CardFile, media: Media, builder: GraphBuilder) -> None:
    """All folders' entities, then all folders' edges, then kinds."""
    findings = builder.findings
    roots = _root_folders(folder / GRAPH, media, findings)
    for root in roots:
        builder.mark_root(root.name.strip())
    for root in roots:
        _read_nodes(root, card, media, builder)
    for root in roots:
        _read_relations(root, card, builder)
    incoming = builder.incoming()
    for index, name, owner in builder.pairs():
        kind = card.root_kind if name == owner and builder.is_root(name) else card.kind_of(name, owner, incoming.get(index, ()))
        if kind is None:
            findings.error("no-kind", f"no rule of the card fits the entity {name!r} of {owner!r}; add one to dataset.toml")
        else:
            builder.set_kind(index, kind)


def question_file(folder: Path) -> Path:
    return folder / QUESTIONS / LIST


def read_questions(folder: Path, card: CardFile, media: Media, findings: Findings) -> list[tuple[Question, int]]:
    """The list, every row of it (a published id may stand twice), with the numbers of the sheet's rows."""
    file = question_file(folder)
    if not file.is_file():
        findings.warn("no-questions", f"there is no list of questions at {QUESTIONS}/{LIST}", folder)
        return []
    if not media.inside(file, "the list of questions", file):
        return []
    out = []
    for row in read_sheet(file, QUESTION_HEADER, findings):
        name, root, task = row.name(0), row.name(4), row.count(9, len(card.tasks))
        if not name or not root or task is None:
            continue
        base = file.parent / name
        base_fits = not (row.path(1) or row.path(2)) or media.inside(base, "the folder", file, row.number)
        video = media.clip(base, row.path(1), "the clip", file, row.number) if base_fits else None
        images = media.pictures(base, row.path(2), "the picture", file, row.number) if base_fits else ()
        routes = split_routes(row.text(7))
        texts = (row.text(3), root, row.text(5), row.text(6))
        out.append((Question(name, row.number - 1, *texts, images, video, row.text(8), routes, task), row.number))
    return out


def split_routes(cell: str) -> tuple[tuple[str, ...], ...]:
    """``A>B;A>C`` → (("A", "B"), ("A", "C")), without outer spaces and empty routes."""
    routes = (tuple(step.strip() for step in route.split(">")) for route in cell.split(";"))
    return tuple(route for route in routes if any(route))


def _root_folders(graph: Path, media: Media, findings: Findings) -> list[Path]:
    here = [p for p in sorted(graph.iterdir(), key=lambda p: natural_key(p.name)) if not p.name.startswith(".")]
    for broken in (p for p in here if p.is_symlink() and not p.exists()):
        findings.error("missing-sheet", "is a link that leads nowhere, and a root may stand behind it", broken)
    folders = [p for p in here if p.is_dir()]
    if not folders:
        findings.error("empty-folder", "holds no folder of a root; each needs Node.xlsx and Relations.xlsx", graph)
    good = []
    for root in folders:
        lacks = [name for name in (NODES, RELATIONS) if not (root / name).is_file()]
        for name in lacks:
            findings.error("missing-sheet", f"the sheet {name} is missing", root)
        if not lacks and all(media.inside(p, "the sheet", p) for p in (root / NODES, root / RELATIONS)):
            good.append(root)
    return good


def _read_nodes(root: Path, card: CardFile, media: Media, builder: GraphBuilder) -> None:
    file, own, findings = root / NODES, root.name.strip(), builder.findings
    here: set[tuple[str, str]] = set()
    before = findings.error_count
    for row in read_sheet(file, NODE_HEADER, findings):
        name = row.name(0)
        if not name:
            continue
        owner = name if builder.is_root(name) else "" if card.is_shared(name) else own
        images = media.pictures(root / IMAGES, row.path(1), "the picture", file, row.number)
        video = media.clip(root / VIDEOS, row.path(2), "the clip", file, row.number)
        caption, info = row.text(3), row.text(4)
        there = builder.find_exact(name, owner)
        if there is None:
            builder.add(name, owner, images=images, video=video, caption=caption, info=info)
        else:
            lost = builder.merge(there, images=images, video=video, caption=caption, info=info)
            _repeated(row, name, lost, (name, owner) in here)
        here.add((name, owner))
    if not here and findings.error_count == before:
        findings.error("empty-sheet", "the sheet holds a header and no entity", file)
    if builder.find_exact(own, own) is None:
        builder.add(own, own)
        if here:
            findings.warn("no-root-row", f"no row is named {own!r} after its folder; the root is added without text or media", file)


def _repeated(row: Row, name: str, lost: list[str], here: bool) -> None:
    """A name that two folders share may differ in what they say of it; one sheet must not."""
    if here and lost:
        row.findings.error("duplicate-entity", f"{name!r} stands here twice with different {', '.join(lost)}", row.file, row.number)
    elif here:
        row.findings.warn("duplicate-entity", f"{name!r} stands here twice; read once", row.file, row.number)
    elif lost:
        message = f"the shared entity {name!r} has another {', '.join(lost)} in an earlier folder, which stays"
        row.findings.warn("shared-differs", message, row.file, row.number)


def _read_relations(root: Path, card: CardFile, builder: GraphBuilder) -> None:
    file, own, findings, rows = root / RELATIONS, root.name.strip(), builder.findings, 0
    before, place = findings.error_count, findings.short(file)
    for row in read_sheet(file, RELATION_HEADER, findings):
        rows += 1
        source, relation, target = row.name(0), row.name(1), row.name(4)
        if not (source and relation and target):
            continue
        ends = [builder.find(name, own) for name in (source, target)]
        for name, end in zip((source, target), ends, strict=True):
            if end is None:
                hint = near(name, (n for _, n, o in builder.pairs() if o in (own, "", n))) if findings.error_count < HINTS else ""
                message = f"{name!r} is no entity of {own!r}, no shared entity and no root{hint}; add it to {NODES}"
                findings.error("dangling-edge", message, file, row.number)
        if ends[0] is not None and ends[1] is not None:
            builder.edge(ends[0], relation, ends[1], row.text(2), row.text(3), file=place, row=row.number)
    if not rows and findings.error_count == before:
        findings.warn("empty-sheet", "the sheet holds a header and no relation", file)
