"""A run as numbers: everything that the report shows, computed once, ready for JSON (summary.json).

Knows no model and asks none: records, scores and the manifest are all it reads. Try: python -m bench report RUN
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from bench.cost import cost
from bench.metrics import MEASURES, Cell, cell, values
from bench.published import source, table
from bench.records import Record, Score, by_row
from bench.stats import paired

BESIDE = {False: ("table3", "table18"), True: ("table5", "table17", "table19", "table18")}  # the paper's tables beside a suite


def summarize(
    manifest: Mapping[str, Any],
    records: Mapping[str, Record],
    judging: Mapping[str, Any] | None,
    times: Mapping[str, Sequence[float]],
    environments: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The summary of one run.

    Args:
        manifest: config.json of the run. records: row|uid → record. judging: ``judge`` and ``scores`` of the judge that counts.
        times: seconds of every sample's calls. environments: every start of the run.
    """
    scores: Mapping[str, Score] = judging["scores"] if judging else {}
    seed = int(manifest["config"]["seed"])
    grouped = by_row(records.values())
    rows = [_row(row, grouped.get(row["label"], []), manifest, scores, times, seed) for row in manifest["rows"]]
    return {
        "run": {k: manifest["config"][k] for k in ("name", "tags", "seed", "limit")} | {"suite": manifest["suite"]},
        "complete": all(not row["pending"] for row in rows) and judging is not None,
        "data": manifest["data"],
        "models": manifest["models"],
        "prompts": manifest["prompts"],
        "judge": judging["judge"] if judging else None,
        "rows": rows,
        "steps": _steps(manifest, grouped, scores, seed),
        "not run": manifest["not run"],
        "notes": manifest.get("notes", []),
        "options": manifest["config"],
        "environments": list(environments),
        "published": {"source": source()} | {name: _published(name) for name in BESIDE[manifest["suite"] == "ablations"]},
    }


def _row(
    row: Mapping[str, Any],
    records: Sequence[Record],
    manifest: Mapping[str, Any],
    scores: Mapping[str, Score],
    times: Mapping[str, Sequence[float]],
    seed: int,
) -> dict[str, Any]:
    total = int(row["questions"])
    tasks = [
        {"task": i, "name": name, "questions": len(found), "cells": _cells(found, scores, len(found), seed)}
        for i, name in enumerate(manifest["data"]["tasks"])
        if (found := [record for record in records if record.task == i])
    ]
    answered = [record for record in records if record.ok]
    return {
        "label": row["label"],
        "setting": row["setting"],
        "changes": row["changes"],
        "questions": total,
        "answered": len(answered),
        "pending": total - len(records),
        "cells": _cells(records, scores, total, seed),
        "tasks": tasks,
        "cost": asdict(cost(records, times)),
        "failed": _counted(f"{r.stage}: {r.reason}" for r in records if not r.ok),
        "unscored": _counted(
            (scores[r.key].reason or "no verdict") if r.key in scores else "not judged yet"
            for r in answered
            if r.key not in scores or scores[r.key].value is None
        ),
        "limits": _counted(limit for r in records for limit in r.limits),
        "dropped names": sum(r.dropped for r in records),
        "unclear replies": sum(r.unclear for r in records),
        "retrieved": _counted(str(len(r.walks)) for r in answered if r.searched),
    }


def _cells(records: Sequence[Record], scores: Mapping[str, Score], total: int, seed: int) -> dict[str, Any]:
    return {name: _flat(cell(records, scores, measure, seed=seed), total) for name, measure in MEASURES.items()}


def _flat(one: Cell, total: int) -> dict[str, Any]:
    counted = Cell(one.measure, one.interval, total)
    return {
        "mean": one.interval.mean,
        "low": one.interval.low,
        "high": one.interval.high,
        "n": one.interval.n,
        "total": total,
        "over total": counted.over_total,
    }


def _steps(
    manifest: Mapping[str, Any], grouped: Mapping[str, Sequence[Record]], scores: Mapping[str, Score], seed: int
) -> list[dict[str, Any]]:
    """Every row against the one above it, on the questions that both have scored."""
    labels = [row["label"] for row in manifest["rows"]]
    found = []
    for above, below in pairwise(labels):
        for name in ("acc", "rec"):
            a, b = (values(grouped.get(label, []), scores, MEASURES[name]) for label in (below, above))
            test = paired(a, b, seed=seed)
            if test.n:
                found.append({"row": below, "against": above, "measure": name, **asdict(test)})
    return found


def _counted(items: Any) -> dict[str, int]:
    return dict(Counter(items).most_common())


def _published(name: str) -> dict[str, Any]:
    paper = table(name)
    return {"columns": list(paper.columns), "rows": {name: list(cells) for name, cells in paper.rows.items()}}
