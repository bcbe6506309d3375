"""Training data of the relevance classifier: groups of one query and its candidates with gains.

From a query log as CUE-M makes them (shown snippets the natural language inference model is sure of, other documents it is sure are
none, one to four), with BM25's best wrong answers among the negatives. A JSONL row: {"query", "positive": [text…], "negative": [text…],
"gains": [number…] (of the positives, optional), "teacher", "prior": [number…] (of all, optional)}. Knows no network.
Try: python -m pipeline relevance pairs LOG.jsonl COLLECTION OUT.jsonl
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from models.errors import DataError
from pipeline.documents import Notes


@dataclass(frozen=True, slots=True)
class Group:
    """A query and its texts: the positives with their gains first, then negatives (gain 0), the most tempting first.

    `teacher`: another ranker's scores to learn from, or (). `prior`: the first ranking's scores, on which the classifier's are added.
    """

    query: str
    positive: tuple[str, ...]
    negative: tuple[str, ...]
    gains: tuple[float, ...] = ()
    teacher: tuple[float, ...] = ()
    prior: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.query.strip() or not self.positive:
            raise DataError("a group needs a query and at least one positive text")
        if self.gains and len(self.gains) != len(self.positive):
            raise DataError(f"{len(self.gains)} gains for {len(self.positive)} positives", remedy="one each, or none")
        for name in ("teacher", "prior"):
            found, due = len(getattr(self, name)), len(self.positive) + len(self.negative)
            if found not in (0, due):
                raise DataError(f"{found} {name} scores for {due} texts", remedy="one each, or none")

    def draw(self, rng: Random, negatives: int, hard: float = 1.0) -> Drawn:
        """One positive and `negatives` others that rank below it, for one step. With `hard` > 1 so many times more are drawn and the most
        tempting of them kept: what the first ranking puts far down is told apart without learning anything."""
        gains = self.gains or (1.0,) * len(self.positive)
        at = rng.randrange(len(self.positive))
        texts = [*self.positive, *self.negative]
        values = [*gains, *([0.0] * len(self.negative))]
        below = [i for i in range(len(texts)) if values[i] < values[at]]
        drawn = rng.sample(below, min(int(negatives * hard), len(below)))
        if hard > 1:
            drawn = sorted(drawn, key=lambda i: -self.prior[i] if self.prior else i)[:negatives]
        chosen = [at, *drawn]
        teacher, prior = ([row[i] for i in chosen] if row else [] for row in (self.teacher, self.prior))
        return Drawn([texts[i] for i in chosen], [values[i] for i in chosen], teacher, prior)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Texts of one group for one step, with their gains and, where the group has them, teacher's and prior scores."""

    texts: list[str]
    gains: list[float]
    teacher: list[float]
    prior: list[float]


def read_groups(path: Path) -> list[Group]:
    """The groups of a JSONL file. Raises DataError naming file and line."""
    out: list[Group] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path)) from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            lists = {key: tuple(row.get(key) or ()) for key in ("positive", "negative", "gains", "teacher", "prior")}
            out.append(Group(str(row["query"]), **lists))
        except (ValueError, KeyError, TypeError, AttributeError, DataError) as error:
            raise DataError(
                f"is no group: {error}", where=f"{path}:{number}", remedy="see pipeline/relevance/data.py for the keys"
            ) from None
    if not out:
        raise DataError("holds no group", where=str(path))
    return out


def write_groups(groups: Iterable[Group], path: Path) -> int:
    from pipeline.files import replace

    lines = [json.dumps(asdict(group), ensure_ascii=False) for group in groups]
    replace(path, ("\n".join(lines) + "\n").encode())
    return len(lines)


@dataclass(frozen=True, slots=True)
class Filter:
    """CUE-M's thresholds: a snippet is positive above `positive` entailment, another document negative below `negative`."""

    positive: float = 0.9
    negative: float = 0.3
    ratio: int = 4


Entails = Callable[[Sequence[tuple[str, str]]], Sequence[float]]


def from_log(
    log: Iterable[tuple[str, str]], hard: Callable[[str], Sequence[str]], entails: Entails, rules: Filter, notes: Notes
) -> Iterator[Group]:
    """Groups of a query log.

    Args:
        log: (query, the snippet that was shown and taken). hard: query → other documents' texts, the most tempting first (BM25).
        entails: (query, text) pairs → how surely the text entails the query, 0 to 1; any local NLI model.
        rules: thresholds and the number of negatives for a positive. What they drop is counted in `notes`.
    """
    for query, snippet in log:
        others = [text for text in hard(query) if text != snippet]
        scores = entails([(query, snippet), *((query, other) for other in others)])
        if scores[0] <= rules.positive:
            notes.add("snippets below the positive threshold", query[:60])
            continue
        kept = [other for other, score in zip(others, scores[1:], strict=True) if score < rules.negative][: rules.ratio]
        if not kept:
            notes.add("queries without a sure negative", query[:60])
            continue
        yield Group(query, (snippet,), tuple(kept))


def read_log(path: Path) -> Iterator[tuple[str, str]]:
    """(query, snippet) of a JSONL log. Raises DataError naming the line."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
                yield str(row["query"]), str(row["snippet"])
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"needs query and snippet: {error!r}", where=f"{path}:{number}") from None
