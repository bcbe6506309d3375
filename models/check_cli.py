"""`python -m models check FOLDER`: the pre-check of a model folder, without loading it."""

from __future__ import annotations

import argparse

from models.checkpoint import inspect
from models.locate import locate

HELP = "say whether a model folder is whole and which family it is"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a folder, or the name of a fetched model")


def run(args: argparse.Namespace) -> int:
    found = inspect(locate(args.model))
    print(f"{found.folder}: {found.architecture} ({found.family}), whole")
    print(f"  {found.parameters / 1e6:,.1f} M parameters, {found.weight_bytes / 2**20:,.1f} MiB of safetensors, context {found.context:,}")
    print(f"  digest {found.digest}")
    return 0
