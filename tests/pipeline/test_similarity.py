"""The encoder's similarity as a stand-in for the relevance classifier, and how many passages a prompt set takes."""

from __future__ import annotations

from tests_pipeline import Words

from pipeline.agents import Agents
from pipeline.relevance.similarity import Similarity
from pipeline.settings import Equipment, Settings


def test_what_shares_words_ranks_higher(words: Words) -> None:
    scorer = Similarity(words)
    near, far, same = scorer.scores([("swept wings", "the swept wings"), ("swept wings", "chocolate cake"), ("swept wings", "swept wings")])
    assert 0 <= far < near <= same <= 1.0001 and scorer.scores([]) == []
    assert len(scorer.digest) == 64


def test_without_an_adapter_no_untrained_head_ranks() -> None:
    assert isinstance(Equipment(Settings(adapter=None)).scorer, Similarity)


def test_a_small_prompt_set_takes_fewer_passages() -> None:
    small, full = Agents.load("compact").style, Agents.load("full").style
    assert (small.max_found, small.max_given) == (3, 3) and full.max_found >= 10 and full.max_given >= 5
