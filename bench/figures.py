"""Figures of a run as SVG: accuracy by setting, the sub-tasks (the paper's Figure 4), the K curve (6a), BFS and DFS (6b).

The only file that imports matplotlib, and only when something is drawn. A figure that the rows do not hold is left out.
Try: python -m bench report RUN
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.folder import RunFolder
from bench.report import TASK_NUMBERS
from models import environment

Rows = Sequence[Mapping[str, Any]]
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")  # Paul Tol's bright scheme: safe for colour-blind readers


def draw(summary: Mapping[str, Any], folder: RunFolder) -> list[str]:
    """Draws what the summary's rows hold, into the run's folder; the names of the files."""
    rows = [row for row in summary["rows"] if row["cells"]["acc"]["mean"] is not None]
    found = []
    for name, (pick, paint) in FIGURES.items():
        picked = pick(rows)
        if picked:
            folder.write(f"{name}.svg", _svg(paint, picked))
            found.append(f"{name}.svg")
    return found


def svg(paint: Callable[[Any], None], size: tuple[float, float]) -> str:
    """What `paint` draws on an empty matplotlib figure of `size` (inches), as SVG; the same drawing gives the same bytes."""
    environment.apply()
    import io

    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "untamed"
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=size, layout="constrained")
    try:
        paint(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        return buffer.getvalue()
    finally:
        plt.close(figure)


def _svg(paint: Callable[[Any, Rows], None], rows: Rows) -> str:
    def whole(figure: Any) -> None:
        axes = figure.subplots()
        paint(axes, rows)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(0, 1.02)

    return svg(whole, (8, 4.2))


def _plain(rows: Rows) -> Rows:
    plain = [row for row in rows if not row["changes"]]
    return plain if len(plain) > 1 else []


def _settings(axes: Any, rows: Rows) -> None:
    cells = [row["cells"]["acc"] for row in rows]
    errors = [[c["mean"] - c["low"] for c in cells], [c["high"] - c["mean"] for c in cells]]
    axes.bar([row["label"] for row in rows], [c["mean"] for c in cells], yerr=errors, capsize=4, color=COLOURS[0], label="Acc")
    _marks(axes, range(len(rows)), [row["cells"] for row in rows])
    axes.set_ylabel("accuracy, 95 % interval")
    axes.legend(frameon=False)


def _marks(axes: Any, places: Sequence[float], cells: Sequence[Mapping[str, Any]]) -> None:
    """Pre. and Rec. as the paper draws them: stars and circles on the bars."""
    for name, marker, face, label in (("pre", "*", "#ccbb44", "Pre"), ("rec", "o", "white", "Rec")):
        known = [(x, c[name]["mean"]) for x, c in zip(places, cells, strict=True) if c[name]["mean"] is not None]
        if known:
            x, y = zip(*known, strict=True)
            axes.scatter(x, y, marker=marker, s=60, facecolor=face, edgecolor="black", linewidth=0.7, zorder=3, label=label)


def _tasks(axes: Any, rows: Rows) -> None:
    numbers = sorted({task["task"] for row in rows for task in row["tasks"]})
    width = 0.8 / len(rows)
    for i, row in enumerate(rows):
        found = {task["task"]: task["cells"] for task in row["tasks"]}
        places = [n + (i - (len(rows) - 1) / 2) * width for n in range(len(numbers))]
        heights = [found[n]["acc"]["mean"] or 0.0 if n in found else 0.0 for n in numbers]
        axes.bar(places, heights, width * 0.92, color=COLOURS[i % len(COLOURS)], label=row["label"])
    axes.set_xticks(range(len(numbers)), [TASK_NUMBERS[n % 10] for n in numbers])
    axes.set_xlabel("sub-task")
    axes.set_ylabel("accuracy")
    axes.legend(frameon=False, fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.18))


def _having(key: str) -> Callable[[Rows], Rows]:
    def pick(rows: Rows) -> Rows:
        return [row for row in rows if key in row["changes"]]

    return pick


def _k_rows(rows: Rows) -> Rows:
    found = [row for row in rows if set(row["changes"]) == {"k"} and isinstance(row["changes"]["k"], int)]
    return found if len(found) > 1 else []


def _k_curve(axes: Any, rows: Rows) -> None:
    counts = axes.twinx()
    for i, setting in enumerate(dict.fromkeys(row["setting"] for row in rows)):
        own = sorted((row for row in rows if row["setting"] == setting), key=lambda row: int(row["changes"]["k"]))
        ks = [row["changes"]["k"] for row in own]
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(ks, [row["cells"]["acc"]["mean"] for row in own], "o-", color=colour, label=f"{setting} Acc")
        most = {int(n): count for n, count in own[-1]["retrieved"].items()}
        having = [sum(count for n, count in most.items() if n >= k) for k in ks]
        counts.plot(ks, having, "^--", color=colour, alpha=0.6, label=f"{setting} questions with ≥ K paths")
    axes.set_xlabel("K, the paths that the answer is given")
    axes.set_ylabel("accuracy")
    counts.set_ylabel("questions")
    counts.set_ylim(bottom=0)
    lines = [*axes.get_lines(), *counts.get_lines()]
    axes.legend(lines, [line.get_label() for line in lines], frameon=False, fontsize="small")


def _order(axes: Any, rows: Rows) -> None:
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    for order, colour, shift in (("bfs", "#228833", -0.2), ("dfs", "#ee6677", 0.2)):
        own = [row for row in rows if row["changes"]["order"] == order]
        places = [settings.index(row["setting"]) + shift for row in own]
        axes.bar(places, [row["cells"]["acc"]["mean"] for row in own], 0.36, color=colour, label=order.upper())
    own = list(rows)
    places = [settings.index(row["setting"]) + (-0.2 if row["changes"]["order"] == "bfs" else 0.2) for row in own]
    _marks(axes, places, [row["cells"] for row in own])
    axes.set_xticks(range(len(settings)), settings)
    axes.set_ylabel("accuracy")
    axes.legend(frameon=False)


FIGURES: Mapping[str, tuple[Callable[[Rows], Rows], Callable[[Any, Rows], None]]] = {
    "accuracy": (_plain, _settings),
    "figure4": (_plain, _tasks),
    "figure6a": (_k_rows, _k_curve),
    "figure6b": (_having("order"), _order),
}
