"""`python -m models switches`: the table of environment switches, or the Makefile's copy of it (--make)."""

from __future__ import annotations

import argparse

from models.switches import SWITCHES

HELP = "the environment switches that keep every library offline"
MAKEFILE = "scripts/environment.mk"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--make", action="store_true", help=f"as the Makefile reads it: python -m models switches --make > {MAKEFILE}")


def makefile() -> str:
    """The table as exports of make: a preference only where the variable is not set, proxies' exceptions before the user's own."""
    lines = ["# made by `python -m models switches --make` from models/switches.py; do not edit"]
    for one in SWITCHES:
        more = f"$({one.name}:%=,%)" if one.name.lower() == "no_proxy" else ""
        lines.append(f"export {one.name} {'?=' if one.kept else ':='} {one.value}{more}".rstrip())
    return "\n".join(lines) + "\n"


def run(args: argparse.Namespace) -> int:
    if args.make:
        print(makefile(), end="")
        return 0
    width = max(len(one.name) + len(one.value) for one in SWITCHES) + 1
    for one in SWITCHES:
        print(f"{one.name + '=' + one.value:<{width}}  {one.library:<17}  {one.why}{' (yours stays if set)' if one.kept else ''}")
    return 0
