"""`python -m kg compile DATA [--out FILE.kgc]`: the data set as one file; every command that takes DATA takes it too."""

from __future__ import annotations

import argparse
from pathlib import Path

from kg.load import load
from kg.store import SUFFIX, save
from models.errors import DataError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("data", type=Path, help="a data set's folder")
    parser.add_argument("--out", type=Path, help=f"default: .cache/kg/<folder>{SUFFIX}")


def run(args: argparse.Namespace) -> int:
    """Compile and say where. Raises: DataError."""
    out: Path = args.out or Path(".cache/kg") / f"{args.data.resolve().name}{SUFFIX}"
    if out.suffix != SUFFIX:
        raise DataError(f"{out.name!r} does not end in {SUFFIX}", where="--out", remedy=f"call it {out.name}{SUFFIX}")
    dataset = load(args.data)
    save(dataset, out)
    print(f"{out}: {dataset.graph}, {len(dataset.questions)} questions, {out.stat().st_size / 2**20:.1f} MiB, data {dataset.digest[:12]}")
    return 0
