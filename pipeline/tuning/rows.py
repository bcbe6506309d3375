"""Labelled samples of one stage, how each is asked, and how a reply is scored. Knows no template and no loop.

A JSONL row holds what the stage is given, by name, and ``label``; see `STAGES` for the keys. Try: python -m pipeline tune --help
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.agents import Call
from models.errors import DataError
from models.requests import Picture
from pipeline.agents import Agents
from pipeline.images import prepare
from pipeline.passages import Passage
from pipeline.replies import Judgement, Queries, Refined, Reply
from pipeline.text_index import terms


@dataclass(frozen=True, slots=True)
class Labelled:
    """One row: `given` by name, the label, its pictures, and where it stands."""

    given: Mapping[str, Any]
    label: Any
    where: str
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True, slots=True)
class _Described:
    name: str
    description: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """A row: the keys of its samples (all but `needed` may be left out), the call for one, and the score of a reply, 0 to 1."""

    keys: frozenset[str]
    needed: frozenset[str]
    label: str
    call: Callable[[Agents, Labelled], Call[Any]]
    good_label: Callable[[Any], bool]
    score: Callable[[Any, Any], float]


RIGHT = 0.5  # the score from which a sample is shown to the writer as one that went well


def overlap(text: str, wanted: str) -> float:
    """F1 of the terms of two texts, each counted once; any script. Two empty texts are alike."""
    a, b = set(terms(text)), set(terms(wanted))
    if not a or not b:
        return float(a == b)
    both = len(a & b)
    return 2 * both / (len(a) + len(b))


def _judged(reply: Judgement, label: bool) -> float:
    return 0.0 if reply.probability is None else float((reply.probability >= 0.5) == label)


def _queries(reply: Queries, label: Sequence[str]) -> float:
    """The label's queries, each against its best match; what the reply asks beyond them costs its share."""
    if reply.unclear:
        return 0.0
    if not label or not reply.queries:
        return float(not label and not reply.queries)
    best = [max(overlap(query, wanted) for query in reply.queries) for wanted in label]
    return sum(best) / max(len(label), len(reply.queries))


def _refined(reply: Refined, label: Mapping[str, str]) -> float:
    if reply.unclear:
        return 0.0
    made = {"intent": reply.intent, "query": reply.query}
    return sum(overlap(made[name], wanted) for name, wanted in label.items()) / len(label)


def _answered(reply: Reply, label: str | None) -> float:
    if label is None or reply.not_found:
        return float(label is None and reply.not_found)
    return overlap(reply.text, label)


def _pairs(row: Labelled, key: str) -> list[tuple[str, str]]:
    return [(str(a), str(b)) for a, b in row.given.get(key, [])]


def _text(row: Labelled, key: str) -> str:
    return str(row.given.get(key, ""))


def _select(agents: Agents, row: Labelled) -> Call[Judgement]:
    app = row.given["application"]
    return agents.select(_Described(str(app["name"]), str(app["description"]), tuple(app.get("examples", ()))), _text(row, "intent"))


def _answer(agents: Agents, row: Labelled) -> Call[Reply]:
    given = [Passage(str(i), str(i), str(p.get("source", "source")), str(p.get("title", "")), str(p["text"]))
             for i, p in enumerate(row.given.get("passages", []), start=1)]  # fmt: skip
    said = (_text(row, "question"), _text(row, "intent"), _text(row, "description"))
    return agents.answer(*said, given, _pairs(row, "history"), row.pictures)


def _is_queries(label: Any) -> bool:
    return isinstance(label, list) and len(label) <= 3 and all(isinstance(q, str) and q.strip() for q in label)


def _is_refined(label: Any) -> bool:
    good = isinstance(label, dict) and bool(label) and set(label) <= {"intent", "query"}
    return good and all(isinstance(v, str) and v.strip() for v in label.values())


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


