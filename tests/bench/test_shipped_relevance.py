"""The relevance adapter that sample worlds carry: small, of its base, right on worlds it has not seen, and used for nothing else."""

import shutil
from pathlib import Path

import pytest

from bench.cuem.relevance import SHIPPED, groups
from bench.cuem.sample import ASK
from pipeline.encoders import digest_of, minilm_folder
from pipeline.relevance.classifier import RelevanceClassifier, read_adapter
from pipeline.relevance.similarity import Similarity
from pipeline.relevance.store import LIMIT
from pipeline.settings import Equipment, Settings, read_settings


@pytest.fixture(scope="module")
def classifier() -> RelevanceClassifier:
    return RelevanceClassifier(adapter=SHIPPED)


def test_it_is_small_and_knows_where_it_comes_from() -> None:
    _, card = read_adapter(SHIPPED)
    assert SHIPPED.stat().st_size <= LIMIT
    assert card["base_digest"] == digest_of(minilm_folder()) and card["data"]


def test_worlds_that_it_has_not_seen(classifier: RelevanceClassifier) -> None:
    made = list(groups(16, seed=5, split="test"))
    first = [classifier.rank(group.query, [*group.negative, *group.positive])[0][0] >= len(group.negative) for group in made]
    assert sum(first) >= 15, f"{sum(first)} of {len(first)}"


def test_the_sample_world_ranks_with_it_and_nothing_else_does(tmp_path: Path) -> None:
    """It was trained on train worlds alone: other texts it ranks worse than the encoder's similarity (docs/pipeline.md)."""
    (tmp_path / "ask.yaml").write_text(ASK.replace("[articles]", "[]"))
    shutil.copy(SHIPPED, tmp_path)
    scorer = Equipment(read_settings(tmp_path / "ask.yaml")).scorer
    assert isinstance(scorer, RelevanceClassifier) and scorer.card["base_digest"]
    assert isinstance(Equipment(Settings()).scorer, Similarity)
