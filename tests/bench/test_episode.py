"""One sample's life without a model: which calls each setting makes, in which order, and what they are shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.episode import Prediction, Sample, World, decoded, life
from bench.gold import MISSING, gold
from bench.settings import SETTINGS, Album, Scene
from kg.agents import Agents
from kg.dataset import Dataset
from kg.load import load
from kg.search import SearchConfig
from models.agents import Call, Episode
from models.errors import CallFailed
from models.requests import Picture

FRAME = Picture(Path("d.png"), "d")
NODE = Picture(Path("c.png"), "c")
REPLIES = {
    "perceiver": "it opens its jaws",
    "topic": "Pike",
    "expander": "None",
    "validator": "No",
    "validator_online": "No; seen",
    "summarizer": "Bite",
    "answer": "Bite",
}


@pytest.fixture
def dataset(pond: Path) -> Dataset:
    return load(pond)


def world(dataset: Dataset, prompts: Path) -> World:
    album = Album({i: (NODE,) for i in range(len(dataset.graph))}, {i: f"offline {i}" for i in range(len(dataset.graph))})
    return World(dataset.graph, Agents.load(dataset.card, prompts), album, SearchConfig())


def drive(episode: Episode[Prediction], replies: dict[str, str]) -> tuple[Prediction, list[Call[Any]]]:
    made: list[Call[Any]] = []
    try:
        calls = next(episode)
        while True:
            made += calls
            calls = episode.send([call.parse(replies[call.stage]) for call in calls])
    except StopIteration as end:
        return end.value, made


@pytest.mark.parametrize(
    ("name", "stages", "sees_frames", "sees_human"),
    [
        ("vanilla", ["answer"], True, False),
        ("vanilla+", ["answer"], False, True),
        ("knowledgeable", ["summarizer"], False, True),
        ("perceptive", ["topic", "validator", "expander", "summarizer"], False, True),
        ("unaided-offline", ["perceiver", "topic", "validator", "expander", "summarizer"], True, False),
        ("unaided-online", ["perceiver", "topic", "validator", "expander", "summarizer"], True, False),
    ],
)
def test_calls_of_a_setting(name: str, stages: list[str], sees_frames: bool, sees_human: bool, dataset: Dataset, prompts: Path) -> None:
    question = dataset.questions[1]
    sample = Sample("What?", Scene(question.perception, (FRAME,)), gold(dataset.graph, question))
    made, calls = drive(life(sample, SETTINGS[name], world(dataset, prompts)), REPLIES)
    assert [call.stage for call in calls] == stages and made.answer == "Bite"
    assert any(FRAME in call.request.pictures for call in calls) == sees_frames
    # the knowledge of "knowledgeable" and "perceptive" may hold the same words: the scene is what is looked at
    assert any(question.perception in call.request.text for call in calls) == sees_human


def test_online_search_looks_at_clips_and_keeps_what_it_saw(dataset: Dataset, prompts: Path) -> None:
    sample = Sample("What?", Scene("", (FRAME,)), gold(dataset.graph, dataset.questions[2]))
    replies = REPLIES | {"expander": "Dart; Roll", "validator_online": "Yes; it darts"}
    made, calls = drive(life(sample, SETTINGS["unaided-online"], world(dataset, prompts)), replies)
    assert [call.request.pictures for call in calls if call.stage == "validator_online"] == [(NODE,), (NODE,)]
    assert sorted(made.captions.values()) == ["it darts", "it darts"]
    assert "⟦it darts⟧" in calls[-1].request.text and "shoots forward" not in calls[-1].request.text
    again, _ = drive(life(sample, SETTINGS["unaided-online"], world(dataset, prompts)), REPLIES)
    assert again.captions == {}


def test_no_frames_no_perceiver(dataset: Dataset, prompts: Path) -> None:
    sample = Sample("What?", Scene(""), gold(dataset.graph, dataset.questions[0]))
    _, calls = drive(life(sample, SETTINGS["unaided-online"], world(dataset, prompts)), REPLIES)
    assert calls[0].stage == "topic"


def test_sampling_reaches_every_call_and_failures_pass_through(dataset: Dataset, prompts: Path) -> None:
    sample = Sample("What?", Scene("", (FRAME,)), gold(dataset.graph, dataset.questions[2]))
    hot = decoded(life(sample, SETTINGS["unaided-online"], world(dataset, prompts)), 0.7, 11)
    _, calls = drive(hot, REPLIES)
    assert {(c.request.decoding.temperature, c.request.decoding.seed) for c in calls} == {(0.7, 11)}
    hot = decoded(life(sample, SETTINGS["unaided-online"], world(dataset, prompts)), 0.7, 11)
    next(hot)
    with pytest.raises(CallFailed, match="timeout"):
        hot.throw(CallFailed("timeout"))


def test_gold_ends_at_leaves_and_keeps_what_cannot_be_walked(dataset: Dataset) -> None:
    question = dataset.questions[2]
    routes = (("Pike", "Dart"), ("Pike", "Dart", "Bite"), ("Pike", "Nothing"), ("Pike", "Dart", "Bite"))
    found = gold(dataset.graph, replace(question, routes=routes))
    assert len(found.nodes) == 2 and len(found.walks) == 1 and found.nodes[1][0] == MISSING
    assert [dataset.graph.entity(i).name for i in found.nodes[0]] == ["Pike", "Dart", "Bite"]
    assert gold(dataset.graph, replace(question, root="Nobody")).topic is None
