"""Hashing while copying beside `cp` followed by `sha256sum`, of the same bytes in one run: python -m bench.sealed.speed [--size 2G]

Each round does both, in turn first and second, so that a busy machine or a filling cache weighs on both alike; the ratio is that of the
medians. Nothing is asked of the disk's cache: both read what was just written, and neither waits for the disk (`--sync`: both do).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.sealed.unpacker.copying import Copier, Piece
from bench.sealed.volumes import parse_size

TARGET = 1.1


def main(argv: list[str] | None = None) -> int:
    """Prints one line a round, then the ratio beside its target; 1 when it is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.sealed.speed", description=__doc__)
    parser.add_argument("--size", default="1G", help="bytes of the file [1G]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="where the files lie [the system's temporary folder]")
    parser.add_argument("--sync", action="store_true", help="both wait until the copy is on the disk")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=given.folder) as work:
        source, target = Path(work) / "source", Path(work) / "target"
        size = parse_size(given.size)
        with source.open("wb") as file:
            left = size
            while left:
                left -= file.write(os.urandom(min(left, 8 << 20)))
        copier, ours, theirs = Copier(), list[float](), list[float]()
        for number in range(given.rounds + 1):
            pair = [(ours, lambda: _ours(copier, source, target, size, given.sync)), (theirs, lambda: _theirs(source, target, given.sync))]
            for times, way in pair if number % 2 else reversed(pair):
                target.unlink(missing_ok=True)
                seconds = _timed(way)
                if number:  # the first round warms up
                    times.append(seconds)
            if number:
                print(f"round {number}: ours {ours[-1]:.2f} s, cp and sha256sum {theirs[-1]:.2f} s, {ours[-1] / theirs[-1]:.2f}")
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(f"{size / 1e9:.2f} GB: {size / 1e6 / statistics.median(ours):.0f} MB/s; {ratio:.2f} of cp and sha256sum, target {TARGET} or less")
    return 0 if ratio <= TARGET else 1


def _timed(way: Callable[[], str]) -> float:
    begun = time.monotonic()
    assert len(way()) == 64
    return time.monotonic() - begun


def _ours(copier: Copier, source: Path, target: Path, size: int, sync: bool) -> str:
    with target.open("xb") as file:
        digest = copier.pour([Piece(source, 0, size)], file)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    return digest


def _theirs(source: Path, target: Path, sync: bool) -> str:
    subprocess.run(["cp", str(source), str(target)], check=True)
    if sync:
        subprocess.run(["sync", str(target)], check=True)
    return subprocess.run(["sha256sum", str(target)], check=True, capture_output=True, text=True).stdout.split()[0]


if __name__ == "__main__":
    raise SystemExit(main())