STAGES: Mapping[str, Stage] = {
    "describe": Stage(
        _keys("images"),
        _keys("images"),
        "a text",
        lambda a, r: a.describe(r.pictures),
        lambda x: isinstance(x, str) and bool(x.strip()),
        overlap,
    ),
    "refine": Stage(
        _keys("question description found history"),
        frozenset(),
        'an object of "intent" and "query", or one of them',
        lambda a, r: a.refine(_text(r, "question"), _text(r, "description"), _pairs(r, "found"), _pairs(r, "history")),
        _is_refined,
        _refined,
    ),
    "queries": Stage(
        _keys("intent found history"),
        _keys("intent"),
        "a list of up to three queries",
        lambda a, r: a.queries(_text(r, "intent"), _pairs(r, "found"), _pairs(r, "history")),
        _is_queries,
        _queries,
    ),
    "select": Stage(
        _keys("application intent"), _keys("application intent"), "true or false", _select, lambda x: isinstance(x, bool), _judged
    ),
    "detect": Stage(
        _keys("intent question"),
        _keys("intent"),
        "true (safe) or false",
        lambda a, r: a.detect(_text(r, "intent"), _text(r, "question")),
        lambda x: isinstance(x, bool),
        _judged,
    ),
    "answer": Stage(
        _keys("question intent description passages history images"),
        frozenset(),
        "a text, or null where the sources do not tell",
        _answer,
        lambda x: x is None or (isinstance(x, str) and bool(x.strip())),
        _answered,
    ),
}


def read_rows(path: Path, stage: str, store: Path) -> list[Labelled]:
    """The rows of a file. Raises DataError naming the line of the first fault, or ConfigError's kin for pictures."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path), remedy="give JSONL in UTF-8") from None
    out = [_row(line, STAGES[stage], f"{path}:{n}", path.parent, store) for n, line in enumerate(lines, start=1) if line.strip()]
    if len(out) < 4:
        raise DataError(f"holds {len(out)} samples", where=str(path), remedy="give four or more: two to learn from, two to choose by")
    return out


def _row(line: str, stage: Stage, where: str, folder: Path, store: Path) -> Labelled:
    remedy = f"keys: {', '.join(sorted(stage.keys))} and label, {stage.label}"
    try:
        raw = json.loads(line)
    except ValueError as error:
        raise DataError(f"is not JSON: {error}", where=where, remedy="one object a line") from None
    if not isinstance(raw, dict) or "label" not in raw:
        raise DataError("has no label", where=where, remedy=remedy)
    given = {key: value for key, value in raw.items() if key != "label"}
    if set(given) - stage.keys or stage.needed - set(given) or not given:
        odd = sorted(set(given) - stage.keys) or sorted(stage.needed - set(given)) or ["every key"]
        raise DataError(f"{'unknown key' if set(given) - stage.keys else 'lacks'} {', '.join(odd)}", where=where, remedy=remedy)
    if not stage.good_label(raw["label"]):
        raise DataError(f"label is {json.dumps(raw['label'], ensure_ascii=False)[:60]}", where=where, remedy=remedy)
    _shapes(given, where)
    return Labelled(given, raw["label"], where, tuple(prepare(folder / str(name), store) for name in given.get("images", ())))


def _shapes(given: Mapping[str, Any], where: str) -> None:
    """Lists of pairs, of passages, an application with name and description; everything else a text."""

    def pair(x: Any) -> bool:
        return isinstance(x, list) and len(x) == 2

    kinds: Mapping[str, tuple[Callable[[Any], bool], str]] = {
        **dict.fromkeys(("found", "history"), (lambda v: isinstance(v, list) and all(map(pair, v)), "a list of pairs of texts")),
        "passages": (lambda v: isinstance(v, list) and all(isinstance(p, dict) and "text" in p for p in v), 'a list of {"title", "text"}'),
        "application": (lambda v: isinstance(v, dict) and {"name", "description"} <= set(v), '{"name", "description", "examples"}'),
        "images": (lambda v: isinstance(v, list) and all(isinstance(x, str) for x in v), "a list of files beside the data"),
    }
    for key, value in given.items():
        good, what = kinds.get(key, (lambda v: isinstance(v, str), "a text"))
        if not good(value):
            raise DataError(f"{key} is {type(value).__name__}", where=where, remedy=f"give {what}")
