"""Two runs, question by question: the paired bootstrap over the questions that both have scored.

Reads records and scores only. Rows are paired by label, questions by uid. Try: python -m bench compare RUN1 RUN2
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.folder import RunFolder
from bench.metrics import MEASURES, values
from bench.records import by_row
from bench.stats import Paired, paired
from models.errors import ConfigError, RunError


@dataclass(frozen=True)
class Line:
    """One measure of one row in both runs; `test.difference` is first minus second."""

    row: str
    measure: str
    test: Paired


def compare(first: RunFolder, second: RunFolder, measures: Sequence[str] = ("acc", "pre", "rec"), *, seed: int = 0) -> list[Line]:
    """Every row that both runs hold. Raises RunError when they hold none in common, or ask about different data."""
    a, b = first.manifest(), second.manifest()
    if a["data"]["digest"] != b["data"]["digest"]:
        names = [f"{one['data']['name']} {one['data']['digest'][:8]}" for one in (a, b)]
        what = f"the runs ask about different data: {names[0]}, {names[1]}"
        raise RunError(what, remedy="compare runs on one data set")
    sides = []
    for folder in (first, second):
        judging = folder.scores()
        sides.append((by_row(folder.records().values()), judging["scores"] if judging else {}))
    (rows_a, scores_a), (rows_b, scores_b) = sides
    common = [row for row in rows_a if row in rows_b]
    if not common:
        raise RunError(f"no row in common: {', '.join(rows_a)} and {', '.join(rows_b)}", remedy="compare runs with the same settings")
    lines = []
    for row in common:
        for name in measures:
            measure = MEASURES[name]
            test = paired(values(rows_a[row], scores_a, measure), values(rows_b[row], scores_b, measure), seed=seed)
            if test.n:
                lines.append(Line(row, name, test))
    return lines


def judges(first: RunFolder, second: RunFolder) -> str:
    """A warning when the two runs were judged by different judges, "" otherwise."""
    a, b = ((one or {"judge": {"label": "nobody", "digest": ""}})["judge"] for one in (first.scores(), second.scores()))
    same = a["digest"] == b["digest"]
    return "" if same else f"Judged by different judges ({a['label']}, {b['label']}): differences in accuracy may be theirs."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", type=Path, help="a run folder")
    parser.add_argument("second", type=Path, help="the run folder to compare it with")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap, from 0 [0]")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table."""
    from rich.console import Console
    from rich.table import Table

    if arguments.seed < 0:
        raise ConfigError(f"--seed is {arguments.seed}", remedy="give a whole number from 0")
    first, second = RunFolder(arguments.first), RunFolder(arguments.second)
    table = Table(title=f"{first.path.name} against {second.path.name}", title_justify="left")
    for name in ("row", "measure", "first", "second", "difference [95 %]", "p", "questions"):
        table.add_column(name)
    for line in compare(first, second, seed=arguments.seed):
        test = line.test
        gap = test.difference
        shown = f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
        table.add_row(line.row, line.measure, f"{test.a:.3f}", f"{test.b:.3f}", shown, f"{test.p:.4f}", str(test.n))
    out = Console(width=None if Console().is_terminal else 160)
    out.print(table)
    said = judges(first, second)
    if said:
        out.print(said)
    return 0
