"""What searches hand out: `Passage`, and reciprocal rank fusion. Knows no index.

Try: python -c "from pipeline.passages import fuse; print(fuse([['a', 'b'], ['b', 'c']]))"
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

from pipeline.documents import Value

T = TypeVar("T", bound=Hashable)
RRF = 60  # Cormack et al. 2009


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document as evidence.

    Attributes:
        id: document id and chunk, unique within its source. document: the document's id.
        source: the collection or application that gave it. score: as its search gave it, comparable within one search only.
        images: paths of the document's pictures. tags: the document's own, human-given tags.
    """

    id: str
    document: str
    source: str
    title: str
    text: str
    score: float = 0.0
    url: str = ""
    date: str = ""
    images: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    attributes: Mapping[str, Value] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        return self.source, self.id

    def scored(self, score: float) -> Passage:
        return replace(self, score=score)


def dump(passages: Iterable[Passage]) -> str:
    """Passages as one JSON text, for a call's reply."""
    return json.dumps([asdict(passage) for passage in passages], ensure_ascii=False)


def parse(text: str) -> tuple[Passage, ...]:
    """The reverse of `dump`."""
    rows = json.loads(text)
    return tuple(Passage(**{**row, "images": tuple(row["images"]), "tags": tuple(row["tags"])}) for row in rows)


def fuse(rankings: Iterable[Sequence[T]], k: int = RRF) -> list[tuple[T, float]]:
    """Reciprocal rank fusion: Σ 1 / (k + rank), best first; ties in the order of first appearance."""
    scores: dict[T, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, start=1):
            scores[item] = scores.get(item, 0.0) + 1.0 / (k + rank)
    return sorted(scores.items(), key=lambda pair: -pair[1])
