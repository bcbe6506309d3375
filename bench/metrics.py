"""What is measured of one answered question, and what a table cell shows: accuracy, path precision and recall, topic accuracy, similarity.

A measure is a row: its exact name, and a function from (record, score) to a value or None; None is "not measurable here", counted apart
and never a zero. Paths follow MH-MMKG, section 8.2, equations 13 and 14: root-to-leaf walks, matched one to one, exactly.
Try: python -c "from bench.metrics import path_scores; print(path_scores([(0, 1)], [(0, 1), (0, 2)]))"
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.records import Record, Score
from bench.stats import Interval, mean_interval

Nodes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PathScores:
    """|L̂ ∩ L| / |L̂| and |L̂ ∩ L| / |L|; both None when there is no gold route to find."""

    precision: float | None
    recall: float | None


def path_scores(gold: Iterable[Nodes], found: Iterable[Nodes]) -> PathScores:
    """Equations 13 and 14 over sets of walks. Nothing found is precision 0 and recall 0; nothing to find is None for both."""
    wanted, got = set(gold), set(found)
    if not wanted:
        return PathScores(None, None)
    hits = len(wanted & got)
    return PathScores(hits / len(got) if got else 0.0, hits / len(wanted))


def digest_free(text: str, name: str = "") -> tuple[str, ...]:
    """What two spellings of one answer share, for ``--judge exact``: Unicode form, case, outer punctuation, the order of a list's items,
    and the root's name before an item ("Zinogre Leap Attack" is "Leap Attack", as the paper's judge is told)."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    who = unicodedata.normalize("NFKC", name).casefold()
    items = []
    for item in re.split(r"[;,\n]|\band\b", folded):
        item = re.sub(r"\s+", " ", item).strip(" \t.。!\"'`*_‘’“”")
        if who and item.startswith(who + " "):
            item = item[len(who) + 1 :]
        if item:
            items.append(item)
    return tuple(sorted(items))


def exact(gold: str, predicted: str, name: str = "") -> bool:
    """Whether the two answers are the same words, in the sense of `digest_free`."""
    return digest_free(gold, name) == digest_free(predicted, name)


@dataclass(frozen=True)
class Measure:
    """A value of one question. `empty` says in words when it has none."""

    name: str
    label: str
    of: Callable[[Record, Score | None], float | None]
    empty: str

    def __str__(self) -> str:
        return self.name


def _accuracy(record: Record, score: Score | None) -> float | None:
    return None if score is None or score.value is None else float(score.value)


def _paths(pick: Callable[[PathScores], float | None]) -> Callable[[Record, Score | None], float | None]:
    def value(record: Record, score: Score | None) -> float | None:
        return pick(path_scores(record.gold, record.walks)) if record.ok and record.searched else None

    return value


def _topic(record: Record, score: Score | None) -> float | None:
    if not record.ok or not record.searched or record.gold_topic is None:
        return None
    return float(record.topic == record.gold_topic)


def _similarity(record: Record, score: Score | None) -> float | None:
    known = [v for v in score.captions.values() if v is not None] if score is not None else []
    return sum(known) / len(known) if known else None


MEASURES: Mapping[str, Measure] = {
    m.name: m
    for m in (
        Measure("acc", "Acc", _accuracy, "the sample failed, or the judge's reply was no verdict"),
        Measure("pre", "Pre", _paths(lambda p: p.precision), "nothing was searched, or the question has no gold route"),
        Measure("rec", "Rec", _paths(lambda p: p.recall), "nothing was searched, or the question has no gold route"),
        Measure("topic", "Top", _topic, "nothing was searched, or the root is not in the graph"),
        Measure("sim", "Sim", _similarity, "no generated caption was compared with a human one"),
    )
}


@dataclass(frozen=True)
class Cell:
    """One measure over one group of questions.

    Attributes:
        interval: over the questions that have a value. total: all questions of the group, with or without one.
    """

    measure: str
    interval: Interval
    total: int

    @property
    def over_total(self) -> float | None:
        """The same sum over all questions of the group: what is unscored or failed counts as not achieved."""
        if self.interval.mean is None:
            return 0.0 if self.total and self.measure == "acc" else None
        return self.interval.mean * self.interval.n / self.total if self.total else None


def values(records: Sequence[Record], scores: Mapping[str, Score], measure: Measure) -> dict[str, float]:
    """uid → value, for the questions that have one. The key is Question.uid: two rows of one published id stay two."""
    found = {}
    for record in records:
        value = measure.of(record, scores.get(record.key))
        if value is not None:
            found[record.uid] = value
    return found


def cell(records: Sequence[Record], scores: Mapping[str, Score], measure: Measure, *, seed: int = 0) -> Cell:
    """The measure's mean and interval over these records."""
    return Cell(measure.name, mean_interval(list(values(records, scores, measure).values()), seed=seed), len(records))
