"""The recipe on top of the first ranking: what is drawn, what is added, what is weighed."""

from __future__ import annotations

from random import Random

import pytest
import torch

from models.errors import DataError
from pipeline.relevance.data import Drawn, Group
from pipeline.relevance.evaluate import Ranking, blend, likelihood
from pipeline.relevance.train import Recipe, _loss


def test_hard_negatives_are_the_more_tempting_of_those_drawn() -> None:
    group = Group("q", ("good",), tuple(f"n{i}" for i in range(40)), prior=(2.0, *(1 - i / 10 for i in range(40))))
    easy = [int(t[1:]) for seed in range(200) for t in group.draw(Random(seed), 4).texts[1:]]
    hard = [int(t[1:]) for seed in range(200) for t in group.draw(Random(seed), 4, 3.0).texts[1:]]
    assert sum(hard) / len(hard) < sum(easy) / len(easy) - 5 and max(easy) == 39
    drawn = group.draw(Random(1), 4, 2.0)
    assert drawn.texts[0] == "good" and drawn.gains == [1, 0, 0, 0, 0] and drawn.prior[0] == 2.0 and drawn.teacher == []
    with pytest.raises(DataError, match="2 prior scores for 3 texts"):
        Group("q", ("a",), ("b", "c"), prior=(1.0, 2.0))


def test_what_the_first_ranking_knows_costs_nothing_and_teaches_nothing() -> None:
    right = Drawn(["a", "b"], [1.0, 0.0], [], [3.0, -3.0])
    wrong = Drawn(["a", "b"], [1.0, 0.0], [], [-3.0, 3.0])
    grads = []
    for row in (right, wrong):
        logits = torch.zeros(2, requires_grad=True)
        _loss(logits, row, Recipe(prior=2.0)).backward()
        assert logits.grad is not None
        grads.append(float(logits.grad.abs().sum()))
    assert grads[0] < 1e-4 < 1 < grads[1]
    plain = [float(_loss(torch.zeros(2), row, Recipe())) for row in (right, wrong)]
    assert plain[0] == plain[1]


def test_a_silent_classifier_ranks_like_the_first_ranking() -> None:
    ranking = Ranking(("a", "b", "c"), ("x", "y", "z"), (3.0, 2.0, 1.0))
    assert blend(ranking, [0.0, 0.0, 0.0], 0.5, 2.0) == ["a", "b", "c"] == blend(ranking, [0.1, 0.0, 0.3], 0.5, 2.0)
    assert blend(ranking, [0.0, 0.0, 9.0], 0.5, 2.0) == ["c", "a", "b"]
    good, bad = likelihood([ranking], [[0.0] * 3], [{"a": 1.0}], 2.0), likelihood([ranking], [[0.0] * 3], [{"c": 1.0}], 2.0)
    assert bad < good < 0 and likelihood([ranking], [[0.0] * 3], [{}], 2.0) == 0.0
