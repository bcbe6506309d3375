"""What is measured: a setting's questions as episodes, with an oracle's replies laid down beforehand for the stub server.

Knows the data set and the episodes; no server. Try: python -m bench speed --rows radix
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.config import RunConfig, validate
from bench.episode import Prediction, Sample, World, life
from bench.gold import gold
from bench.predict import Job, asked, longest_first
from bench.rows import Row, row
from bench.settings import Album, Scene
from bench.speed.oracle import Oracle, play
from bench.speed.stub import NAME, digest
from bench.workshop import NoFrames, Workshop
from kg.dataset import Question
from models.agents import Call, Episode
from models.requests import Request
from models.wire import body_of


@dataclass(frozen=True)
class Work:
    """One setting's questions. `requests` are the distinct calls in the order of asking, question by question."""

    row: Row
    world: World
    samples: tuple[tuple[Question, Sample], ...]
    table: dict[str, str]
    requests: tuple[Request, ...]
    stages: tuple[str, ...]
    calls: int
    rounds: int

    def episodes(self, copies: int = 1) -> Iterator[tuple[str, Episode[Prediction]]]:
        """(name, episode) of every question; of several copies each asks in words of its own, so that none shares a call."""
        for copy in range(copies):
            for i, (question, sample) in enumerate(self.samples):
                mark = f" (#{copy * len(self.samples) + i})" if copies > 1 else ""
                yield f"{copy}:{question.uid}", life(replace(sample, question=sample.question + mark), self.row.setting, self.world)


def configured(data: Path, setting: str, prompts: str, limit: int | None = None) -> RunConfig:
    """The options of a run against the stub."""
    options = {"data": str(data), "settings": [setting], "prompts": prompts, "model": NAME, "limit": limit, "judge": "exact"}
    return validate({**options, "endpoint": "http://127.0.0.1:9/v1"})


def prepared(workshop: Workshop, config: RunConfig) -> Work:
    """Plays every question through once with an oracle. Questions whose media cannot be used are left out."""
    (setting,) = config.settings
    chosen = row(config, setting)
    questions = [job.question for job in longest_first([Job(chosen, q) for q in workshop.dataset.questions[: config.limit]])]
    workshop.prepare([chosen], questions)
    world = _settled(workshop.world(chosen))
    samples: list[tuple[Question, Sample]] = []
    seen: dict[str, tuple[Call[Any], str]] = {}
    calls = rounds = 0
    for question in questions:
        scene = workshop.scene(chosen, question)
        if isinstance(scene, NoFrames):
            continue
        sample = _sample(question, scene, chosen, workshop)
        samples.append((question, sample))
        trips = list(play(life(sample, chosen.setting, world), Oracle(question, world.graph)))
        rounds = max(rounds, len(trips))
        for call, reply in (pair for trip in trips for pair in trip):
            calls += 1
            seen.setdefault(call.request.key(NAME), (call, reply))
    workshop.close()
    found: Sequence[tuple[Call[Any], str]] = list(seen.values())
    table = {digest(body_of(call.request, NAME, file_urls=True, word_ids={})): reply for call, reply in found}
    requests = tuple(call.request for call, _ in found)
    return Work(chosen, world, tuple(samples), table, requests, tuple(call.stage for call, _ in found), calls, rounds)


def _settled(world: World) -> World:
    """The world with every frame made and looked up: nothing is decoded while something is measured."""
    frames = world.album.frames
    made = {index: pictures for index in frames if (pictures := frames.get(index)) is not None}
    return replace(world, album=Album(made, world.album.offline))


def _sample(question: Question, scene: Scene, chosen: Row, workshop: Workshop) -> Sample:
    return Sample(asked(Job(chosen, question), workshop.dataset), scene, gold(workshop.dataset.graph, question))
