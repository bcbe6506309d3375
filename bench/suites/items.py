"""What a suite over the CUE-M flow asks, and what it keeps of each answer. Knows no data set and no model.

Try: python -m bench evqa --help
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.records import Record
from models.drivers import Outcome
from pipeline.flow import Answer


@dataclass(frozen=True, slots=True)
class Item:
    """One question: `task` is an index into `Data.tasks`; `gold` what the judge is shown; `lost` says why its picture is not there."""

    uid: str
    task: int
    question: str
    gold: str = ""
    pictures: tuple[Path, ...] = ()
    history: tuple[tuple[str, str], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    lost: str = ""


@dataclass(frozen=True)
class Data:
    """A set of questions as it was read. `whole`: how many it holds before --limit; `notes`: what the reader noticed."""

    name: str
    folder: Path
    digest: str
    tasks: tuple[str, ...]
    items: tuple[Item, ...]
    whole: int
    notes: tuple[str, ...] = ()

    def first(self, limit: int | None) -> tuple[Item, ...]:
        """The first `limit` items of every task in turn, so that a small limit still sees every task."""
        if limit is None or limit >= len(self.items):
            return self.items
        groups: dict[int, list[Item]] = {}
        for item in self.items:
            groups.setdefault(item.task, []).append(item)
        dealt = [group[i] for i in range(max(map(len, groups.values()))) for _, group in sorted(groups.items()) if i < len(group)]
        kept = {item.uid for item in dealt[:limit]}
        return tuple(item for item in self.items if item.uid in kept)


def lost(row: str, item: Item, stage: str, reason: str, detail: str) -> Record:
    """The record of a question that could not be asked."""
    return Record(row, item.uid, item.task, False, item.question, item.gold, stage=stage, reason=reason, detail=detail, facts=item.facts)


def finished(row: str, item: Item, outcome: Outcome[Answer]) -> Record:
    """The record of a question that came to its end, well or not."""
    cost: dict[str, Any] = {"calls": outcome.calls, "reused": outcome.reused, "rounds": outcome.rounds}
    cost |= {"seconds": outcome.call_seconds, "wall": outcome.seconds}
    base: dict[str, Any] = {"row": row, "uid": item.uid, "task": item.task, "question": item.question, "gold_answer": item.gold}
    if outcome.failure is not None or outcome.value is None:
        failure = outcome.failure
        told = (failure.stage, failure.reason, failure.detail) if failure else ("episode", "no-value", "")
        return Record(**base, ok=False, stage=told[0], reason=told[1], detail=told[2], facts=item.facts, **cost)
    made = outcome.value
    ranked = list(dict.fromkeys(p.document for p in (*made.sources, *made.dropped)))
    facts = {
        **item.facts,
        "blocked": made.blocked.stage if made.blocked else "",
        "blocked why": str(made.blocked) if made.blocked else "",
        "not found": made.not_found,
        "cited": list(made.cited),
        "given": len(made.sources),
        "tags": [tag.text for tag in made.tags],
        "applications": _applications(made),
    }
    return Record(
        **base,
        ok=True,
        answer=made.text,
        perceived=made.intent.text if made.intent else "",
        searched=bool(ranked),
        names=tuple(ranked),
        limits=tuple(kind for kind, _ in made.trace.notes if kind != "blocked"),
        facts=facts,
        **cost,
    )


def _applications(made: Answer) -> Sequence[str]:
    return [step.stage.removeprefix("run ") for step in made.trace.steps if step.stage.startswith("run ") and step.stage != "run search"]
