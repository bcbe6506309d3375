"""`python -m kg convert DATA --to plain|plain-jsonl|mh --out DIR`"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kg.convert import TARGETS, convert


def main(argv: Sequence[str]) -> int:
    """Convert and say what was written. Raises: DataError."""
    parser = argparse.ArgumentParser(prog="python -m kg convert", description=__doc__)
    parser.add_argument("data", type=Path, help="a data set's folder")
    parser.add_argument("--to", required=True, choices=list(TARGETS), help="the layout to write")
    parser.add_argument("--out", required=True, type=Path, help="a new folder")
    args = parser.parse_args(argv)
    dataset = convert(args.data, args.to, args.out)
    print(f"{args.out}: {dataset.graph}, {len(dataset.questions)} questions")
    return 0
