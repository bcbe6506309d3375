"""Win rates against the bare model: every answer is compared with the bare model's on the same question, in both orders.

A comparison's value is the mean over the orders: 1 won, 0.5 alike, 0 lost; answers of the same words are alike without asking. The
standard error comes from subsamples of 100 questions, as in CUE-M's ablation table. Journalled with the run; kept in one file a judge.

    python -m bench cuem --judge exact
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from bench.cuem.prefer import EQUAL, FIRST, SECOND, UNCLEAR, Preference, bare
from bench.cuem.texts import entity_recall, folded, rouge_l
from bench.folder import RunFolder
from bench.records import Record, digest
from models.agents import Episode, ask
from models.drivers import Outcome, run
from models.engines import Engine
from models.journal import Journal
from models.progress import progress

BARE: Final = "mllm"  # the row that the others are compared with
SUBSAMPLE, DRAWS = 100, 1000
_VALUE: Final = {FIRST: 1.0, SECOND: 0.0, EQUAL: 0.5, UNCLEAR: 0.5}


@dataclass(frozen=True)
class Comparer:
    """Who compares. Without an engine it is the rule `by_rule`."""

    label: str
    digest: str
    itself: bool = False
    engine: Callable[[], Engine] | None = None
    wording: Preference | None = None

    @property
    def hash8(self) -> str:
        return self.digest[:8]


@dataclass(frozen=True)
class Win:
    """One comparison. `orders`: the judge's words when the row's answer stood first, and second; () where nobody was asked.

    `value` None: there is no answer of one side, or the judge's call failed, with the reason.
    """

    key: str
    answers: str
    value: float | None
    orders: tuple[str, ...] = ()
    reason: str = ""


def by_rule(gold: str, names: Sequence[str], first: str, second: str) -> str:
    """The rule of `--judge exact`: more of the reference's names, then the higher ROUGE-L."""

    def worth(text: str) -> tuple[float, float]:
        return entity_recall(names, text) or 0.0, round(rouge_l(gold, text) or 0.0, 6)

    a, b = worth(bare(first)), worth(bare(second))
    return EQUAL if a == b else FIRST if a > b else SECOND


def compare(folder: RunFolder, comparer: Comparer, journal: Journal) -> dict[str, Win]:
    """Compares what this judge has not compared yet; returns all its wins by record key."""
    records = folder.records()
    base = {record.uid: record for record in records.values() if record.row == BARE}
    known = _known(folder, comparer)
    wins: dict[str, Win] = {}
    todo: dict[str, tuple[Record, Record]] = {}
    for key, record in records.items():
        other = base.get(record.uid)
        if record.row == BARE or other is None:
            continue
        answers = digest(f"{record.answer}\0{other.answer}")
        before = known.get(key)
        if before is not None and before.answers == answers:
            wins[key] = before
        elif not record.ok or not other.ok:
            wins[key] = Win(key, answers, None, (), "no answer on one side")
        elif folded(bare(record.answer)) == folded(bare(other.answer)):
            wins[key] = Win(key, answers, 0.5)
        else:
            todo[key] = (record, other)
    wins.update(_asked(todo, comparer, journal))
    ordered = [wins[key] for key in records if key in wins]
    if ordered:
        body = {
            "judge": {"label": comparer.label, "digest": comparer.digest, "itself": comparer.itself},
            "wins": [asdict(w) for w in ordered],
        }
        folder.write(_name(comparer.hash8), json.dumps(body, indent=0))
    return wins


def _name(hash8: str) -> str:
    return f"wins/{hash8}.json"


def _known(folder: RunFolder, comparer: Comparer) -> dict[str, Win]:
    try:
        found = load(folder, comparer.hash8)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return found[1]


def load(folder: RunFolder, hash8: str | None = None) -> tuple[dict[str, Any], dict[str, Win]]:
    """(who compared, wins by record key) of one judge, or of the one that compared last; ({}, {}) when nobody did."""
    files = sorted((folder.path / "wins").glob(f"{hash8 or '*'}.json"), key=lambda path: path.stat().st_mtime)
    if not files:
        return {}, {}
    found = json.loads(files[-1].read_text(encoding="utf-8"))
    return found["judge"], {raw["key"]: Win(**{**raw, "orders": tuple(raw["orders"])}) for raw in found["wins"]}


def _asked(todo: Mapping[str, tuple[Record, Record]], comparer: Comparer, journal: Journal) -> dict[str, Win]:
    if comparer.engine is None or comparer.wording is None:
        return {key: _ruled(key, *pair) for key, pair in todo.items()}
    wording, wins = comparer.wording, {}

    def episodes() -> Iterator[tuple[str, Episode[tuple[str, str]]]]:
        for key, (record, other) in todo.items():
            yield f"prefer|{comparer.hash8}|{key}", _both(wording, record, other)

    def done(name: str, outcome: Outcome[tuple[str, str]]) -> None:
        key = name.split("|", 2)[2]
        record, other = todo[key]
        answers = digest(f"{record.answer}\0{other.answer}")
        if outcome.value is None:
            why = outcome.failure.reason if outcome.failure else "missing"
            wins[key] = Win(key, answers, None, (), f"the judge's call failed ({why})")
        else:
            wins[key] = Win(key, answers, value_of(outcome.value), outcome.value)

    if todo:
        with progress(f"compare ({comparer.label})", len(todo)) as tell:
            engines = {"judge": comparer.engine()}
            run(episodes(), engines, journal, on_done=done, progress=lambda p: tell(p.done, f"{p.calls} calls"), keep=False)
    return wins


def _both(wording: Preference, record: Record, other: Record) -> Episode[tuple[str, str]]:
    question, gold = record.question, record.gold_answer
    orders = ((record.answer, other.answer), (other.answer, record.answer))
    first, second = yield from ask([wording.call(question, gold, *pair) for pair in orders])
    return first, second


def _ruled(key: str, record: Record, other: Record) -> Win:
    names = record.facts.get("names", ())
    orders = tuple(by_rule(record.gold_answer, names, *pair) for pair in ((record.answer, other.answer), (other.answer, record.answer)))
    return Win(key, digest(f"{record.answer}\0{other.answer}"), value_of(orders), orders)


def value_of(orders: Sequence[str]) -> float:
    """Both orders' mean, from the row's side."""
    return (_VALUE[orders[0]] + 1.0 - _VALUE[orders[1]]) / 2


def standard_error(values: Sequence[float], seed: int = 0) -> float | None:
    """Standard deviation of the mean over random subsamples of 100 (with replacement: whole sets of fewer questions have an error too)."""
    if len(values) < 2:
        return None
    draws = np.random.default_rng(seed).integers(0, len(values), (DRAWS, SUBSAMPLE))
    return float(np.asarray(values, np.float64)[draws].mean(1).std(ddof=1))


def swayed(wins: Sequence[Win]) -> dict[str, int]:
    """How the judge answered: agreed with itself, was swayed by the order, gave no clear word in one of them, or was not asked."""
    counts: Counter[str] = Counter()
    for win in wins:
        if not win.orders:
            counts["not asked"] += 1
        elif UNCLEAR in win.orders:
            counts["unclear"] += 1
        else:
            mirrored = {FIRST: SECOND, SECOND: FIRST, EQUAL: EQUAL}[win.orders[1]]
            counts["agreed" if win.orders[0] == mirrored else "swayed"] += 1
    return dict(counts)
