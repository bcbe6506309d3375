"""`python -m kg convert DATA --to plain|plain-jsonl|mh --out DIR`"""

from __future__ import annotations

import argparse
from pathlib import Path

from kg.convert import TARGETS, convert


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("data", type=Path, help="a data set's folder")
    parser.add_argument("--to", required=True, choices=list(TARGETS), help="the layout to write")
    parser.add_argument("--out", required=True, type=Path, help="a new folder")


def run(args: argparse.Namespace) -> int:
    """Convert and say what was written. Raises: DataError."""
    dataset = convert(args.data, args.to, args.out)
    print(f"{args.out}: {dataset.graph}, {len(dataset.questions)} questions")
    return 0
