"""Summary, report.md and terminal table of a suite over the CUE-M flow: rows × measures with intervals, tasks, cost, what is missing.

A suite gives its measures, more tables of its own, and the published figures that stand beside. Asks no model.
Try: python -m bench report RUN
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.cost import call_times, cost
from bench.folder import RunFolder
from bench.records import Record, Score, by_row
from bench.report import NONE, grid, interval, number
from bench.stats import mean_interval, paired
from models.errors import RunError

Value = Callable[[Record, Score | None], float | None]
PUBLISHED = Path(__file__).with_name("published.toml")


@dataclass(frozen=True)
class Measure:
    """A value of one record, None where it has none; `note` says in words what it is and when it is empty."""

    name: str
    label: str
    of: Value
    note: str


@dataclass(frozen=True)
class Grid:
    """One more table."""

    title: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]
    note: str = ""


More = Callable[[Mapping[str, Sequence[Record]], Mapping[str, Score], Sequence[str]], Sequence[Grid]]


@dataclass(frozen=True)
class Sheet:
    """What a suite's report is made of. `more` gets rows' records, scores and task names."""

    title: str
    measures: Sequence[Measure]
    published: Sequence[str] = ()
    more: More = lambda rows, scores, tasks: ()


def judged(record: Record, score: Score | None) -> float | None:
    """The judge's verdict as a number."""
    return None if score is None or score.value is None else float(score.value)


@cache
def published() -> Mapping[str, Any]:
    """The paper's tables beside a suite: name → {title, columns, rows}."""
    return tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))


def summarize(folder: RunFolder, sheet: Sheet, hash8: str | None = None) -> dict[str, Any]:
    """Everything that the report shows, ready for JSON. Raises RunError for a judge that has not judged."""
    if hash8 is not None and hash8 not in folder.judges():
        remedy = f"judges: {', '.join(folder.judges()) or 'none'}"
        raise RunError(f"no judge {hash8!r} has judged this run", where=str(folder.path), remedy=remedy)
    manifest, judging, records = folder.manifest(), folder.scores(hash8), folder.records()
    scores: Mapping[str, Score] = judging["scores"] if judging else {}
    wanted = set(manifest["predicting"]["questions"])
    grouped = {row: [r for r in found if r.uid in wanted] for row, found in by_row(records.values()).items()}
    times, seed = call_times(folder.journal), int(manifest["config"]["seed"])
    rows = [_row(row, grouped.get(row["label"], []), sheet, scores, times, manifest, seed) for row in manifest["rows"]]
    more = sheet.more(grouped, scores, manifest["data"]["tasks"])
    return {
        "run": {k: manifest["config"][k] for k in ("name", "tags", "seed", "limit")} | {"suite": manifest["suite"]},
        "title": sheet.title,
        "complete": all(not row["pending"] for row in rows) and judging is not None,
        "data": manifest["data"],
        "models": manifest["models"],
        "prompts": manifest["prompts"],
        "judge": judging["judge"] if judging else None,
        "measures": {m.name: {"label": m.label, "note": m.note} for m in sheet.measures},
        "rows": rows,
        "steps": _steps(manifest["rows"], grouped, sheet, scores, seed),
        "more": [asdict(one) for one in more],
        "not run": manifest["not run"],
        "notes": manifest.get("notes", []),
        "options": manifest["config"],
        "environments": folder.environments(),
        "published": {name: published()[name] for name in sheet.published},
    }


def _row(
    row: Mapping[str, Any],
    records: Sequence[Record],
    sheet: Sheet,
    scores: Mapping[str, Score],
    times: Mapping[str, Sequence[float]],
    manifest: Mapping[str, Any],
    seed: int,
) -> dict[str, Any]:
    answered = [r for r in records if r.ok]
    tasks = [
        {"task": i, "name": name, "questions": len(found), "cells": _cells(found, sheet, scores, seed)}
        for i, name in enumerate(manifest["data"]["tasks"])
        if (found := [r for r in records if r.task == i])
    ]
    unscored = [
        (scores[r.key].reason or "no verdict") if r.key in scores else "not judged yet"
        for r in answered
        if r.key not in scores or scores[r.key].value is None
    ]
    return {
        "label": row["label"],
        "questions": row["questions"],
        "answered": len(answered),
        "pending": row["questions"] - len(records),
        "cells": _cells(records, sheet, scores, seed),
        "tasks": tasks,
        "cost": asdict(cost(records, times)),
        "failed": dict(Counter(f"{r.stage}: {r.reason}" for r in records if not r.ok).most_common()),
        "unscored": dict(Counter(unscored).most_common()),
        "notes": dict(Counter(note for r in records for note in r.limits).most_common()),
        "applications": dict(Counter(a for r in answered for a in r.facts.get("applications", ())).most_common()),
    }


