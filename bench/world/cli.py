"""``python -m bench world``: makes a sample world and says what is in it.

Knows only bench/world/write.py. A progress bar on a terminal, silence elsewhere.

    python -m bench world --seed 7 --creatures 22 --clips 640x360@30 --out worlds/seed7
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from bench.folder import slug
from bench.world.media import EXAMPLES
from bench.world.write import DEFAULT_CLIPS, write_world
from models.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command; bench/__main__.py makes the parser."""
    parser.add_argument("--seed", default="7", help="every seed has other names and facts (default 7)")
    parser.add_argument("--creatures", default="22", help="3 for a test, 100000 for a load test without clips (default 22)")
    parser.add_argument(
        "--clips", default=DEFAULT_CLIPS, help=f"WIDTHxHEIGHT@FPS, for example {EXAMPLES}; or none (default {DEFAULT_CLIPS})"
    )
    parser.add_argument("--keyframes", action="store_true", default=None, help="with --clips none: chosen pictures all the same")
    parser.add_argument(
        "--collections", action="store_true", help="in place of a knowledge graph: collections, pictures and questions for CUE-M (make ask)"
    )
    parser.add_argument("--questions", default="150", help="with --collections: how many questions (default 150)")
    parser.add_argument("--workers", default="2", help="processes (default 2)")
    parser.add_argument(
        "--out", type=Path, help="the folder to make; a finished world of the same options stays [data/world-SEED, and what differs]"
    )


def run(args: argparse.Namespace) -> int:
    """Make the world; 0 when it is there. Raises: UserError, for the caller to print with exit code 2."""
    if args.out is None:
        args.out = default_place(args)
    if args.collections:
        return _collections(args)
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console) if sys.stderr.isatty() else None
    tasks: dict[str, TaskID] = {}
    started: dict[str, float] = {}

    def show(done: int, total: int, what: str) -> None:
        if bar is None:
            return
        if what not in tasks:
            tasks[what], started[what] = bar.add_task(what, total=total, rate=""), time.monotonic()
        rate = done / max(1e-6, time.monotonic() - started[what])
        bar.update(tasks[what], completed=done, rate=f"{rate:,.1f}/s")

    with bar or nullcontext():
        made = write_world(
            args.out,
            _whole("--seed", args.seed),
            _whole("--creatures", args.creatures),
            None if str(args.clips).lower() == "none" else args.clips,
            workers=_whole("--workers", args.workers),
            progress=show,
            keyframes=args.keyframes,
        )
    what = "made" if made.made else "is there already"
    counts = f"{made.entities:,} entities, {made.edges:,} edges, {made.questions:,} questions, {made.clips:,} clips"
    print(f"{made.path}: {what}; {counts}")
    return 0


def default_place(args: argparse.Namespace) -> Path:
    """data/world-7 is the world that `make bench` asks about (and cuem-7 that of `make ask`), so whatever differs gives another name."""
    kind, creatures = ("cuem", "10") if args.collections else ("world", "22")
    usual = {"creatures": creatures, "clips": DEFAULT_CLIPS, "questions": "150"}
    differs = [getattr(args, name) for name in usual if str(getattr(args, name)) != usual[name]]
    return Path("data", slug("-".join([kind, str(args.seed), *map(str, differs), *(["keyframes"] if args.keyframes else [])])))


def _collections(args: argparse.Namespace) -> int:
    from bench.cuem.sample import Parameters, sample_world

    seed, creatures, questions = (_whole(f"--{name}", getattr(args, name)) for name in ("seed", "creatures", "questions"))
    parameters = Parameters(seed=seed, creatures=creatures, questions=questions)
    made = sample_world(args.out, parameters, lambda text: print(text, file=sys.stderr))
    print(f"{args.out}: {'made' if made else 'is there already'}")
    return 0


def _whole(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{option} {text!r} is not a whole number") from None
