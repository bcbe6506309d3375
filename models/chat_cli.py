"""`python -m models chat MODEL TEXT…`: one call to a model in this process, to see that it works and how fast."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from models.engines import BatchEngine, EngineSpec, make_engine
from models.errors import CallFailed, DataError
from models.requests import Decoding, Picture, user

HELP = "ask a model folder one question, in this process"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a folder, or the name of a fetched model")
    parser.add_argument("text")
    parser.add_argument("--picture", type=Path, action="append", default=[], metavar="FILE", help="may be given several times")
    parser.add_argument("--system", default="")
    parser.add_argument("--choice", action="append", metavar="TEXT", help="an allowed reply; may be given several times")
    parser.add_argument("--max-tokens", type=int, default=128, metavar="N")
    parser.add_argument("--device", default="auto")


def run(args: argparse.Namespace) -> int:
    try:
        pictures = [Picture.of(path) for path in args.picture]
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=str(error.filename)) from None
    engine = make_engine(EngineSpec("transformers", args.model, device=args.device))
    assert isinstance(engine, BatchEngine)
    decoding = Decoding(max_tokens=args.max_tokens, choices=tuple(args.choice) if args.choice else None)
    ((_, reply),) = engine.complete_batch([user(*pictures, args.text, system=args.system, decoding=decoding)])
    if isinstance(reply, CallFailed):
        print(f"failed: {reply}", file=sys.stderr)
        return 1
    print(reply.text)
    rate = (reply.output_tokens or 0) / reply.seconds
    print(
        f"({reply.prompt_tokens} + {reply.output_tokens} tokens, {reply.seconds:.2f} s, {rate:.0f} tokens/s, {reply.finish})",
        file=sys.stderr,
    )
    return 0