def _values(records: Sequence[Record], scores: Mapping[str, Score], of: Value) -> dict[str, float]:
    return {r.uid: value for r in records if (value := of(r, scores.get(r.key))) is not None}


def _cells(records: Sequence[Record], sheet: Sheet, scores: Mapping[str, Score], seed: int) -> dict[str, Any]:
    return {m.name: asdict(mean_interval(list(_values(records, scores, m.of).values()), seed=seed)) for m in sheet.measures}


def _steps(
    rows: Sequence[Mapping[str, Any]], grouped: Mapping[str, Sequence[Record]], sheet: Sheet, scores: Mapping[str, Score], seed: int
) -> list[dict[str, Any]]:
    """Every row against the first, on the questions that both have a value of."""
    first = rows[0]["label"]
    found = []
    for row in rows[1:]:
        for m in sheet.measures:
            a, b = (_values(grouped.get(label, []), scores, m.of) for label in (row["label"], first))
            test = paired(a, b, seed=seed)
            if test.n:
                found.append({"row": row["label"], "against": first, "measure": m.label, **asdict(test)})
    return found


def lead(summary: Mapping[str, Any]) -> str:
    judge = summary["judge"]["label"] if summary["judge"] else "nobody yet"
    data, model = summary["data"], summary["models"]["agent"]["model"]
    end = "" if summary["complete"] else " NOT COMPLETE."
    return f"{summary['title']}: {model} on {data['name']}, {data['asked']} of {data['questions']} questions, judged by {judge}.{end}"


def notes(summary: Mapping[str, Any]) -> list[str]:
    """What a reader of the numbers must know."""
    found, judge = [], summary["judge"]
    if judge is None:
        found.append("Not judged yet.")
    elif judge["itself"]:
        found.append(f"The judge is the judged model itself ({judge['label']}): what it judges is its own word. Give --judge for another.")
    elif judge["exact"]:
        found.append("Judged by a rule without a model (--judge exact): see the measures' notes.")
    pending, failed = (sum(sum(r[k].values()) if k == "failed" else r[k] for r in summary["rows"]) for k in ("pending", "failed"))
    if pending:
        found.append(f"{pending} samples are still to be asked. The same command goes on.")
    if failed:
        found.append(f"{failed} samples failed; --retry asks them again.")
    return [*found, *summary["notes"]]


def markdown(summary: Mapping[str, Any]) -> str:
    """report.md."""
    measures = summary["measures"]
    parts = [f"# {summary['run']['name'] or summary['title']}", lead(summary), *(f"> {note}" for note in notes(summary)), "## Results"]
    lines = [[r["label"], *(interval(r["cells"][m]) for m in measures), f"{r['answered']} of {r['questions']}"] for r in summary["rows"]]
    parts.append(grid(["", *(m["label"] for m in measures.values()), "answered"], lines))
    parts.append("\n".join(f"- {m['label']}: {m['note']}" for m in measures.values()))
    parts.append(f"Brackets hold 95 % bootstrap intervals over questions (seed {summary['run']['seed']}).")
    if summary["steps"]:
        rows = [
            [s["row"], s["against"], s["measure"], _gap(s["difference"]), f"{s['p']:.4f}", str(s["difference"]["n"])]
            for s in summary["steps"]
        ]
        parts += ["### Against the first row", grid(["row", "against", "measure", "difference", "p", "questions"], rows)]
    parts += ["## By kind of question", *_tasks(summary)]
    for one in summary["more"]:
        parts += [f"## {one['title']}", grid(one["head"], one["lines"]), *([one["note"]] if one["note"] else [])]
    for table in summary["published"].values():
        rows = [[name, *(number(v) if v == v else NONE for v in cells)] for name, cells in table["rows"].items()]
        parts += [f"## Published: {table['title']}", grid(["published, not measured here", *table["columns"]], rows)]
    parts += ["## Cost of a question", _cost(summary), "## What is missing", _missing(summary), "## How", _how(summary)]
    return "\n\n".join(parts) + "\n"


