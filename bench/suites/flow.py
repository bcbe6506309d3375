"""Runs a suite's questions through the CUE-M flow, row by row, into a run folder: predict, then judge; a killed run goes on.

Knows no data set; a suite gives its questions and its judge's rules. Try: python -m bench evqa --data DIR --limit 4
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.config import Backend, RunConfig
from bench.environment import environment
from bench.folder import RunFolder, find_or_make, taken_away_unstarted
from bench.records import Record, RecordWriter, digest
from bench.score import Judge, judge_run
from bench.suites.items import Data, Item, finished, lost
from bench.suites.judges import Wording
from bench.suites.options import Options, described
from bench.workshop import CACHE, OpenEngine, identify, open_engine
from models.agents import Episode, changed
from models.drivers import Limits, Outcome, run
from models.engines import Engine, Stoppable
from models.errors import StackError
from models.journal import Journal
from models.progress import progress
from pipeline.agents import Agents
from pipeline.flow import ROWS, Answer, Kit, Query, answer
from pipeline.images import prepare
from pipeline.settings import CHAT, Equipment


@dataclass(frozen=True)
class Rules:
    """How a suite judges: its prompt's name, the verdict of `--judge exact`, and what is settled without asking anybody."""

    prompt: str
    exactly: Callable[[Record], bool]
    settled: Callable[[Record], bool | None]


@dataclass
class Engines:
    """The run's engines by backend, each opened once; `close` stops what was started here."""

    config: RunConfig
    factory: OpenEngine = open_engine
    media: Path = CACHE / "pictures"
    logs: Path = CACHE / "servers"
    _known: dict[Backend, Engine] = field(default_factory=dict)

    def of(self, backend: Backend) -> Engine:
        if backend not in self._known:
            usual = self.factory is open_engine
            self._known[backend] = (
                self.factory(backend, self.config, self.media, self.logs) if usual else self.factory(backend, self.config)
            )
        return self._known[backend]

    def identity(self, backend: Backend) -> str:
        return identify(backend, self.config) if self.factory is open_engine else self.of(backend).digest

    def chat(self) -> dict[str, Engine]:
        """The roles that a chat model answers."""
        known = self.config.backends
        return {role: self.of(known.get(role, known["agent"])) for role in CHAT}

    def close(self) -> None:
        for backend, engine in list(self._known.items()):
            if isinstance(engine, Stoppable):
                del self._known[backend]
                engine.stop()


def run_flow(
    suite: str, options: Options, data: Data, rules: Rules, *, factory: OpenEngine = open_engine, cache: Path = CACHE
) -> RunFolder:
    """Predicts and judges what is left of this run. Raises UserError for what the user can mend, KeyboardInterrupt on Ctrl-C."""
    config, equipment = options.config, Equipment(options.settings)
    items = data.first(config.limit)
    engines = Engines(config, factory, cache / "pictures")
    agents = Agents.load(config.prompt_set)
    tools = equipment.engines()
    manifest = _manifest(suite, options, data, items, agents, engines, tools)
    folder, _ = find_or_make(Path(config.runs), suite, config.model, manifest)
    engines.logs = folder.path
    try:
        with Journal(folder.journal) as journal, taken_away_unstarted(folder):
            known = folder.records()
            todo = [(row, item) for row in options.rows for item in items if _open(known.get(f"{row}|{item.uid}"), config.retry)]
            if todo:
                folder.started(environment())
                kits = {row: equipment.kit(agents, ROWS[row]) for row in options.rows}
                _predict(todo, kits, {**tools, **engines.chat()}, journal, folder, config, engines.media)
            judge = make_judge(config, engines, rules)
            judge_run(folder, folder.records(), judge, None, journal)
    finally:
        engines.close()
    return folder


def _open(record: Record | None, retry: bool) -> bool:
    return record is None or (retry and not record.ok)


