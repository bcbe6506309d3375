"""Predict: every question in every row, through the driver, into samples.jsonl. Judges nothing.

What a row needs (agents, frames, captions) comes from the workshop; what is finished is not asked again.
Try: python -m bench run --limit 4
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.episode import Prediction, Sample, World, decoded, life
from bench.frames import Showing
from bench.gold import Gold, gold
from bench.records import Record, RecordWriter
from bench.rows import Row
from bench.settings import Scene
from bench.workshop import Workshop
from kg.dataset import Dataset, Question
from kg.frames import NoFrames
from kg.graph import Graph, Walk
from models.agents import Episode
from models.drivers import Limits, Outcome, run
from models.engines import Engine
from models.journal import Journal
from models.progress import progress


@dataclass(frozen=True, slots=True)
class Job:
    """One question in one row."""

    row: Row
    question: Question

    @property
    def key(self) -> str:
        return f"{self.row.label}|{self.question.uid}"


def jobs(rows: Sequence[Row], questions: Sequence[Question]) -> list[Job]:
    """Every question in every row, row by row."""
    return [Job(row, question) for row in rows for question in questions]


def pending(all_jobs: Sequence[Job], known: Mapping[str, Record], *, retry: bool = False) -> list[Job]:
    """What has no record yet; with `retry` also what failed."""
    return [job for job in all_jobs if job.key not in known or (retry and not known[job.key].ok)]


def longest_first(todo: Sequence[Job]) -> list[Job]:
    """Samples that are likely to take more round trips begin earlier, so that a run does not end waiting for a few long searches.

    The annotation is used for the order alone: what is asked and answered does not depend on it.
    """
    return sorted(todo, key=lambda job: -max(map(len, job.question.routes), default=0) if job.row.setting.knowledge == "search" else 0)


def predict(
    todo: Sequence[Job],
    dataset: Dataset,
    workshop: Workshop,
    showing: Showing,
    backends: Mapping[str, Engine],
    journal: Journal,
    writer: RecordWriter,
) -> None:
    """Asks for every job's answer; each record is on disk when its sample ends. Raises what ends a whole run.

    A job starts when its own frames are there; those of the jobs behind it are prepared meanwhile.
    """
    worlds = {job.row.label: workshop.world(job.row) for job in todo}
    by_key = {job.key: job for job in todo}
    golds: dict[str, Gold] = {}

    def known_gold(question: Question) -> Gold:
        if question.uid not in golds:
            golds[question.uid] = gold(dataset.graph, question)
        return golds[question.uid]

    def episodes() -> Iterator[tuple[str, Episode[Prediction]] | None]:
        waiting = longest_first(todo)
        while waiting:
            later = []
            for job in waiting:
                if not showing.ready(job.row, job.question):
                    later.append(job)
                    continue
                scene = showing.scene(job.row, job.question)
                if isinstance(scene, NoFrames):
                    writer.write(_record(job, dataset, known_gold(job.question), stage="frames", reason=scene.reason, detail=scene.detail))
                else:
                    yield job.key, _episode(job, scene, known_gold(job.question), worlds[job.row.label], dataset)
            waiting = later
            if waiting:
                yield None

    def done(key: str, outcome: Outcome[Prediction]) -> None:
        job = by_key[key]
        writer.write(finished(job, dataset, known_gold(job.question), outcome))

    with progress("predict", len(todo)) as tell:
        run(
            episodes(),
            backends,
            journal,
            on_done=done,
            progress=lambda p: tell(
                p.done, f"{p.calls} calls, {p.reused} reused, {p.in_flight} in flight, {p.failed} failed{showing.words}"
            ),
            limits=Limits(seconds=todo[0].row.config.deadline if todo else None),
            keep=False,
        )


def _episode(job: Job, scene: Scene, known: Gold, world: World, dataset: Dataset) -> Episode[Prediction]:
    config = job.row.config
    return decoded(life(Sample(asked(job, dataset), scene, known), job.row.setting, world), config.temperature, config.seed)


def asked(job: Job, dataset: Dataset) -> str:
    """The question as this row words it (Table 17's switches)."""
    config = job.row.config
    return job.question.asked(dataset.card.subject, name=config.ask_name, extra=config.ask_extra)


def finished(job: Job, dataset: Dataset, known: Gold, outcome: Outcome[Prediction]) -> Record:
    """The record of a sample that came to its end, well or not."""
    cost: dict[str, Any] = {"calls": outcome.calls, "reused": outcome.reused, "seconds": outcome.call_seconds, "wall": outcome.seconds}
    if outcome.failure is not None or outcome.value is None:
        failure = outcome.failure
        stage, reason, detail = (failure.stage, failure.reason, failure.detail) if failure else ("episode", "no-value", "")
        return _record(job, dataset, known, stage=stage, reason=reason, detail=detail, rounds=outcome.rounds, **cost)
    made = outcome.value
    result = made.result
    if result is None:
        return _record(job, dataset, known, ok=True, answer=made.answer, perceived=made.perceived, rounds=0, **cost)
    return _record(
        job,
        dataset,
        known,
        ok=True,
        answer=made.answer,
        perceived=made.perceived,
        searched=True,
        topic=result.topic,
        walks=tuple(walk.nodes for walk in result.walks),
        names=tuple(words(dataset.graph, walk) for walk in result.walks),
        captions=made.captions,
        rounds=result.rounds,
        dropped=result.dropped,
        unclear=result.unclear,
        limits=result.limits,
        **cost,
    )


def words(graph: Graph, walk: Walk) -> str:
    """A walk as local names, as the question list writes routes."""
    return ">".join(graph.entity(node).name for node in walk.nodes)


_Make = Callable[..., Record]


def _record(job: Job, dataset: Dataset, known: Gold, *, ok: bool = False, **fields: object) -> Record:
    question = job.question
    make: _Make = Record
    return make(
        row=job.row.label,
        uid=question.uid,
        task=question.task,
        ok=ok,
        question=asked(job, dataset),
        gold_answer=question.answer,
        root=question.root,
        gold_topic=known.topic,
        gold=known.nodes,
        **fields,
    )
