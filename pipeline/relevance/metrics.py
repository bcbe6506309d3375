"""Measures of a ranking. Each prints as its own exact name and knows its empty case.

Try: python -c "from pipeline.relevance.metrics import *; print(NDCG(10), NDCG(10)(['a', 'b'], {'b': 4}))"
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class NDCG:
    """Normalised discounted cumulative gain at `k`, linear gains. A query without relevant documents has none (None)."""

    k: int

    def __str__(self) -> str:
        return f"nDCG@{self.k}"

    def __call__(self, ranked: Sequence[T], gains: Mapping[T, float]) -> float | None:
        ideal = sum(g / math.log2(i + 2) for i, g in enumerate(sorted(gains.values(), reverse=True)[: self.k]))
        got = sum(gains.get(item, 0.0) / math.log2(i + 2) for i, item in enumerate(ranked[: self.k]))
        return got / ideal if ideal > 0 else None


@dataclass(frozen=True, slots=True)
class MRR:
    """The reciprocal rank of the first relevant document; 0 when none is ranked, None when there is none."""

    def __str__(self) -> str:
        return "MRR"

    def __call__(self, ranked: Sequence[T], gains: Mapping[T, float]) -> float | None:
        if not any(g > 0 for g in gains.values()):
            return None
        return next((1.0 / rank for rank, item in enumerate(ranked, start=1) if gains.get(item, 0.0) > 0), 0.0)


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of those that are; None of nothing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
