"""``python -m bench test-offline``: proof that nothing leaves. Exit code 0: the watches are awake and saw nothing; 1 otherwise."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.offline.parts import EXTRA, PARTS, chosen
from bench.offline.run import Seen, Watches, available, check_keep, run_part, self_test
from models.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    known = ", ".join(part.name for part in (*PARTS, *EXTRA))
    parser.add_argument("--parts", default="", help=f"comma-separated, of {known} (the first {len(PARTS)})")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep every part's folder with its notes and logs here")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")


def run(args: argparse.Namespace) -> int:
    """Runs the self-test, then the parts, and prints counts. Raises ConfigError for a part that is none."""
    try:
        parts = chosen([name.strip() for name in args.parts.split(",") if name.strip()])
    except KeyError as error:
        raise ConfigError(f"no part {error.args[0]!r}", remedy=f"parts: {', '.join(one.name for one in (*PARTS, *EXTRA))}") from None
    keep = args.keep.absolute() if args.keep is not None else None
    if keep is not None:
        check_keep(keep, parts)
    watches = available()
    awake = self_test(watches)
    results = []
    for part in parts:
        print(f"{part.name}: {part.about} …", file=sys.stderr, flush=True)
        results.append(run_part(part, watches, keep))
    good = verdict(watches, awake, results)
    if args.json:
        print(json.dumps({"good": good, "watches": asdict(watches), "self_test": awake, "parts": [asdict(one) for one in results]}))
    else:
        print("\n".join(lines(watches, awake, results)))
        print("nothing left this machine" if good else "NOT PROVEN: see the lines above")
    return 0 if good else 1


def verdict(watches: Watches, awake: Mapping[str, bool | None], results: Sequence[Seen]) -> bool:
    """Whether the suite proves anything: the hook and one native watch awake, all that could run ran, no stray."""
    native = [seen for what, seen in awake.items() if what.startswith("native") and seen is not None]
    python = [seen for what, seen in awake.items() if what.startswith("Python")]
    ran = [one for one in results if not one.skipped]
    return (
        bool(ran) and bool(native) and all(native) and all(python) and not any(one.failed or one.strays or not one.processes for one in ran)
    )


def lines(watches: Watches, awake: Mapping[str, bool | None], results: Sequence[Seen]) -> list[str]:
    """The report."""
    how = {True: "seen", False: "MISSED", None: "could not tell: that watch is not to be had here"}
    said = [f"planted: {what}: {how[found]}" for what, found in awake.items()]
    if not watches.namespace:
        said.append("no namespace: unshare is not allowed here, the network was as it is (kernel.unprivileged_userns_clone, AppArmor)")
    if not watches.strace:
        said.append("no strace here: calls of native code were judged by their packets alone")
    said.append(
        f"{'part':<10}{'commands':>9}{'Python processes':>18}{'by the hook':>13}{'by strace':>11}{'by packets':>12}{'on loopback':>13}"
    )
    for one in results:
        if one.skipped:
            said.append(f"{one.name:<10}skipped: {one.skipped}")
            continue
        counts = "".join(
            f"{'?' if found is None else sum(found.values()):>{width}}"
            for found, width in ((one.python, 13), (one.calls, 11), (one.packets, 12))
        )
        said.append(f"{one.name:<10}{len(one.codes):>9}{one.processes:>18}{counts}{one.carried:>13}")
        for watch, found in (("hook", one.python), ("strace", one.calls), ("packets", one.packets)):
            said += [f"  STRAY, {watch}: {what} ({count}×)" for what, count in (found or {}).items()]
        said += [f"  FAILED: {one.failed}"] if one.failed else []
        said += [f"  wrote into HOME: {', '.join(one.home[:5])}{' …' if len(one.home) > 5 else ''}"] if one.home else []
    return said
