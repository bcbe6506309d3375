"""The plain layout for anyone's own graph: three files with named columns, as .csv or .jsonl (docs/data.md).

    entities    name, kind; id, owner, images, video, caption, info
    relations   source, relation, target; information, condition          ends are ids of entities
    questions   id, text, root, answer, routes, task; extra, perception, images, video

Knows no domain. Try: python -m kg check DATA
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kg.build import GraphBuilder
from kg.card import CardFile
from kg.dataset import Question
from kg.findings import HINTS, Findings
from kg.load_mh import split_routes
from kg.media import Media
from kg.names import near
from kg.rows import Line, read_lines

ENTITY = ("id", "name", "owner", "kind", "images", "video", "caption", "info")
RELATION = ("source", "relation", "target", "information", "condition")
QUESTION = ("id", "text", "root", "extra", "perception", "images", "video", "answer", "routes", "task")
_NEEDED = {"entities": ("name", "kind"), "relations": RELATION[:3], "questions": ("id", "text", "root", "answer", "routes", "task")}
_COLUMNS = {"entities": ENTITY, "relations": RELATION, "questions": QUESTION}


def fits(folder: Path) -> bool:
    return any(_candidates(folder, "entities")) or any(_candidates(folder, "relations"))


def sources(folder: Path) -> Iterator[Path]:
    """The sheets."""
    for name in _COLUMNS:
        yield from _candidates(folder, name)


def read_graph(folder: Path, card: CardFile, media: Media, builder: GraphBuilder) -> None:
    """Entities, then relations between their ids."""
    findings, ids = builder.findings, dict[str, int]()
    owners: list[tuple[Line, str]] = []
    for line in _lines(folder, "entities", media, findings):
        name, kind, owner = line.name("name"), line.name("kind"), line.text("owner").strip()
        if not name or not kind:
            continue
        if kind not in card.kinds:
            findings.error("unknown-kind", f"kind {kind!r}; dataset.toml has {', '.join(card.kinds)}", line.file, line.number)
            continue
        if kind == card.root_kind:
            if owner not in ("", name):
                findings.error("root-owner", f"the root {name!r} cannot belong to {owner!r}; leave owner empty", line.file, line.number)
                continue
            owner = name
            builder.mark_root(name)
        elif owner:
            owners.append((line, owner))
        _add(folder, line, name, owner, kind, ids, media, builder)
    for line, owner in owners:
        if builder.find_exact(owner, owner) is None or not builder.is_root(owner):
            findings.error("unknown-owner", f"owner {owner!r} is no root of the graph", line.file, line.number)
    place = ""
    for line in _lines(folder, "relations", media, findings):
        place = place or findings.short(line.file)
        ends = [_end(line, column, ids) for column in ("source", "target")]
        relation = line.name("relation")
        if relation and ends[0] is not None and ends[1] is not None:
            text = (line.text("information"), line.text("condition"))
            builder.edge(ends[0], relation, ends[1], *text, file=place, row=line.number)


def question_file(folder: Path) -> Path:
    return next(iter(_candidates(folder, "questions")), folder / "questions.csv")


def read_questions(folder: Path, card: CardFile, media: Media, findings: Findings) -> list[tuple[Question, int]]:
    """Every row (ids may stand twice), with the numbers of the file's rows."""
    if not any(_candidates(folder, "questions")):
        findings.warn("no-questions", "there is no list of questions (questions.csv or questions.jsonl)", folder)
        return []
    out: list[tuple[Question, int]] = []
    for row, line in enumerate(_lines(folder, "questions", media, findings), start=1):
        id_, root, task = line.name("id"), line.name("root"), _task(line, card)
        if not id_ or not root or task is None:
            continue
        images = _pictures(folder, line, media)
        video = media.clip(folder, line.text("video").strip(), "the clip", line.file, line.number)
        texts = (line.text("text"), root, line.text("extra"), line.text("perception"))
        out.append((Question(id_, row, *texts, images, video, line.text("answer"), _routes(line), task), line.number))
    return out


def _candidates(folder: Path, name: str) -> list[Path]:
    return [path for suffix in (".csv", ".jsonl") if (path := folder / f"{name}{suffix}").is_file()]


def _lines(folder: Path, name: str, media: Media, findings: Findings) -> Iterator[Line]:
    found = _candidates(folder, name)
    if not found:
        findings.error("missing-sheet", f"neither {name}.csv nor {name}.jsonl is there", folder)
        return
    if len(found) > 1:
        findings.error("two-sheets", f"{name}.csv and {name}.jsonl are both there; keep one", folder)
        return
    if not media.inside(found[0], "the sheet", found[0]):
        return
    rows, before = 0, findings.error_count
    for line in read_lines(found[0], _COLUMNS[name], _NEEDED[name], findings):
        rows += 1
        yield line
    if not rows and findings.error_count == before:
        (findings.error if name == "entities" else findings.warn)("empty-sheet", "the sheet holds no row", found[0])


def _add(folder: Path, line: Line, name: str, owner: str, kind: str, ids: dict[str, int], media: Media, builder: GraphBuilder) -> None:
    findings = builder.findings
    id_ = line.text("id").strip() or name
    if id_ in ids:
        what = f"the id {id_!r} is taken by another row" if line.text("id") else f"{name!r} is there already; give both rows an id"
        findings.error("duplicate-id", what, line.file, line.number)
    elif builder.find_exact(name, owner) is not None:
        whose = f"belongs twice to {owner!r}" if owner else "is shared twice"
        findings.error("duplicate-entity", f"the name {name!r} {whose}", line.file, line.number)
    else:
        images = _pictures(folder, line, media)
        video = media.clip(folder, line.text("video").strip(), "the clip", line.file, line.number)
        ids[id_] = builder.add(name, owner, kind, images=images, video=video, caption=line.text("caption"), info=line.text("info"))


def _pictures(folder: Path, line: Line, media: Media) -> tuple[Path, ...]:
    cells = line.many("images", "|")
    return tuple(p for cell in cells for p in media.pictures(folder, cell, "the picture", line.file, line.number))


def _end(line: Line, column: str, ids: dict[str, int]) -> int | None:
    id_ = line.name(column)
    if id_ and id_ not in ids:
        hint = near(id_, ids) if line.findings.error_count < HINTS else ""
        line.findings.error("dangling-edge", f"{column} {id_!r} is no entity's id{hint}", line.file, line.number)
    return ids.get(id_)


def _routes(line: Line) -> tuple[tuple[str, ...], ...]:
    value = line.values.get("routes", "")
    if isinstance(value, str):
        return split_routes(value)
    good = isinstance(value, list) and all(isinstance(r, list) and r and all(isinstance(s, str) for s in r) for r in value)
    if not good or not isinstance(value, list):
        message = 'routes should be a list of lists of names, as [["A", "B"]], or text, as "A>B;A>C"'
        line.findings.error("bad-routes", message, line.file, line.number)
        return ()
    return tuple(tuple(step.strip() for step in route) for route in value if isinstance(route, list))


def _task(line: Line, card: CardFile) -> int | None:
    """A sub-task by name or by number from 0."""
    value = line.values.get("task", "")
    text = value.strip() if isinstance(value, str) else str(value)
    if text in card.tasks:
        return card.tasks.index(text)
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) < len(card.tasks) and not isinstance(value, bool):
        return int(text)
    message = f"task {text[:80]!r}; allowed: 0 to {len(card.tasks) - 1}, or {', '.join(card.tasks)}"
    line.findings.error("bad-number", message, line.file, line.number)
    return None
