"""`python -m models ping URL MODEL`: is the server there, does it serve the model, does it do what a run needs?"""

from __future__ import annotations

import argparse

from models.engines import EngineSpec, Workload, make_engine
from models.environment import KEY, server_key

HELP = "ask a server whether it can do what a run needs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help=f"http://host:port/v1; several with commas; its key is taken from ${KEY}")
    parser.add_argument("model", help="the name that the server serves")
    parser.add_argument("--pictures", type=int, default=0, metavar="N", help="try a call with N pictures")
    parser.add_argument("--constrained", action="store_true", help="try choices, a pattern and a probability")


def run(args: argparse.Namespace) -> int:
    spec = EngineSpec("openai", args.model, urls=tuple(args.url.split(",")), key=server_key())
    kinds = frozenset({"choices", "pattern", "probe"}) if args.constrained else frozenset[str]()
    make_engine(spec).check(Workload(args.pictures, kinds))
    print(f"{args.url}: serves {args.model}" + (f", {args.pictures} pictures a call" if args.pictures else ""))
    return 0
