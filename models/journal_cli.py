"""`python -m models journal FILE`: what a run's journal holds, also while the run goes on."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from models.errors import CallFailed
from models.journal import Journal
from models.requests import Completion

HELP = "count a run's calls, failures and tokens"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path)


def run(args: argparse.Namespace) -> int:
    calls: Counter[tuple[str, str]] = Counter()
    seconds: dict[tuple[str, str], float] = {}
    tokens: Counter[tuple[str, str]] = Counter()
    with Journal(args.file, writable=False) as journal:
        for record in journal.calls():
            row = (record.role, record.stage)
            calls[row] += 1
            seconds[row] = seconds.get(row, 0.0) + record.seconds
            assert isinstance(record.result, Completion)
            tokens[row] += (record.result.prompt_tokens or 0) + (record.result.output_tokens or 0)
        reasons = Counter(r.result.reason for r in journal.failures() if isinstance(r.result, CallFailed))
    for row, count in sorted(calls.items()):
        print(
            f"{row[0]:<10} {row[1]:<14} {count:>7} calls  {seconds[row] / count:>8.3f} s a call  {tokens[row] / count:>8.0f} tokens a call"
        )
    print(f"{sum(calls.values())} calls, {sum(reasons.values())} failed attempts" + "".join(f", {n} {why}" for why, n in reasons.items()))
    return 0
