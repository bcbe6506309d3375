"""How often a judge's verdicts agree with people's (MH-MMKG, section 8.3, Table 16), from a labelled CSV.

Columns by name: ``model`` (optional), ``kind`` (``answer`` or ``caption``; ``answer`` when the column is missing), ``judge`` and one or
more columns that begin with ``human``; verdicts are yes or no. As in the paper, a verdict of the judge is right when every person gives
the same. A verdict that is empty is left out and counted. Try: python -m bench agreement labels.csv
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.stats import Interval, mean_interval
from kg.replies import verdict
from models.errors import DataError


@dataclass(frozen=True)
class Label:
    """One judged item: the judge's verdict and everybody else's."""

    model: str
    kind: str
    judge: bool | None
    people: tuple[bool | None, ...]


@dataclass(frozen=True)
class Agreement:
    """Share of the judge's verdicts with which all people agree; `kappa` is Cohen's, against people where they agree with one another."""

    model: str
    kind: str
    share: Interval
    kappa: float | None
    left_out: int


def read_labels(path: Path) -> list[Label]:
    """The labels in a CSV. Raises DataError naming file and row."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read: {error}", where=str(path), remedy="give a UTF-8 CSV with a header") from None
    head = list(rows[0]) if rows else []
    people = [name for name in head if name and name.casefold().startswith("human")]
    if "judge" not in head or not people:
        raise DataError(
            f"has the columns {', '.join(map(str, head)) or 'none'}", where=str(path), remedy="needs judge and human…, see --help"
        )
    labels = []
    for number, row in enumerate(rows, 2):
        kind = (row.get("kind") or "answer").strip()
        if kind not in ("answer", "caption"):
            raise DataError(f"kind is {kind!r}", where=f"{path}:{number}", remedy="answer or caption")
        cells = [_verdict(row.get(name), path, number, name) for name in ("judge", *people)]
        labels.append(Label((row.get("model") or "").strip(), kind, cells[0], tuple(cells[1:])))
    return labels


def _verdict(cell: str | None, path: Path, number: int, name: str) -> bool | None:
    text = (cell or "").strip()
    if not text:
        return None
    known = {"1": True, "0": False, "true": True, "false": False, "y": True, "n": False}.get(text.casefold(), verdict(text).value)
    if known is None:
        raise DataError(f"{name} is {text[:40]!r}", where=f"{path}:{number}", remedy="yes, no, or empty")
    return known


def agreement(labels: Sequence[Label], *, seed: int = 0) -> list[Agreement]:
    """One line per model and kind, then one over all models per kind."""
    groups: dict[tuple[str, str], list[Label]] = {}
    for label in labels:
        groups.setdefault((label.model, label.kind), []).append(label)
    for kind in dict.fromkeys(label.kind for label in labels):
        groups[("all", kind)] = [label for label in labels if label.kind == kind]
    return [_agreement(model, kind, found, seed) for (model, kind), found in groups.items()]


def _agreement(model: str, kind: str, labels: Sequence[Label], seed: int) -> Agreement:
    whole = [label for label in labels if label.judge is not None and None not in label.people]
    right = [float(all(person == label.judge for person in label.people)) for label in whole]
    return Agreement(model, kind, mean_interval(right, seed=seed), _kappa(whole), len(labels) - len(whole))


def _kappa(labels: Sequence[Label]) -> float | None:
    """Chance-corrected agreement over items on which the people agree; None where chance alone would explain everything."""
    pairs = [(bool(label.judge), bool(label.people[0])) for label in labels if len(set(label.people)) == 1]
    if not pairs:
        return None
    n = len(pairs)
    observed = sum(a == b for a, b in pairs) / n
    yes = sum(a for a, _ in pairs) / n, sum(b for _, b in pairs) / n
    chance = yes[0] * yes[1] + (1 - yes[0]) * (1 - yes[1])
    return None if chance == 1 else (observed - chance) / (1 - chance)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("labels", type=Path, help="CSV with the columns model, kind, judge, human1, human2 …")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap [0]")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table, the paper's Table 16 below it, marked as published."""
    from rich.console import Console
    from rich.table import Table

    from bench.published import table as published

    table = Table(title="Judge and people", title_justify="left")
    for name in ("model", "kind", "agree [95 %]", "kappa", "verdicts", "left out"):
        table.add_column(name)
    for line in agreement(read_labels(arguments.labels), seed=arguments.seed):
        kappa = "–" if line.kappa is None else f"{line.kappa:.3f}"
        table.add_row(line.model, line.kind, str(line.share), kappa, str(line.share.n), str(line.left_out))
    paper = published("table16")
    for model, cells in paper.rows.items():
        for kind, cell in zip(paper.columns, cells, strict=True):
            table.add_row(f"published: {model}", kind, f"{cell:.3f}", "–", "200", "–", style="dim")
    Console(width=None if Console().is_terminal else 140).print(table)
    return 0
