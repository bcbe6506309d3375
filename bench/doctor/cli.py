"""``python -m bench doctor``: the page. Exit code 0 when no line is a failure, 1 when one is, 2 for a mistake in the command."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from pathlib import Path

from bench.doctor.rows import Asked, State
from bench.doctor.run import Result, examine
from bench.doctor.table import CHECKS
from models.errors import ConfigError

MARKS: dict[State, str] = {"ok": "ok  ", "warn": "warn", "fail": "FAIL", "unknown": "?   "}
COLOURS: dict[State, str] = {"ok": "32", "warn": "33", "fail": "31", "unknown": "36"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", action="append", default=[], metavar="FOLDER", help="a model folder or registered name; may be repeated")
    parser.add_argument("--judge", action="append", default=[], metavar="FOLDER", help="the same, for a judge")
    parser.add_argument("--data", action="append", default=[], type=Path, metavar="DIR", help="a data set; may be repeated")
    parser.add_argument("--collection", action="append", default=[], type=Path, metavar="DIR", help="a collection; may be repeated")
    parser.add_argument("--gpu", type=int, default=0, metavar="N", help="GPUs that are to be used (0: none)")
    parser.add_argument("--context", type=int, metavar="TOKENS", help="prompt and reply of one call, for the plan")
    parser.add_argument("--only", metavar="NAMES", help=f"comma-separated, of {', '.join(check.name for check in CHECKS)}")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the page")


def run(args: argparse.Namespace) -> int:
    """Prints the page line by line, as it comes. Raises ConfigError for a check that is none."""
    names = [name.strip() for name in (args.only or "").split(",") if name.strip()]
    known = {check.name: check for check in CHECKS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"no check {unknown[0]!r}", remedy=f"checks: {', '.join(known)}")
    if args.only is not None and not names:
        raise ConfigError(f"--only {args.only!r} names no check", remedy=f"leave it out for all, or some of: {', '.join(known)}")
    if args.context is not None and args.context < 1:
        raise ConfigError(f"--context {args.context}", remedy="a number of tokens, 1 at least")
    if args.gpu < 0:
        raise ConfigError(f"--gpu {args.gpu}", remedy="a number of GPUs, or 0")
    models = tuple(name for name in (*args.model, *args.judge) if name != "exact")
    asked = Asked(models, tuple(args.data), tuple(args.collection), args.gpu, args.context)
    results = []
    for result in examine([check for check in CHECKS if not names or check.name in names], asked):
        results.append(result)
        if not args.json:
            _print(result, results[-2].check.group if len(results) > 1 else "")
    counts = Counter(line.state for result in results for line in result.lines)
    if args.json:
        print(json.dumps({"good": not counts["fail"], "counts": dict(counts), "checks": list(map(_row, results))}, ensure_ascii=False))
    else:
        said = f"{counts['ok']} ok, {counts['warn']} to look at, {counts['fail']} failed, {counts['unknown']} could not be told"
        print(f"\n{said}{': this machine is ready' if not counts['fail'] else ''}")
    return 1 if counts["fail"] else 0


def _row(result: Result) -> dict[str, object]:
    lines = [{"state": line.state, "what": line.what, "remedy": line.remedy} for line in result.lines]
    return {"name": result.check.name, "group": result.check.group, "seconds": round(result.seconds, 3), "lines": lines}


def _print(result: Result, before: str) -> None:
    if result.check.group != before:
        print(("\n" if before else "") + result.check.group)
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for i, line in enumerate(result.lines):
        mark = f"\033[{COLOURS[line.state]}m{MARKS[line.state]}\033[0m" if colour else MARKS[line.state]
        margin = "\n" + " " * 19
        print(f"  {mark} {result.check.name if not i else '':<12}{line.what.strip().replace(chr(10), margin)}")
        if line.remedy:
            print(f"       {'':<12}→ {line.remedy.replace(chr(10), margin)}")
    sys.stdout.flush()
