"""`python -m kg measure [--entities N] [--edges M]`: a made-up graph is compiled, then loaded and walked by a fresh process.

The figures in docs/data.md come from this command.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kg.build import GraphBuilder
from kg.dataset import Card, Dataset
from kg.findings import Findings
from kg.store import open_compiled, save

RELATIONS = ("has part", "continues with", "turns to", "is near")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Print one line for building and one for loading."""
    if args.load:
        return _load(args.load)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.kgc"
        start = time.perf_counter()
        save(_made_up(Path(folder), args.entities, args.edges), path)
        print(
            f"built and saved in {time.perf_counter() - start:.1f} s, {_peak():.2f} GiB, file {path.stat().st_size / 2**20:.0f} MiB",
            flush=True,
        )
        return subprocess.run([sys.executable, "-m", "kg", "measure", "--load", str(path)], check=False).returncode


def _made_up(folder: Path, entities: int, edges: int) -> Dataset:
    chance, findings = random.Random(7), Findings(folder)
    builder = GraphBuilder(folder, findings)
    owners = max(1, entities // 100)
    for i in range(entities):
        owner = f"root {i % owners}"
        name, kind = (owner, "root") if i < owners else (f"part {i}", "part")
        builder.add(name, owner, kind, caption=f"caption of {name}: it is the {i}th of its kind and moves about for a while", info="")
    for i in range(edges):
        builder.edge(chance.randrange(entities), RELATIONS[i % 4], chance.randrange(entities), "", f"condition {i % 1000}")
    card = Card("made up", "", "root", {"root": "", "part": ""}, ("any",))
    return Dataset(folder, card, builder.finish("root"), (), "")


def _load(path: Path) -> int:
    start = time.perf_counter()
    graph = open_compiled(path).graph
    loaded = time.perf_counter() - start
    chance, n = random.Random(8), min(len(graph), 20_000)
    start = time.perf_counter()
    degrees = sum(len(graph.neighbours(chance.randrange(len(graph.roots) * 100))) for _ in range(n))
    walked = (time.perf_counter() - start) / n * 1e6
    start = time.perf_counter()
    found = sum(graph.find(f"root {chance.randrange(len(graph.roots))}") is not None for _ in range(n))
    looked = (time.perf_counter() - start) / n * 1e6
    print(f"loaded {graph} in {loaded:.2f} s, peak {_peak():.2f} GiB")
    print(f"neighbours {walked:.0f} µs for {degrees / n:.1f} edges, find {looked:.0f} µs")
    return 0 if found == n else 1


def _peak() -> float:
    """Largest resident memory of this process so far, GiB, mapped pages included (getrusage would pass on the parent's)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 2**20
