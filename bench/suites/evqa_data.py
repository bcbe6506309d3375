"""Encyclopedic-VQA in its published layout: {train,val,test}.csv, pictures by id, answers and how they are compared.

A row's picture is the first of its ids, as in EchoSight and CUE-M. Google Landmarks ids are files (also in their a/b/c/ folders);
iNaturalist ids are looked up in its annotation JSON ({"images": [{"id", "file_name"}]} or {id: name}) where one lies in the folder.
Knows no model. Try: python -m bench evqa --data DIR --limit 4
"""

from __future__ import annotations

import csv
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.records import digest
from bench.suites.items import Data, Item
from models.errors import DataError

SINGLE_HOP = ("templated", "automatic", "multi_answer")
KINDS = (*SINGLE_HOP, "2_hop")
NEEDED = ("question", "answer", "dataset_image_ids", "dataset_name", "question_type", "wikipedia_url")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
LIST_SHARE = 0.5  # upstream: a list is right when intersection over union of its items reaches a half


def read(folder: Path, split: str = "test", images: Path | None = None) -> Data:
    """The single-hop questions of a split. Raises DataError naming file and row."""
    path = folder / f"{split}.csv"
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror}", where=str(path), remedy="give a folder with train.csv, val.csv, test.csv"
        ) from None
    csv.field_size_limit(1 << 24)
    rows = csv.DictReader(raw.decode("utf-8-sig", "replace").splitlines(keepends=True))
    missing = [name for name in NEEDED if name not in (rows.fieldnames or ())]
    if missing:
        raise DataError(f"lacks the columns {', '.join(missing)}", where=str(path), remedy=f"columns: {', '.join(NEEDED)}, …")
    finder, items, hops, total = Pictures(images or folder / "images"), [], 0, 0
    for number, row in enumerate(rows, start=2):
        total += 1
        if row["question_type"] == "2_hop":
            hops += 1
            continue
        items.append(_item(row, number, path, finder))
    if not items:
        raise DataError("holds no single-hop question", where=str(path))
    lost = sum(bool(item.lost) for item in items)
    notes = [f"{hops} two-hop questions are left out, as in the paper."] if hops else []
    notes += [f"{lost} questions name a picture that is not in {finder.folder}: they fail as missing."] if lost else []
    return Data(
        f"Encyclopedic-VQA {split}",
        folder,
        digest(f"{digest(raw.decode('utf-8', 'replace'))} {lost}"),
        SINGLE_HOP,
        tuple(items),
        total,
        tuple(notes),
    )


def _item(row: Mapping[str, str | None], number: int, path: Path, finder: Pictures) -> Item:
    where = f"{path}:{number}"
    kind, answer, question = (row["question_type"] or "").strip(), (row["answer"] or "").strip(), (row["question"] or "").strip()
    if kind not in KINDS:
        raise DataError(f"question_type is {kind!r}", where=where, remedy=f"one of {', '.join(KINDS)}")
    if not answer or not question:
        raise DataError("has no question or no answer", where=where)
    ids = [part.strip() for part in (row["dataset_image_ids"] or "").split("|") if part.strip()]
    name = (row["dataset_name"] or "").strip()
    found = finder.find(ids[0], name) if ids else None
    lost = "" if found else f"{name} {ids[0]}" if ids else "no dataset_image_ids"
    facts = {"kind": kind, "entity": (row["wikipedia_url"] or "").split("|")[0].strip(), "picture": ids[0] if ids else "", "dataset": name}
    return Item(f"{number:06d}", KINDS.index(kind), question, answer, (found,) if found else (), facts=facts, lost=lost)


class Pictures:
    """Where the picture of an id lies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names: dict[str, str] | None = None

    def find(self, id_: str, dataset: str) -> Path | None:
        """The file of an id, None when there is none. An id never leads out of the folder."""
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", id_) or not id_.strip("."):
            return None
        home = "inaturalist" if dataset.casefold().startswith("inat") else "landmarks"
        stems = [
            f"{home}/{id_}",
            id_,
            *([f"{place}{'/'.join(id_[:3])}/{id_}" for place in (f"{home}/", "", "train/")] if len(id_) > 3 else []),
        ]
        for stem in stems:
            for suffix in SUFFIXES:
                path = self.folder / f"{stem}{suffix}"
                if path.is_file():
                    return path
        named = self._annotated().get(id_)
        return self._below(named) if named else None

    def _below(self, name: str) -> Path | None:
        for base in (self.folder, self.folder / "inaturalist"):
            path = (base / name).resolve()
            if path.is_relative_to(self.folder.resolve()) and path.is_file():
                return path
        return None

    def _annotated(self) -> dict[str, str]:
        """id → file name, from every JSON of the folder that holds such a table. Raises DataError for one that is damaged."""
        if self._names is None:
            self._names = {}
            for path in sorted([*self.folder.glob("*.json"), *self.folder.glob("inaturalist/*.json")]):
                self._names |= dict(_table(path))
        return self._names


def _table(path: Path) -> Iterator[tuple[str, str]]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path), remedy="iNaturalist's annotations map ids to files") from None
    rows = raw.get("images") if isinstance(raw, dict) else None
    if isinstance(rows, list):
        yield from ((str(one["id"]), str(one["file_name"])) for one in rows if isinstance(one, dict) and {"id", "file_name"} <= set(one))
    elif isinstance(raw, dict):
        yield from ((str(id_), name) for id_, name in raw.items() if isinstance(name, str))


def references(answer: str) -> list[list[str]]:
    """The annotators' answers, each a list of items (one item but for multi_answer)."""
    found = [[item.strip() for item in one.split("&&") if item.strip()] for one in answer.split("|")]
    return [one for one in found if one]


_NUMBERS = {w: str(i) for i, w in enumerate("zero one two three four five six seven eight nine ten".split())}  # noqa: SIM905


def plain(text: str) -> str:
    """Case, punctuation, articles and number words taken away; any script."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    bare = "".join(" " if ch in "-–—/" else ch for ch in folded if ch in "-–—/" or not unicodedata.category(ch).startswith("P"))
    words = [_NUMBERS.get(word, word) for word in re.sub(r"\b(the answer is|a|an|the)\b", " ", bare).split()]
    return " ".join(words)


def list_share(wanted: Sequence[str], text: str) -> float:
    """Intersection over union of a list's items and the answer's, which are told apart by commas, semicolons, lines and "and"."""
    a = {plain(item) for item in wanted} - {""}
    b = {plain(item) for item in re.split(r"[,;\n•]|\band\b|&+", text)} - {""}
    return len(a & b) / len(a | b) if a | b else 0.0


_CITED = re.compile(r"\s?\[\d{1,3}(?:\s*,\s*\d{1,3})*\]")


def matches(answer: str, kind: str, reply: str) -> bool:
    """Exact match with one of the annotators' answers: the same words, for lists at least half of all items."""
    reply = _CITED.sub("", reply)
    if kind == "multi_answer":
        return any(list_share(one, reply) >= LIST_SHARE for one in references(answer))
    return any(plain(" ".join(one)) == plain(reply) != "" for one in references(answer))
