"""Seeded intervals and paired tests: percentile bootstrap over questions.

Knows numbers only. Question is the unit that is drawn again (238 of them in MH Benchmark), so that every interval says how far the
figure could move with other questions of the same kind.
Try: python -c "from bench.stats import mean_interval; print(mean_interval([1, 0, 1]))"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % percentile interval over `n` questions; all None when there is nothing to average."""

    mean: float | None
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        return "–" if self.mean is None else f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True)
class Paired:
    """Mean of the differences ``a − b`` on the `n` questions that both have, its interval, and the two-sided bootstrap p."""

    a: float | None
    b: float | None
    difference: Interval
    p: float | None

    @property
    def n(self) -> int:
        return self.difference.n


@lru_cache(maxsize=32)
def _weights(n: int, seed: int, resamples: int) -> NDArray[np.float64]:
    """How often each of n questions is drawn in each resample, as fractions; shape (resamples, n). All cells of a table share it."""
    draws = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), size=resamples)
    return draws / n


def _resampled(values: NDArray[np.float64], seed: int, resamples: int) -> NDArray[np.float64]:
    n = len(values)
    if n * resamples <= 4_000_000:
        return _weights(n, seed, resamples) @ values
    rng = np.random.default_rng(seed)
    return np.array([values[rng.integers(0, n, n)].mean() for _ in range(resamples)])


def mean_interval(values: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """Mean and 95 % percentile bootstrap interval; the same seed gives the same interval. Empty in, Nones out."""
    if not len(values):
        return Interval(None, None, None, 0)
    data = np.asarray(values, dtype=np.float64)
    means = _resampled(data, seed, resamples)
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(means, [tail, 100 - tail])
    mean = float(data.mean())
    # float noise must not push the mean out of its own interval when all values are equal
    return Interval(mean, min(float(low), mean), max(float(high), mean), len(data))


def paired(a: Mapping[str, float], b: Mapping[str, float], *, seed: int = 0, resamples: int = RESAMPLES) -> Paired:
    """Compare two runs question by question, on the questions that both have scored."""
    common = sorted(a.keys() & b.keys())
    if not common:
        return Paired(None, None, Interval(None, None, None, 0), None)
    first = np.array([a[k] for k in common], dtype=np.float64)
    second = np.array([b[k] for k in common], dtype=np.float64)
    differences = first - second
    means = _resampled(differences, seed, resamples)
    # +1: the observed sample is itself a draw, so p is never 0
    above, below = int((means >= 0).sum()) + 1, int((means <= 0).sum()) + 1
    p = min(1.0, 2 * min(above, below) / (resamples + 1))
    return Paired(float(first.mean()), float(second.mean()), mean_interval(differences.tolist(), seed=seed, resamples=resamples), p)


@dataclass(frozen=True, slots=True)
class Spread:
    """mean ± standard deviation (sample, n − 1), as the paper's Table 18 prints them."""

    mean: float
    sd: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.sd:.2f}" if self.n else "–"


def spread(values: Sequence[float]) -> Spread:
    """mean ± sd; one value has sd 0, none gives n = 0."""
    n = len(values)
    if not n:
        return Spread(0.0, 0.0, 0)
    mean = sum(values) / n
    sd = sqrt(sum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else 0.0
    return Spread(mean, sd, n)
