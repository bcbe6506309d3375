"""Path precision and recall, accuracy with both denominators, exact words, intervals: by property and by known values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.metrics import MEASURES, cell, exact, path_scores, values
from bench.records import Record, Score
from bench.stats import mean_interval, paired, spread

WALKS = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple), max_size=6)
RECORD = Record(row="r", uid="0001:a", task=0, ok=True, question="q", gold_answer="g", searched=True, gold=((0, 1), (0, 2)), gold_topic=0)


@given(WALKS, WALKS)
def test_path_scores_are_one_to_one(gold: list[tuple[int, ...]], found: list[tuple[int, ...]]) -> None:
    scores = path_scores(gold, found)
    if not gold:
        assert scores.precision is None and scores.recall is None
        return
    # the definition, by matching and taking away
    left, hits = list(dict.fromkeys(found)), 0
    for walk in dict.fromkeys(gold):
        if walk in left:
            left.remove(walk)
            hits += 1
    assert scores.recall == hits / len(set(gold))
    assert scores.precision == (hits / len(set(found)) if found else 0.0)
    assert (scores.precision == 1.0 == scores.recall) == (set(gold) == set(found))


@given(WALKS, WALKS)
def test_repeats_and_order_change_nothing(gold: list[tuple[int, ...]], found: list[tuple[int, ...]]) -> None:
    assert path_scores(gold, found) == path_scores(gold[::-1] * 2, found[::-1] + found)


def test_a_prefix_is_no_match() -> None:
    assert path_scores([(0, 1, 2)], [(0, 1), (0, 1, 2, 3)]).recall == 0.0


@pytest.mark.parametrize(
    ("gold", "predicted", "same"),
    [
        ("Back Slam", "zinogre  back slam.", True),
        ("Zinogre Back Slam", "Back Slam", True),
        ("Tail Slam; Back Slam", "back slam, Tail Slam", True),
        ("Tail Slam and Back Slam", "Back Slam; Tail Slam", True),
        ("Ｆｉｓｔ", "fist", True),
        ("Static Charge", "Thunder Charge B", False),
        ("Tail Slam; Back Slam", "Tail Slam", False),
        ("Yes", "", False),
    ],
)
def test_exact_words(gold: str, predicted: str, same: bool) -> None:
    assert exact(gold, predicted, "Zinogre") is same


def test_unscored_is_no_zero() -> None:
    records = [replace(RECORD, uid=f"{i:04d}:a") for i in range(4)]
    scores = {r.key: Score(r.key, "", v) for r, v in zip(records, (True, False, None, None), strict=True)}
    acc = cell(records, scores, MEASURES["acc"])
    assert (acc.interval.mean, acc.interval.n, acc.total, acc.over_total) == (0.5, 2, 4, 0.25)


def test_two_rows_of_one_id_are_two() -> None:
    records = [replace(RECORD, uid="0007:same"), replace(RECORD, uid="0008:same")]
    assert len(values(records, {r.key: Score(r.key, "", True) for r in records}, MEASURES["acc"])) == 2


def test_empty_cases() -> None:
    nothing = cell([], {}, MEASURES["acc"])
    assert nothing.interval.mean is None and nothing.total == 0 and nothing.over_total is None
    empty = replace(RECORD, walks=())
    assert values([empty], {}, MEASURES["pre"]) == {RECORD.uid: 0.0} == values([empty], {}, MEASURES["rec"])
    for other in (replace(RECORD, searched=False), replace(RECORD, ok=False), replace(RECORD, gold=())):
        assert values([other], {}, MEASURES["rec"]) == {}
    assert values([RECORD], {}, MEASURES["topic"]) == {RECORD.uid: 0.0}  # no topic was named
    assert values([replace(RECORD, gold_topic=None)], {}, MEASURES["topic"]) == {}


def test_similarity_leaves_out_what_could_not_be_told() -> None:
    score = Score(RECORD.key, "", True, captions={1: True, 2: False, 3: None})
    assert values([RECORD], {RECORD.key: score}, MEASURES["sim"]) == {RECORD.uid: 0.5}


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=300), st.integers(0, 5))
def test_intervals_hold_their_mean_and_repeat(data: list[float], seed: int) -> None:
    one = mean_interval(data, seed=seed)
    assert one == mean_interval(data, seed=seed)
    assert one.mean is not None and one.low is not None and one.high is not None
    assert 0 <= one.low <= one.mean <= one.high <= 1


def test_interval_width_is_the_normal_one() -> None:
    data = ([1.0] * 121) + ([0.0] * 117)
    one = mean_interval(data)
    half = 1.96 * float(np.std(data)) / np.sqrt(len(data))
    assert one.mean is not None and one.low is not None and one.high is not None
    assert one.high - one.mean == pytest.approx(half, rel=0.1) and one.mean - one.low == pytest.approx(half, rel=0.1)


def test_paired_sees_what_unpaired_cannot() -> None:
    a = {str(i): float(i % 2 == 0) for i in range(100)}
    b = {k: v for k, v in a.items()} | {"1": 1.0, "3": 1.0, "5": 1.0, "7": 1.0, "9": 1.0, "11": 1.0}
    gained = paired(b, a)
    assert gained.difference.mean == pytest.approx(0.06) and gained.difference.low is not None and gained.difference.low > 0
    assert gained.p is not None and gained.p < 0.05
    same = paired(a, a)
    assert same.difference.mean == 0.0 and same.p == 1.0
    assert paired(a, {"other": 1.0}).n == 0


def test_spread() -> None:
    assert str(spread([1.0, 3.0])) == "2.00 ± 1.41" and spread([5.0]).sd == 0.0 and str(spread([])) == "–"
