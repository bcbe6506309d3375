"""The six settings end to end on worlds of given seeds: bench's own run through the transformers engine, answers compared word by word.

Worlds are made for it, with as many creatures as the questions need; names of test worlds were never trained on. Knows no prompt and
no agent. A sample that failed counts as a wrong answer and is told.

    python -m bench eval-tiny --end-to-end --questions 500 --worlds 11,12,13
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from bench.config import RunConfig
from bench.metrics import MEASURES, values
from bench.records import by_row
from bench.rows import settings_suite
from bench.run import run_suite
from bench.settings import SETTINGS
from bench.stats import mean_interval
from bench.tiny import targets
from bench.tiny.evaluate import Score
from bench.world.questions import default_counts
from bench.world.write import write_world
from models.errors import ConfigError

PATHS = ("pre", "rec", "topic")  # measures beside accuracy


@dataclass(frozen=True, slots=True)
class Worlds:
    """Seeds, and how many creatures each of the worlds has."""

    seeds: tuple[int, ...]
    creatures: int

    @classmethod
    def asking(cls, questions: int, seeds: Sequence[int]) -> Worlds:
        """Equal worlds of these seeds, just large enough for so many questions in all. Raises ConfigError."""
        if not seeds or len(set(seeds)) != len(seeds):
            raise ConfigError(f"worlds {', '.join(map(str, seeds)) or 'none'}", remedy="give different seeds: --worlds 11,12,13")
        if questions < 1:
            raise ConfigError(f"{questions} questions", remedy="ask at least one")
        return cls(tuple(seeds), next(n for n in count(2) if sum(default_counts(n)) * len(seeds) >= questions))


def measure(model: Path, worlds: Worlds, work: Path, *, workers: int = 2, settings: Sequence[str] = tuple(SETTINGS)) -> dict[str, Any]:
    """Runs the settings; what was measured, ready for JSON.

    Args:
        work: where worlds and runs are made; what is there already is used again. workers: processes that draw.

    Returns: ``worlds`` (seed, creatures, questions), ``questions`` in all, and for every setting ``acc`` as right and total, the
    path measures as mean, low, high (95 %, bootstrap over n questions), and ``failed`` samples by reason.
    """
    measured: dict[str, dict[str, list[float]]] = {setting: {name: [] for name in ("acc", *PATHS)} for setting in settings}
    failed: dict[str, dict[str, int]] = {setting: {} for setting in settings}
    made = []
    for seed in worlds.seeds:
        data = work / f"world-{seed}-{worlds.creatures}"
        written = write_world(data, seed, worlds.creatures, None, keyframes=True, workers=workers)
        made.append({"seed": seed, "creatures": worlds.creatures, "questions": written.questions})
        config = RunConfig(
            data=str(data), model=str(model), prompts="compact", judge="exact", settings=tuple(settings), similarity=False,
            engine="transformers", runs=str(work / "runs"), name=f"eval-tiny, world {seed}",
        )  # fmt: skip
        run = run_suite("settings", settings_suite(config), config, cache=work / "cache")
        judging = run.scores()
        assert judging is not None
        for setting, records in by_row(run.records().values()).items():
            found = measured[setting]
            acc = values(records, judging["scores"], MEASURES["acc"])
            found["acc"] += [acc.get(record.uid, 0.0) for record in records]
            for name in PATHS:
                found[name] += values(records, judging["scores"], MEASURES[name]).values()
            for record in records:
                if not record.ok:
                    reason = f"{record.stage}: {record.reason}"
                    failed[setting][reason] = failed[setting].get(reason, 0) + 1
    return {
        "worlds": made,
        "questions": sum(world["questions"] for world in made),
        "settings": {setting: _cells(found) | {"failed": failed[setting]} for setting, found in measured.items()},
    }


def _cells(found: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    cells: dict[str, Any] = {"acc": {"right": int(sum(found["acc"])), "total": len(found["acc"])}}
    for name in PATHS:
        interval = mean_interval(found[name])
        cells[name] = None if interval.mean is None else {
            "mean": interval.mean, "low": interval.low, "high": interval.high, "n": interval.n
        }  # fmt: skip
    return cells


def interval_of(cell: Mapping[str, Any]) -> tuple[float, float, float]:
    """(value, low, high) of a cell, a share (Wilson) or a mean."""
    if "right" in cell:
        score = Score(cell["right"], cell["total"])
        return score.value, *score.interval
    return cell["mean"], cell["low"], cell["high"]


def table(facts: Mapping[str, Any]) -> str:
    """Markdown: one row a setting, every measured value with its 95 % interval and its target."""
    seeds = ", ".join(str(world["seed"]) for world in facts["worlds"])
    lines = [
        f"{facts['questions']} questions ({targets.verdict(targets.QUESTIONS, facts['questions'])}) of {len(facts['worlds'])} worlds "
        f"(seeds {seeds}; {facts['worlds'][0]['creatures']} creatures each), answers compared word by word:",
        "",
        "| setting | accuracy | target | path precision | path recall | target pre, rec | topic |",
        "|---|---|---|---|---|---|---|",
    ]
    for setting, cells in facts["settings"].items():
        shown = {name: "" if cells[name] is None else _cell(cells[name]) for name in ("acc", *PATHS)}
        wanted = {name: _wanted(setting, name, cells[name]) for name in ("acc", *PATHS)}
        paths = ", ".join(filter(None, (wanted["pre"], wanted["rec"])))
        lines.append(f"| {setting} | {shown['acc']} | {wanted['acc']} | {shown['pre']} | {shown['rec']} | {paths} | {shown['topic']} |")
    lost = [f"{setting}: {n} × {why}" for setting, cells in facts["settings"].items() for why, n in cells["failed"].items()]
    return "\n".join([*lines, *(["", "failed samples, counted as wrong: " + "; ".join(lost)] if lost else [])])


def _cell(cell: Mapping[str, Any]) -> str:
    value, low, high = interval_of(cell)
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def _wanted(setting: str, name: str, cell: Mapping[str, Any] | None) -> str:
    return targets.verdict(targets.END_TO_END.get((setting, name)), None if cell is None else interval_of(cell)[0])