def _gap(one: Mapping[str, Any]) -> str:
    return f"{one['mean']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]"


def _tasks(summary: Mapping[str, Any]) -> list[str]:
    names = summary["data"]["tasks"]
    out = []
    for key, measure in summary["measures"].items():
        lines = []
        for row in summary["rows"]:
            by_task = {task["name"]: task["cells"][key] for task in row["tasks"]}
            cells = [f"{number(by_task[n]['mean'])} ({by_task[n]['n']})" if n in by_task else NONE for n in names]
            lines.append([row["label"], *cells])
        if any(cell != NONE and not cell.startswith(NONE) for line in lines for cell in line[1:]):
            out.append(f"{measure['label']} (in brackets: questions with a value)\n\n" + grid(["", *names], lines))
    return out


def _cost(summary: Mapping[str, Any]) -> str:
    lines = [[r["label"], *(_spread(r["cost"][k]) for k in ("seconds", "calls", "per_call")), str(r["answered"])] for r in summary["rows"]]
    return grid(["", "time (s)", "calls", "time a call (s)", "questions"], lines)


def _spread(value: Mapping[str, Any]) -> str:
    return f"{value['mean']:.2f} ± {value['sd']:.2f}" if value["n"] else NONE


def _missing(summary: Mapping[str, Any]) -> str:
    lines = [f"- not run: {what}" for what in summary["not run"]]
    for row in summary["rows"]:
        counts = [f"{n} failed ({why})" for why, n in row["failed"].items()]
        counts += [f"{n} unscored ({why})" for why, n in row["unscored"].items()]
        counts += [f"{n}x {what}" for what, n in row["notes"].items()]
        counts += [f"{row['pending']} still to be asked"] if row["pending"] else []
        if counts:
            lines.append(f"- {row['label']}: {'; '.join(counts)}")
    return "\n".join(lines) or "Nothing: every question was asked, answered and scored in every row."


def _how(summary: Mapping[str, Any]) -> str:
    data, options = summary["data"], summary["options"]
    used = ", ".join(
        f"{k}={v}" for k, v in options.items() if k not in ("roles", "runs", "data", "model", "over") and v not in (None, "", [], {})
    )
    lines = [
        ["data", f"{data['name']}, {data['folder']}, {data['digest'][:16]}"],
        *([f"model ({role})", f"{one['model']}, {one['digest'][-16:]}"] for role, one in summary["models"].items()),
        *([f"prompts ({name})", digest[:16]] for name, digest in summary["prompts"].items()),
        ["judge", f"{summary['judge']['label']}, {summary['judge']['digest'][:16]}" if summary["judge"] else NONE],
        ["asked over", json.dumps({k: v for k, v in options["over"].items() if v not in (None, [], {})}, ensure_ascii=False)],
        ["options", used],
    ]
    for i, machine in enumerate(summary["environments"], 1):
        lines.append(
            [f"start {i}", f"{machine['started']}; {machine['processor']}, {machine['cores']} cores; commit {machine['commit'] or NONE}"]
        )
    return grid(["", ""], lines)


def report(folder: RunFolder, sheet: Sheet, hash8: str | None = None, out: Console | None = None) -> dict[str, Any]:
    """Writes summary.json and report.md, prints the table, and returns the summary."""
    summary = summarize(folder, sheet, hash8)
    folder.write("summary.json", json.dumps(summary, indent=1))
    folder.write("report.md", markdown(summary))
    screen = out or Console(width=None if Console().is_terminal else 160)
    table = Table(title=lead(summary), title_justify="left")
    for name in ("row", *(m["label"] for m in summary["measures"].values()), "answered"):
        table.add_column(name, no_wrap=True)
    for row in summary["rows"]:
        table.add_row(row["label"], *(interval(row["cells"][m]) for m in summary["measures"]), f"{row['answered']}/{row['questions']}")
    screen.print(table)
    for note in notes(summary):
        screen.print(note, style="dim", highlight=False, markup=False)
    screen.print(f"report: {folder.path / 'report.md'}", highlight=False, soft_wrap=True)
    return summary