def _predict(
    todo: Sequence[tuple[str, Item]],
    kits: Mapping[str, Kit],
    backends: Mapping[str, Engine],
    journal: Journal,
    folder: RunFolder,
    config: RunConfig,
    media: Path,
) -> None:
    names = {f"{row}|{item.uid}": (row, item) for row, item in todo}
    writer = RecordWriter(folder.samples)

    def episodes() -> Iterator[tuple[str, Episode[Answer]]]:
        for name, (row, item) in names.items():
            if item.lost:
                writer.write(lost(row, item, "picture", "missing", item.lost))
                continue
            try:
                pictures = tuple(prepare(path, media) for path in item.pictures)
            except StackError as error:
                writer.write(lost(row, item, "picture", "unusable", str(error)))
                continue
            yield name, decoded(answer(Query(item.question, pictures, item.history), kits[row]), config.temperature, config.seed)

    def done(name: str, outcome: Outcome[Answer]) -> None:
        row, item = names[name]
        writer.write(finished(row, item, outcome))

    try:
        with progress("predict", len(todo)) as tell:
            run(
                episodes(),
                backends,
                journal,
                on_done=done,
                progress=lambda p: tell(p.done, f"{p.calls} calls, {p.failed} failed"),
                limits=Limits(seconds=config.deadline),
                keep=False,
            )
    finally:
        writer.close()


def decoded(episode: Episode[Answer], temperature: float, seed: int) -> Episode[Answer]:
    """The same episode, the chat model's calls sampled at this temperature; at 0 as they are. Tools are left alone."""
    if not temperature:
        return episode
    return changed(episode, lambda request: request.with_decoding(temperature=temperature, seed=seed), CHAT)


def make_judge(config: RunConfig, engines: Engines, rules: Rules) -> Judge:
    """The judge that the options name, with this suite's prompt and rules."""
    wording = Wording.load(rules.prompt, "compact" if config.prompt_set == "compact" else "full")
    backend = config.judge_backend
    if backend is None:
        return Judge("exact", digest(f"exact {rules.prompt} 1"), exactly=rules.exactly, settled=rules.settled)
    identity = digest("\n".join([engines.identity(backend), wording.agent.prompt.model_dump_json()]))
    return Judge(
        backend.model,
        identity,
        config.judges_itself,
        lambda: engines.of(backend),
        wording,
        False,
        exactly=rules.exactly,
        settled=rules.settled,
    )


def _manifest(
    suite: str, options: Options, data: Data, items: Sequence[Item], agents: Agents, engines: Engines, tools: Mapping[str, Engine]
) -> dict[str, Any]:
    """What config.json says; under ``predicting`` stands what names the run."""
    config = options.config
    models = {role: {**backend.model_dump(), "digest": engines.identity(backend)} for role, backend in config.backends.items()}
    cut = len(data.items) - len(items)
    keep = {"prompts", "seed", "temperature"}
    return {
        "suite": suite,
        "config": described(options),
        "rows": [{"label": row, "setting": row, "changes": {}, "questions": len(items)} for row in options.rows],
        "data": {
            "name": data.name,
            "folder": str(data.folder),
            "digest": data.digest,
            "tasks": list(data.tasks),
            "questions": data.whole,
            "asked": len(items),
        },
        "models": models,
        "prompts": {config.prompt_set: agents.digest},
        "notes": list(data.notes),
        "not run": [
            *(
                [f"rows {', '.join(name for name in ROWS if name not in options.rows)} (not asked for)"]
                if len(options.rows) < len(ROWS)
                else []
            ),
            *([f"{cut} of {len(data.items)} questions (--limit)"] if cut else []),
        ],
        "predicting": {
            "suite": suite,
            "options": {k: v for k, v in config.model_dump(mode="json").items() if k in keep},
            "rows": list(options.rows),
            "data": data.digest,
            "questions": [item.uid for item in items],
            "models": {role: row["digest"] for role, row in models.items()},
            "prompts": agents.digest,
            "over": {
                "thresholds": json.loads(options.settings.model_dump_json(include=THRESHOLDS)),
                "tools": {role: engine.digest for role, engine in tools.items()},
            },
        },
    }


THRESHOLDS = {"threshold", "category_threshold", "harm_threshold", "relevant", "search_k", "similar_k", "kept"}
