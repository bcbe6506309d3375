"""The real questions of MH Benchmark with an oracle that answers from their gold routes: what the search itself can reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.config import validate
from bench.metrics import MEASURES, cell
from bench.rows import settings_suite
from bench.run import report, run_suite
from kg.load import load


@pytest.mark.parametrize(
    ("options", "least"),
    [({"visited": "path", "k": "all"}, 1.0), ({}, 0.97), ({"order": "dfs", "k": "all", "visited": "path"}, 1.0)],
    ids=["path, K unlimited", "defaults", "depth first"],
)
def test_oracle_recall(
    options: dict[str, Any], least: float, mh_bench: Path, prompts: Path, tmp_path: Path, make_scripted: Any, make_oracle: Any
) -> None:
    dataset = load(mh_bench)
    oracle = make_scripted(make_oracle(dataset.questions, dataset.card.subject))
    base = {"data": str(mh_bench), "model": "oracle", "endpoint": "http://127.0.0.1:9/v1", "prompts": str(prompts), "judge": "exact"}
    config = validate({**base, "runs": str(tmp_path), "settings": "perceptive", **options})
    folder = run_suite("oracle", settings_suite(config), config, factory=lambda b, c: oracle, cache=tmp_path / "cache")
    records = folder.records()
    assert len(records) == len(dataset.questions) == 142 and all(r.ok for r in records.values())
    recall = cell(list(records.values()), {}, MEASURES["rec"])
    assert recall.interval.n == 142 and recall.interval.mean is not None and recall.interval.mean >= least
    topic = cell(list(records.values()), {}, MEASURES["topic"])
    assert topic.interval.mean == 1.0
    assert report(folder)["rows"][0]["cells"]["acc"]["mean"] > 0.95  # an answer is given back whole


def test_doubled_id_is_asked_and_counted_twice(mh_bench: Path) -> None:
    questions = load(mh_bench).questions
    doubled = [q for q in questions if sum(other.id == q.id for other in questions) > 1]
    assert len({q.uid for q in questions}) == len(questions)
    assert {q.id for q in doubled} <= {"Rathalos_Retreating Fireball"}
