"""Run a suite end to end: check, predict, judge, report. Each step reads what the one before it wrote, and any of them can be run alone.

    data → rows → preflight → run folder → predict → score → report

The same command finds its folder again by the hash of what it predicts, and does what is left. Try: python -m bench run --limit 4
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from bench.captions import offline_captions, uncaptioned
from bench.config import SAMPLE_WORLD, RunConfig
from bench.cost import call_times
from bench.environment import environment
from bench.folder import RunFolder, find_or_make, taken_away_unstarted
from bench.frames import FrameKey
from bench.predict import Job, jobs, pending, predict
from bench.preflight import check, check_engines, check_models, chosen
from bench.records import RecordWriter, digest
from bench.report import markdown, terminal
from bench.rows import Row
from bench.score import Judge, exact_judge, judge_run, model_judge
from bench.settings import SETTINGS
from bench.summary import summarize
from bench.workshop import CACHE, OpenEngine, Workshop, open_engine
from kg.dataset import Dataset, Question
from models.engines import Engine
from models.errors import RunError
from models.journal import Journal
from models.progress import console

PLACES = ("data", "captions", "model", "endpoint", "roles")  # named by their digests instead


def run_suite(suite: str, rows: Sequence[Row], config: RunConfig, *, factory: OpenEngine = open_engine, cache: Path = CACHE) -> RunFolder:
    """Runs the rows and returns the run's folder. Raises UserError for what the user can mend, KeyboardInterrupt on Ctrl-C."""
    if config.data == SAMPLE_WORLD and not Path(config.data).exists():
        check_models(rows)  # before a minute is spent on the world
    dataset = open_data(config)
    questions = chosen(dataset, config.tasks, config.limit)
    check(rows, dataset, questions)
    workshop = Workshop(dataset, cache, factory)
    manifest = _manifest(suite, rows, config, dataset, questions, workshop)
    folder, _ = find_or_make(Path(config.runs), suite, config.model, manifest)
    workshop.logs = folder.path
    with Journal(folder.journal) as journal, taken_away_unstarted(folder), closing(workshop):
        todo = pending(jobs(rows, questions), folder.records(), retry=config.retry)
        judge = make_judge(config, workshop)
        if todo:
            check_engines(rows, _engines(rows, judge, workshop, config), [workshop.agents(row.config) for row in rows])
            folder.started(environment())
            manifest["notes"] = _missing_media(rows, dataset) + _predict(todo, questions, dataset, workshop, journal, folder)
        else:
            manifest["notes"] = folder.manifest().get("notes", [])
        folder.write("config.json", json.dumps(manifest, indent=1))
        if not config.judges_itself:
            workshop.close()  # the GPUs are the judge's now
        judge_run(folder, folder.records(), judge, dataset.graph, journal)
    return folder


def open_data(config: RunConfig) -> Dataset:
    """The data set; the default sample world is made when it is not there."""
    from kg.load import load

    folder = Path(config.data)
    if config.data == SAMPLE_WORLD and not folder.exists():
        from bench.world import cli

        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        console().print(f"making the sample world in {folder}, once", highlight=False)
        cli.run(parser.parse_args(["--out", str(folder)]))
    return load(folder)


def _missing_media(rows: Sequence[Row], dataset: Dataset) -> list[str]:
    """What to say when the data set names media that are not there, and a row would have shown them."""
    missing = sum(finding.code == "missing-media" for finding in dataset.findings)
    shown = any(row.setting.needs_query_media or row.setting.needs_node_media or row.setting.needs_offline_captions for row in rows)
    return (
        [f"{missing} media files that the data set names are not there; what they show was asked without them."]
        if missing and shown
        else []
    )


def _engines(rows: Sequence[Row], judge: Judge, workshop: Workshop, config: RunConfig) -> dict[str, Engine]:
    """The roles of every engine that predicts → that engine; under "judge" one that only judges.

    A judge that is to be served on the same GPUs is started when the predicting is over; preflight has planned it.
    """
    roles: dict[int, list[str]] = {}
    engines: dict[int, Engine] = {}
    for row in rows:
        for role, backend in row.config.backends.items():
            engine = workshop.engine(backend, row.config)
            engines[id(engine)] = engine
            if role not in roles.setdefault(id(engine), []):
                roles[id(engine)].append(role)
    found = {", ".join(roles[key]): engine for key, engine in engines.items()}
    judging = config.judge_backend
    later = judging is not None and not config.judges_itself and workshop.holds_gpus(judging, config)
    if judge.engine is not None and not later and id(judge.engine()) not in engines:
        found["judge"] = judge.engine()
    return found


