"""Everything that can be known to be wrong before a model is loaded, told at once; then, once they are open, the engines' own misfits.

Knows the rows, the data set and the options; asks no model. Try: python -m bench run --settings perceptive --data NOWHERE
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench.config import Backend, RunConfig
from bench.rows import Row
from bench.workshop import spec_of
from kg.agents import Agents
from kg.captions import captioned, read_captions
from kg.dataset import Dataset, Question
from models.engines import Engine, ServerEngine, Workload, check_spec
from models.errors import ConfigError, UserError

JUDGING = frozenset({"judge", "caption_judge"})


def chosen(dataset: Dataset, tasks: Sequence[str], limit: int | None) -> tuple[Question, ...]:
    """The questions that a run asks: of these sub-tasks, the first `limit`. Raises ConfigError for a sub-task that there is not."""
    names = dataset.card.tasks
    wanted: set[int] = set()
    for task in tasks:
        if task in names:
            wanted.add(names.index(task))
        elif task.isascii() and task.isdigit() and 1 <= int(task) <= len(names):
            wanted.add(int(task) - 1)
        else:
            listed = ", ".join(f"{i} {name}" for i, name in enumerate(names, 1))
            raise ConfigError(f"no sub-task {task!r}", remedy=f"sub-tasks: {listed}")
    found = tuple(q for q in dataset.questions if not wanted or q.task in wanted)[:limit]
    if not found:
        raise ConfigError("no question is left to ask", remedy="give other --tasks, or a data set with questions")
    return found


def check(rows: Sequence[Row], dataset: Dataset, questions: Sequence[Question]) -> None:
    """Raises one ConfigError that lists every misfit between rows, options and data."""
    faults = list(dict.fromkeys(_faults(rows, dataset, questions)))
    if len(faults) == 1:
        raise ConfigError(faults[0])
    if faults:
        raise ConfigError(f"{len(faults)} misfits\n" + "\n".join(f"  - {fault}" for fault in faults))


def _faults(rows: Sequence[Row], dataset: Dataset, questions: Sequence[Question]) -> Iterable[str]:
    blind = _names(row for row in rows if row.setting.needs_query_media)
    if blind and not any(q.has_media for q in questions):
        yield (
            f"settings {', '.join(blind)} need pictures or clips of the questions, and {dataset.folder} has none of them — "
            f"leave them out: --settings {_sighted(rows) or 'vanilla+,knowledgeable,perceptive'}"
        )
    blind = _names(r for r in rows if r.setting.needs_node_media or (r.setting.needs_offline_captions and not r.config.captions))
    if blind and not captioned(dataset):
        yield f"settings {', '.join(blind)} need pictures or clips of the graph, and {dataset.folder} has none of them — leave them out"
    untold = _names(row for row in rows if "human" in row.setting.query_sees)
    if untold and not any(q.perception for q in questions) and any(q.has_media for q in questions):
        yield f"settings {', '.join(untold)} need human descriptions of the questions, and no question has one — leave them out"
    for config in {row.config.prompt_set: row.config for row in rows}.values():
        yield from _said(lambda c=config: Agents.load(dataset.card, c.prompt_set))
    for path in {row.config.captions for row in rows if row.config.captions}:  # read for the manifest, whoever needs them
        yield from _said(lambda p=path: read_captions(Path(p), dataset))
    yield from _model_faults(rows)


def check_models(rows: Sequence[Row]) -> None:
    """The models' part of `check` alone, for when the data set is still to be made."""
    faults = list(_model_faults(rows))
    if faults:
        raise ConfigError("\n".join(faults))


def _model_faults(rows: Sequence[Row]) -> Iterable[str]:
    backends: dict[str, Backend] = {}
    for row in rows:
        backends |= row.config.backends
        judge = row.config.judge_backend
        if judge is not None:
            backends["judge"] = judge
    roles: dict[Backend, list[str]] = {}
    for role, backend in backends.items():
        roles.setdefault(backend, []).append(role)
    for backend, names in roles.items():
        yield from (f"{', '.join(names)}: {fault}" for fault in _backend_faults(backend, rows[0].config))


def _names(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.setting.name for row in rows))


def _sighted(rows: Sequence[Row]) -> str:
    return ",".join(_names(r for r in rows if not (r.setting.needs_query_media or r.setting.needs_node_media)))


def _said(action: object) -> Iterable[str]:
    assert callable(action)
    try:
        action()
    except UserError as error:
        yield str(error)


def _backend_faults(backend: Backend, config: RunConfig) -> Iterable[str]:
    if not backend.model:
        yield "no model is named — give --model"
    else:
        yield from _said(lambda: check_spec(spec_of(backend, config)))


def check_engines(rows: Sequence[Row], engines: Mapping[str, Engine], agents: Sequence[Agents]) -> None:
    """Asks every engine whether it can do its work, and every server whether it is there. Raises one error with all misfits.

    Args:
        engines: the roles that an engine has, in words → engine; "judge" is the one that only judges.
    """
    sees = any(r.setting.needs_query_media or r.setting.needs_node_media or r.setting.needs_offline_captions for r in rows)
    pictures = max(row.config.max_frames for row in rows) if sees else 0
    constraints = frozenset({"choices", "pattern"}) if any(row.config.constrained for row in rows) else frozenset[str]()
    faults: list[str] = []
    for roles, engine in engines.items():
        judging = roles == "judge"
        longest = max(a.prompt.max_tokens for one in agents for name, a in one.rows.items() if (name in JUDGING) == judging)
        work = Workload(0 if judging else pictures, frozenset() if judging else constraints, 0, longest)
        faults += [f"{roles}: {fault}" for fault in _said(lambda e=engine, w=work: e.check(w))]
        if isinstance(engine, ServerEngine):
            faults += [f"{roles}: {fault}" for fault in _said(lambda e=engine: asyncio.run(_probe(e)))]
    if faults:
        raise ConfigError("\n".join(dict.fromkeys(faults)))


async def _probe(engine: ServerEngine) -> None:
    try:
        await engine.open()
    finally:
        await engine.close()
