"""What a run writes, one JSON line per answered question, and what judging adds: `Record`, `Score`.

Knows no model. JSON keeps answers of any length and any control character; a line that a kill tore off is dropped when read, and
its sample is finished again from the journal. Try: head -1 runs/*/samples.jsonl
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Set
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, Self

from bench.shapes import misfit
from models.errors import RunError


@dataclass(frozen=True)
class Record:
    """One question in one row of a run.

    Attributes:
        row: the label of the row (a setting's name, or a row of the ablation grid). uid, task: of the question.
        ok: whether an answer was made; if not, `stage`, `reason` and `detail` say where and why it was lost.
        question, gold_answer, answer: texts, whole. root: the root's name, for `--judge exact`. perceived: the perceiver's text.
        searched: whether the row searched the graph. topic, gold_topic: entity numbers. gold, walks: as entity numbers; `names`
        are the walks in words. captions: entity number → what a model wrote about its clip.
        calls, reused, rounds, seconds, wall: cost. `seconds` sums the calls' own times, `wall` is what this process waited.
        dropped, unclear: names off the list, replies not understood. limits: the limits that were hit.
        facts: what a suite of bench/suites notes beside, as JSON holds it.
    """

    row: str
    uid: str
    task: int
    ok: bool
    question: str
    gold_answer: str
    root: str = ""
    answer: str = ""
    stage: str = ""
    reason: str = ""
    detail: str = ""
    perceived: str = ""
    searched: bool = False
    topic: int | None = None
    gold_topic: int | None = None
    gold: tuple[tuple[int, ...], ...] = ()
    walks: tuple[tuple[int, ...], ...] = ()
    names: tuple[str, ...] = ()
    captions: Mapping[int, str] = field(default_factory=dict)
    calls: int = 0
    reused: int = 0
    rounds: int = 0
    seconds: float = 0.0
    wall: float = 0.0
    dropped: int = 0
    unclear: int = 0
    limits: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Row and uid: unique in a run."""
        return f"{self.row}|{self.uid}"

    @property
    def answer_digest(self) -> str:
        return digest(self.answer)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=True)

    @classmethod
    def from_json(cls, line: str) -> Self:
        """The record in a line. Raises ValueError for what is none, as a line that was edited by hand."""
        raw: dict[str, Any] = json.loads(line)
        due = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
        _fitting(raw, {f.name: _RECORD[f.type] for f in fields(cls)}, due)
        for name in ("gold", "walks"):
            raw[name] = tuple(tuple(walk) for walk in raw.get(name, ()))
        for name in ("names", "limits"):
            raw[name] = tuple(raw.get(name, ()))
        raw["captions"] = {int(k): v for k, v in raw.get("captions", {}).items()}
        return cls(**raw)


# How JSON holds what a field's hint says.
_RECORD: Mapping[Any, Any] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": float,
    "int | None": (int, NoneType),
    "tuple[tuple[int, ...], ...]": [[int]],
    "tuple[str, ...]": [str],
    "Mapping[int, str]": {str: str},
    "Mapping[str, Any]": {str: object},
}
SCORE: Mapping[str, Any] = {
    "key": str,
    "answer_digest": str,
    "value": (bool, NoneType),
    "reason": str,
    "captions": {str: (bool, NoneType)},
}


@dataclass(frozen=True)
class Score:
    """A judge's verdict on one record. `value` None is unscored, with a reason; `answer_digest` is that of the judged answer.

    `captions`: entity number → whether the generated caption is similar to the human one (None: could not tell).
    """

    key: str
    answer_digest: str
    value: bool | None
    reason: str = ""
    captions: Mapping[int, bool | None] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """The score in a mapping of JSON. Raises ValueError for what is none."""
        _fitting(raw, SCORE, {"key", "answer_digest", "value"})
        return cls(**{**raw, "captions": {int(k): v for k, v in raw.get("captions", {}).items()}})


def _fitting(raw: object, shape: Mapping[str, Any], due: Set[str]) -> None:
    """Raises ValueError unless `raw` is a mapping of these fields, those that are `due` among them."""
    if wrong := misfit(raw, {name: object for name in shape if name in due}):
        raise ValueError(wrong)
    assert isinstance(raw, dict)
    if unknown := sorted(raw.keys() - shape.keys()):
        raise ValueError(f"unknown fields {unknown}")
    if wrong := misfit(raw, {name: shape[name] for name in raw}):
        raise ValueError(wrong)


def digest(text: str) -> str:
    """sha256 of a text, the first 16 hex digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_records(path: Path) -> dict[str, Record]:
    """key → record. A torn last line is dropped and cut off the file; a torn line elsewhere is an error that names it."""
    try:
        raw = path.read_bytes()
        whole, _, torn = raw.rpartition(b"\n")
        if torn:
            with path.open("r+b") as file:
                file.truncate(len(whole) + 1 if whole else 0)
    except FileNotFoundError:
        return {}
    except OSError as error:
        remedy = "make it a file that can be read and written, or move it away: its samples are finished again from the journal"
        raise RunError(f"cannot be read: {error.strerror}", where=str(path), remedy=remedy) from None
    found: dict[str, Record] = {}
    for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
        if not line.strip():  # an editor's
            continue
        try:
            record = Record.from_json(line.decode())
        except (ValueError, TypeError, RecursionError) as error:
            remedy = "remove the line; its sample is finished again from the journal"
            raise RunError(f"line {number} cannot be read: {error}", where=str(path), remedy=remedy) from None
        found[record.key] = record
    return found


class RecordWriter:
    """Appends records. A line survives the death of the process; what a power cut takes is finished again from the journal."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")

    def write(self, record: Record) -> None:
        self._file.write(record.to_json().encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        with self._file:
            os.fsync(self._file.fileno())


def by_row(records: Iterable[Record]) -> dict[str, list[Record]]:
    """row → its records, rows in the order of first appearance, records by uid."""
    rows: dict[str, list[Record]] = {}
    for record in records:
        rows.setdefault(record.row, []).append(record)
    return {row: sorted(found, key=lambda r: r.uid) for row, found in rows.items()}