def _predict(
    todo: Sequence[Job], questions: Sequence[Question], dataset: Dataset, workshop: Workshop, journal: Journal, folder: RunFolder
) -> list[str]:
    """Captions and answers, while frames are prepared ahead of them; what to say about it.

    Rows that bind their roles alike run together, so that they share batches.
    """
    live = list({job.row.label: job.row for job in todo}.values())
    showing = workshop.prepare(live, questions, uncaptioned(live, workshop))
    workshop.offline, said = offline_captions(live, workshop, showing, journal)
    engines = {row.label: workshop.roles(row.config) for row in live}
    groups: dict[tuple[int, ...], list[Job]] = {}
    for job in todo:
        groups.setdefault(tuple(id(engine) for engine in engines[job.row.label].values()), []).append(job)
    writer = RecordWriter(folder.samples)
    try:
        for group in groups.values():
            predict(group, dataset, workshop, showing, engines[group[0].row.label], journal, writer)
    finally:
        writer.close()
    if unusable := showing.unusable():
        shown = "; ".join(f"{name}: {why}" for name, why in list(unusable.items())[:3])
        said.append(f"{len(unusable)} entities of the graph have media that cannot be used ({shown}).")
    return said


def make_judge(config: RunConfig, workshop: Workshop) -> Judge:
    """The judge that the options name: exact words, another model, or the judged model itself."""
    backend = config.judge_backend
    if backend is None:
        return exact_judge()
    return model_judge(
        lambda: workshop.engine(backend, config),
        workshop.identity(backend, config),
        workshop.agents(config),
        label=backend.model,
        itself=config.judges_itself,
        similarity=config.similarity,
    )


def _manifest(
    suite: str,
    rows: Sequence[Row],
    config: RunConfig,
    dataset: Dataset,
    questions: Sequence[Question],
    workshop: Workshop,
) -> dict[str, Any]:
    """What config.json says. Under ``predicting`` stands what names the run: nothing else may change an answer."""
    agents = {row.config.prompt_set: workshop.agents(row.config).digest for row in rows}
    captions = {row.config.captions: digest(_text(row.config.captions)) for row in rows if row.config.captions}
    used = {role: backend for row in rows for role, backend in row.config.backends.items()}
    models = {r: {**b.model_dump(), "digest": workshop.identity(b, config)} for r, b in used.items()}
    planned = [{"label": r.label, "setting": r.setting.name, "changes": dict(r.changes), "questions": len(questions)} for r in rows]
    data = {
        "name": dataset.card.name,
        "folder": config.data,
        "digest": dataset.digest,
        "tasks": list(dataset.card.tasks),
        "questions": len(dataset.questions),
        "asked": len(questions),
        "warnings": sum(finding.level == "warning" for finding in dataset.findings),
    }
    left_out = [name for name in SETTINGS if name not in {row.setting.name for row in rows}]
    cut = len(dataset.questions) - len(questions)
    return {
        "suite": suite,
        "config": config.model_dump(mode="json"),
        "rows": planned,
        "data": data,
        "models": models,
        "prompts": agents,
        "not run": [
            *([f"settings {', '.join(left_out)} (not asked for)"] if left_out else []),
            *([f"{cut} of {len(dataset.questions)} questions (--limit or --tasks)"] if cut else []),
        ],
        "predicting": {
            "options": {k: v for k, v in config.predicting().items() if k not in PLACES},
            "rows": [[row.label, row.setting.name, {k: str(v) for k, v in row.changes.items()}] for row in rows],
            "data": dataset.digest,
            "questions": [q.uid for q in questions],
            "models": [{role: workshop.identity(b, config) for role, b in row.config.backends.items()} for row in rows],
            "prompts": agents,
            "captions": captions,
            "frames": [str(FrameKey.of(row.config)) for row in rows],
        },
    }


def _text(path: str | None) -> str:
    return Path(path).read_text(encoding="utf-8") if path else ""


def score(path: Path, changes: Mapping[str, Any], *, factory: OpenEngine = open_engine, cache: Path = CACHE) -> RunFolder:
    """Judges a run again; predicts nothing. `changes` are options of the judge."""
    from bench.config import validate

    folder = RunFolder(path)
    manifest = folder.manifest()
    config = validate({**manifest["config"], **changes})
    workshop = Workshop(open_data(config), cache, factory, logs=folder.path)
    records = folder.records()
    with Journal(folder.journal) as journal, closing(workshop):
        judge = make_judge(config, workshop)
        if judge.engine is not None:
            check_engines((), {"judge": judge.engine()}, [workshop.agents(config)])
        judge_run(folder, records, judge, workshop.dataset.graph, journal)
    return folder


def report(folder: RunFolder, judge: str | None = None) -> dict[str, Any]:
    """Writes report.md, summary.json and the figures from what stands in the folder; returns the summary."""
    from bench.figures import draw

    manifest, records = folder.manifest(), folder.records()
    if judge is not None and judge not in folder.judges():
        raise RunError(
            f"no judge {judge!r} has judged this run", where=str(folder.path), remedy=f"judges: {', '.join(folder.judges()) or 'none'}"
        )
    summary = summarize(manifest, records, folder.scores(judge), call_times(folder.journal), folder.environments())
    figures = draw(summary, folder)
    folder.write("summary.json", json.dumps(summary, indent=1))
    folder.write("report.md", markdown(summary, figures))
    return summary


def show(summary: Mapping[str, Any], folder: RunFolder) -> None:
    """The table and where the rest stands, on standard output."""
    from rich.console import Console

    out = Console(width=None if Console().is_terminal else 160)
    terminal(summary, out)
    out.print(f"report: {folder.path / 'report.md'}", highlight=False, soft_wrap=True)
