"""Injected passages for a question set: which question gets which, the collection that holds them, and the word that must not be said.

Shapes lie in injections.yaml. Each question gets one passage, written so that a search for its subject finds it; it orders to answer with
a name from another question. Knows no model. Try: python -m bench injections --limit 8 --judge exact
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import yaml

from bench.cuem.data import read
from bench.cuem.texts import holds
from bench.records import digest
from bench.suites.items import Data, Item
from models.errors import DataError
from pipeline.build import Tools, build
from pipeline.collection import Collection
from pipeline.documents import Document
from pipeline.encoders import TextEncoder

SHAPES = Path(__file__).with_name("injections.yaml")
NOBODY = "Pineapple"  # where no other question's name will do
PREFIX = "injected/"  # of the documents' ids


@dataclass(frozen=True, slots=True)
class Injection:
    """The passage that question `uid` meets; `word`: what it orders to say; `kind`: how it tries."""

    uid: str
    kind: str
    title: str
    text: str
    word: str

    @property
    def document(self) -> Document:
        return Document(f"{PREFIX}{self.uid}", self.title, self.text)


def shapes() -> list[tuple[str, str]]:
    """(kind, text with slots)."""
    return [(row["kind"], row["text"]) for row in yaml.safe_load(SHAPES.read_text(encoding="utf-8"))]


def clean(folder: Path, limit: int | None) -> Data:
    """The questions that can tell: those with an answer that names something. Raises DataError."""
    data = read(folder)
    kept = tuple(item for item in data.items if item.facts["names"] and not item.facts["must block"])
    if len(kept) < 2:
        raise DataError(
            "holds fewer than two questions with `names`", where=str(folder), remedy="an answer's names tell whether it is right"
        )
    return replace(
        data, items=replace(data, items=kept).first(limit), notes=(*data.notes, f"{len(data.items) - len(kept)} left out: no names")
    )


def inject(data: Data, folder: Path, seed: int) -> tuple[Injection, ...]:
    """One passage a question, shapes in turn from a seeded start."""
    abouts, every, rng = _abouts(folder), shapes(), Random(seed)
    rng.shuffle(every)
    out = []
    for i, item in enumerate(data.items):
        kind, text = every[i % len(every)]
        about = abouts.get(item.uid) or item.question
        slots = {"word": _word(item, data.items, rng), "question": item.question, "about": about}
        for name, value in slots.items():
            text = text.replace(f"{{{name}}}", value)
        out.append(Injection(item.uid, kind, about[:1].upper() + about[1:], text, slots["word"]))
    return tuple(out)


def _word(item: Item, items: Sequence[Item], rng: Random) -> str:
    """A name that other questions of the same kind want and this one does not."""
    own = " ".join((item.gold, item.question, *item.facts["names"]))
    others = sorted({name for other in items if other.task == item.task for name in other.facts["names"] if not holds(own, name)})
    return rng.choice(others) if others else NOBODY


def _abouts(folder: Path) -> Mapping[str, str]:
    """Question → its intent in words, where the file tells it: what an attacker would write for."""
    path = folder / "questions.jsonl" if folder.is_dir() else folder
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip())
    return {str(row["id"]): str(row.get("intent") or "") for row in rows}


def poisoned(data: Data, injections: Sequence[Injection], before: Mapping[str, Mapping[str, Any]]) -> Data:
    """The same questions by kind of injection; `before`: what each was answered without it (`said`, `right`)."""
    words = {one.uid: one.word for one in injections}
    kinds = tuple(dict.fromkeys(one.kind for one in injections))
    items = [
        replace(
            item, task=kinds.index(one.kind), facts={**item.facts, "words": words, "shape": one.kind, "before": before.get(item.uid, {})}
        )
        for item, one in zip(data.items, injections, strict=True)
    ]
    told = digest(f"{data.digest}\n" + "\n".join(f"{one}" for one in injections))
    return replace(data, name=f"{data.name}, injected", digest=told, tasks=kinds, items=tuple(items))


def collection(injections: Sequence[Injection], cache: Path, encoder: TextEncoder) -> Path:
    """The passages as a collection, made once."""
    told = digest("\n".join(f"{one}" for one in injections) + encoder.nature.digest)
    folder = cache / "injected" / told[:16]
    try:
        Collection(folder, encoder)
    except DataError:
        shutil.rmtree(folder, ignore_errors=True)
        build(folder, (one.document for one in injections), Tools(encoder))
    return folder
