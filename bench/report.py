"""From a summary to something to read: report.md and the table at the terminal. Computes nothing.

The only file that knows Jinja. Try: python -m bench report RUN
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.console import Console
from rich.table import Table

from bench.stats import RESAMPLES

TEMPLATES = Path(__file__).parent / "templates"
NONE = "–"
TASK_NUMBERS = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X")


def markdown(summary: Mapping[str, Any], figures: Sequence[str] = ()) -> str:
    """report.md."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    run, rows = summary["run"], summary["rows"]
    return environment.get_template("report.md.j2").render(
        title=run["name"] or f"{summary['models']['agent']['model']} on {summary['data']['name']}",
        lead=_lead(summary),
        notes=notes(summary),
        results=_results(rows),
        steps=_steps(summary["steps"]),
        tasks=_tasks(rows),
        cost=_cost(rows),
        missing=_missing(summary),
        published=_published(summary),
        source=summary["published"]["source"],
        how=_how(summary),
        figures=figures,
        resamples=RESAMPLES,
        seed=run["seed"],
        k=summary["options"]["k"],
    )


def terminal(summary: Mapping[str, Any], out: Console) -> None:
    """Settings × (Acc, Pre, Rec) with intervals, and what to know about them."""
    table = Table(title=_plain_lead(summary), title_justify="left")
    for name in ("setting", "Acc", "scored", "Pre", "Rec", "Top", "calls", "s a question"):
        table.add_column(name, justify="left" if name == "setting" else "right", no_wrap=True)
    for row in summary["rows"]:
        cells = row["cells"]
        table.add_row(
            row["label"],
            interval(cells["acc"]),
            f"{cells['acc']['n']}/{row['questions']}",
            interval(cells["pre"]),
            interval(cells["rec"]),
            number(cells["topic"]["mean"], 2),
            _spread(row["cost"]["calls"], 1),
            _spread(row["cost"]["seconds"], 2),
        )
    out.print(table)
    for note in notes(summary):
        out.print(note, style="dim", highlight=False, markup=False)


def notes(summary: Mapping[str, Any]) -> list[str]:
    """What a reader of the numbers must know."""
    found = []
    judge = summary["judge"]
    if judge is None:
        found.append("Not judged yet: there is no accuracy. Run python -m bench score.")
    elif judge["itself"]:
        found.append(f"The judge is the judged model itself ({judge['label']}): its accuracy is its own word. Give --judge for another.")
    elif judge["exact"]:
        found.append(
            "Judged by exact words (--judge exact): the same words after case, outer punctuation, the order of a list and the root's name "
            "in front are taken away. A right answer in other words counts as wrong."
        )
    pending = sum(row["pending"] for row in summary["rows"])
    if pending:
        found.append(f"Not finished: {pending} samples are still to be asked. The same command goes on.")
    failed = sum(sum(row["failed"].values()) for row in summary["rows"])
    if failed:
        found.append(f"{failed} samples failed; --retry asks them again.")
    unscored = sum(sum(row["unscored"].values()) for row in summary["rows"]) if judge else 0
    if unscored:
        found.append(f"{unscored} answers have no verdict; they count in no accuracy but that of all.")
    return [*found, *summary["notes"]]


def number(value: float | None, digits: int = 3) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def interval(cell: Mapping[str, Any], digits: int = 3) -> str:
    """``.512 [.431, .593]``."""
    if cell["mean"] is None:
        return NONE
    return f"{cell['mean']:.{digits}f} [{cell['low']:.{digits}f}, {cell['high']:.{digits}f}]"


def grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; cells cannot break it."""
    safe = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in (head, *lines)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (safe[0], ["---"] * len(head), *safe[1:]))


def _spread(value: Mapping[str, Any], digits: int = 2) -> str:
    return f"{value['mean']:.{digits}f} ± {value['sd']:.{digits}f}" if value["n"] else NONE


def _plain_lead(summary: Mapping[str, Any]) -> str:
    judge = summary["judge"]["label"] if summary["judge"] else "nobody yet"
    data, model = summary["data"], summary["models"]["agent"]["model"]
    return f"{model} on {data['name']}: {data['asked']} of {data['questions']} questions, judged by {judge}"


def _lead(summary: Mapping[str, Any]) -> str:
    return _plain_lead(summary) + ("." if summary["complete"] else ". **Not complete.**")


def _results(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for row in rows:
        cells = row["cells"]
        acc = cells["acc"]
        lines.append(
            [
                row["label"],
                interval(acc),
                f"{acc['n']} of {row['questions']}",
                number(acc["over total"]),
                interval(cells["pre"]),
                interval(cells["rec"]),
                number(cells["topic"]["mean"]),
                number(cells["sim"]["mean"]),
            ]
        )
    return grid(["", "Acc", "scored", "Acc of all", "Pre", "Rec", "Top", "Sim"], lines)


def _steps(steps: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for step in steps:
        gap = step["difference"]
        shown = f"{gap['mean']:+.3f} [{gap['low']:+.3f}, {gap['high']:+.3f}]"
        lines.append([step["row"], step["against"], step["measure"], shown, f"{step['p']:.4f}", str(gap["n"])])
    return grid(["row", "against", "measure", "difference", "p", "questions"], lines) if lines else ""


def _tasks(rows: Sequence[Mapping[str, Any]]) -> str:
    names = {task["task"]: f"{TASK_NUMBERS[task['task'] % 10]} {task['name']}" for row in rows for task in row["tasks"]}
    lines = []
    for row in rows:
        by_task = {task["task"]: task for task in row["tasks"]}
        for measure in ("acc", "pre", "rec"):
            if row["cells"][measure]["mean"] is None and measure != "acc":
                continue
            found = [by_task.get(task) for task in sorted(names)]
            cells = [NONE if one is None else f"{number(one['cells'][measure]['mean'])} ({one['cells'][measure]['n']})" for one in found]
            lines.append([row["label"], measure, *cells])
    return grid(["", "", *(names[task] for task in sorted(names))], lines) + "\n\nIn brackets: questions with a value."


def _cost(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        [row["label"], *(_spread(row["cost"][name]) for name in ("seconds", "calls", "rounds", "per_call")), str(row["answered"])]
        for row in rows
    ]
    return grid(["", "time (s)", "calls", "rounds of search", "time a call (s)", "questions"], lines)


def _missing(summary: Mapping[str, Any]) -> str:
    lines = [f"- not run: {what}" for what in summary["not run"]]
    for row in summary["rows"]:
        counts = [
            *(f"{n} failed ({why})" for why, n in row["failed"].items()),
            *(f"{n} unscored ({why})" for why, n in row["unscored"].items()),
            *(f"{n} searches ended at a limit ({why})" for why, n in row["limits"].items()),
        ]
        counts += [f"{row['pending']} still to be asked"] if row["pending"] else []
        counts += [f"{row['dropped names']} names that were on no list"] if row["dropped names"] else []
        counts += [f"{row['unclear replies']} replies that told nothing"] if row["unclear replies"] else []
        if counts:
            lines.append(f"- {row['label']}: {'; '.join(counts)}")
    return "\n".join(lines) or "Nothing: every question was asked, answered and scored in every row."


def _published(summary: Mapping[str, Any]) -> str:
    parts = []
    for name, paper in summary["published"].items():
        if name == "source":
            continue
        lines = [[row, *(number(value, 4) for value in cells)] for row, cells in paper["rows"].items()]
        parts.append(grid([f"published, Table {name.removeprefix('table')}", *paper["columns"]], lines))
    return "\n\n".join(parts)


def _model(one: Mapping[str, Any]) -> str:
    return f"{one['model']} at {one['endpoint']}" if one["endpoint"] else f"{one['model']}, {one['digest'].rpartition(':')[2][:16]}"


def _how(summary: Mapping[str, Any]) -> str:
    data, options = summary["data"], summary["options"]
    lines = [
        ["data", f"{data['name']}, {data['folder']}, {data['digest'][:16]}, {data['warnings']} warnings of python -m kg check"],
        *([f"model ({role})", _model(one)] for role, one in summary["models"].items()),
        *([f"prompts ({name})", digest[:16]] for name, digest in summary["prompts"].items()),
        ["judge", f"{summary['judge']['label']}, {summary['judge']['digest'][:16]}" if summary["judge"] else NONE],
        [
            "options",
            ", ".join(
                f"{k}={v}" for k, v in options.items() if k not in ("roles", "runs", "data", "model") and v not in (None, "", [], {})
            ),
        ],
    ]
    for i, machine in enumerate(summary["environments"], 1):
        packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
        place = (
            f"{machine['processor']}, {machine['cores']} cores, {machine['memory GiB']} GiB, GPUs: {', '.join(machine['gpus']) or 'none'}"
        )
        lines.append(
            [f"start {i}", f"{machine['started']}; {place}; Python {machine['python']}, {packages}; commit {machine['commit'] or NONE}"]
        )
    return grid(["", ""], lines)
