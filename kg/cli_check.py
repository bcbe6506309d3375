"""`python -m kg check DATA [--json] [--all] [--no-media]`: exit code 0 without errors, 1 with errors, 2 when nothing can be checked."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from kg.arrays import ArrayGraph
from kg.check import check
from kg.dataset import Dataset, Finding
from kg.findings import counts

SHOWN = 5  # findings of one code; --all shows the rest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("data", type=Path, help="a data set's folder")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("--all", action="store_true", help=f"all findings instead of the first {SHOWN} of a kind")
    parser.add_argument("--no-media", action="store_true", help="do not open pictures and clips")


def run(args: argparse.Namespace) -> int:
    """Print the findings. Raises: DataError."""
    dataset = check(args.data, media=not args.no_media)
    bad = any(f.level == "error" for f in dataset.findings)
    print(json.dumps(_summary(dataset), ensure_ascii=False) if args.json else _text(dataset, len(dataset.findings) if args.all else SHOWN))
    return 1 if bad else 0


def _summary(dataset: Dataset) -> dict[str, object]:
    graph = dataset.graph
    sizes = {"entities": len(graph), "edges": graph.edge_count} if isinstance(graph, ArrayGraph) else {}
    numbers = {**sizes, "roots": len(graph.roots), "questions": len(dataset.questions)}
    found = {f"{level} {code}": n for (level, code), n in sorted(counts(dataset.findings).items())}
    findings = [asdict(f) for f in dataset.findings]
    return {
        "folder": str(dataset.folder),
        "name": dataset.card.name,
        **numbers,
        "digest": dataset.digest,
        "counts": found,
        "findings": findings,
    }


def _text(dataset: Dataset, shown: int) -> str:
    groups: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in dataset.findings:
        groups[finding.level, finding.code].append(finding)
    lines = []
    for _, found in sorted(groups.items()):
        lines += [str(f) for f in found[:shown]]
        lines += [f"  … and {len(found) - shown} more {found[0].code} (--all shows them)"] if len(found) > shown else []
    numbers = _summary(dataset)
    errors = sum(f.level == "error" for f in dataset.findings)
    sizes = ", ".join(f"{numbers[key]} {key}" for key in ("entities", "edges", "roots", "questions") if key in numbers)
    missing = len(groups["warning", "missing-media"])
    media = f"; {missing} pictures or clips are missing, so settings that look at them cannot run on all of it" if missing else ""
    return "\n".join([*lines, f"{dataset.card.name}: {sizes}; {errors} errors, {len(dataset.findings) - errors} warnings{media}"])
