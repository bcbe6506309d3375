"""Run a suite end to end: check, predict, judge, report. Each step reads what the one before it wrote, and any of them can be run alone.

    data → rows → preflight → run folder → predict → score → report

The same command finds its folder again by the hash of what it predicts, and does what is left. Try: python -m bench run --limit 4
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.captions import offline_captions
from bench.config import SAMPLE_WORLD, RunConfig
from bench.cost import call_times
from bench.environment import environment
from bench.folder import RunFolder, find_or_make
from bench.frames import FrameKey
from bench.predict import jobs, pending, predict
from bench.preflight import check, check_engines, chosen
from bench.progress import console
from bench.records import RecordWriter, digest
from bench.report import markdown, terminal
from bench.rows import Row
from bench.score import Judge, exact_judge, judge_run, model_judge
from bench.settings import SETTINGS
from bench.summary import summarize
from bench.workshop import OpenEngine, Workshop, open_engine
from kg.dataset import Dataset, Question
from models.engines import Engine
from models.journal import Journal

CACHE = Path(".cache")


def run_suite(suite: str, rows: Sequence[Row], config: RunConfig, *, factory: OpenEngine = open_engine, cache: Path = CACHE) -> RunFolder:
    """Runs the rows and returns the run's folder. Raises UserError for what the user can mend, KeyboardInterrupt on Ctrl-C."""
    dataset = open_data(config)
    questions = chosen(dataset, config.tasks, config.limit)
    check(rows, dataset, questions)
    workshop = Workshop(dataset, cache, factory)
    engines = {row.label: workshop.roles(row.config) for row in rows}
    manifest = _manifest(suite, rows, config, dataset, questions, workshop, engines)
    folder, _ = find_or_make(Path(config.runs), suite, config.model, manifest)
    with Journal(folder.journal) as journal:
        todo = pending(jobs(rows, questions), folder.records(), retry=config.retry)
        judge = make_judge(config, workshop)
        if todo:
            every = {f"{label} {role}": e for label, roles in engines.items() for role, e in roles.items()}
            check_engines(rows, _used(every, judge))
            folder.started(environment())
            manifest["notes"] = _predict(todo, rows, questions, dataset, workshop, engines, journal, folder)
        else:
            manifest["notes"] = folder.manifest().get("notes", [])
        folder.write("config.json", json.dumps(manifest, indent=1))
        judge_run(folder, folder.records(), judge, dataset.graph, journal)
    return folder


def open_data(config: RunConfig) -> Dataset:
    """The data set; the default sample world is made when it is not there."""
    from kg.load import load

    folder = Path(config.data)
    if config.data == SAMPLE_WORLD and not folder.exists():
        from bench.world.write import write_world

        console().print(f"making the sample world in {folder} (once) …", highlight=False)
        write_world(folder, 7, 22)
    return load(folder)


def _used(every: Mapping[str, Engine], judge: Judge) -> dict[str, Engine]:
    """One entry per engine that predicts, under the names of its roles; the judge under its own."""
    found: dict[str, Engine] = {}
    for name, engine in every.items():
        role = name.split(" ", 1)[1]
        if role != "judge" and engine not in found.values():
            found[role] = engine
    if judge.engine is not None and judge.engine not in found.values():
        found["judge"] = judge.engine
    return found


def _predict(
    todo: Sequence[Any],
    rows: Sequence[Row],
    questions: Sequence[Question],
    dataset: Dataset,
    workshop: Workshop,
    engines: Mapping[str, Mapping[str, Engine]],
    journal: Journal,
    folder: RunFolder,
) -> list[str]:
    """Frames, captions, answers. Rows that bind their roles alike run together, so that they share batches."""
    live = [row for row in rows if any(job.row is row for job in todo)]
    workshop.prepare(live, questions)
    workshop.offline, said = offline_captions(live, workshop, journal)
    unusable = workshop.unusable()
    if unusable:
        shown = "; ".join(f"{name}: {why}" for name, why in list(unusable.items())[:3])
        said.append(f"{len(unusable)} entities of the graph have media that cannot be used ({shown}).")
    groups: dict[tuple[int, ...], list[Any]] = {}
    for job in todo:
        groups.setdefault(tuple(id(e) for e in engines[job.row.label].values()), []).append(job)
    writer = RecordWriter(folder.samples)
    try:
        for group in groups.values():
            predict(group, dataset, workshop, engines[group[0].row.label], journal, writer)
    finally:
        writer.close()
    return said


def make_judge(config: RunConfig, workshop: Workshop) -> Judge:
    """The judge that the options name: exact words, another model, or the judged model itself."""
    backend = config.judge_backend
    if backend is None:
        return exact_judge()
    engine = workshop.engine(backend, config)
    agents = workshop.agents(config)
    return model_judge(engine, agents, label=backend.model, itself=config.judges_itself, similarity=config.similarity)


def _manifest(
    suite: str,
    rows: Sequence[Row],
    config: RunConfig,
    dataset: Dataset,
    questions: Sequence[Question],
    workshop: Workshop,
    engines: Mapping[str, Mapping[str, Engine]],
) -> dict[str, Any]:
    """What config.json says. Under ``predicting`` stands what names the run: nothing else may change an answer."""
    agents = {row.config.prompt_set: workshop.agents(row.config).digest for row in rows}
    captions = {row.config.captions: digest(_text(row.config.captions)) for row in rows if row.config.captions}
    used = {role: backend for row in rows for role, backend in row.config.backends.items()}
    models = {r: {**b.model_dump(), "digest": workshop.engine(b, config).digest} for r, b in used.items()}
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
            "options": {k: v for k, v in config.predicting().items() if k not in ("data", "captions")},
            "rows": [[row.label, row.setting.name, {k: str(v) for k, v in row.changes.items()}] for row in rows],
            "data": dataset.digest,
            "questions": [q.uid for q in questions],
            "models": {label: sorted({(r, e.digest) for r, e in roles.items() if r != "judge"}) for label, roles in engines.items()},
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
    workshop = Workshop(open_data(config), cache, factory)
    records = folder.records()
    with Journal(folder.journal) as journal:
        judge = make_judge(config, workshop)
        if judge.engine is not None:
            check_engines((), {"judge": judge.engine})
        judge_run(folder, records, judge, workshop.dataset.graph, journal)
    return folder


def report(folder: RunFolder, judge: str | None = None) -> dict[str, Any]:
    """Writes report.md, summary.json and the figures from what stands in the folder; returns the summary."""
    from bench.figures import draw

    manifest, records = folder.manifest(), folder.records()
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
