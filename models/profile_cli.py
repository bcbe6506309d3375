"""`python -m models profile --replay RUN`: a recorded run's calls at rising concurrency, against a server or one that it starts."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import ConfigError
from models.serve_cli import add_server_arguments

if TYPE_CHECKING:
    from models.engines import Engine
    from models.profile import Level
    from models.radix import Bound
    from models.replay import Recorded
    from models.roofline import Least

HELP = "measure latency and throughput on a recorded run's calls"
KEY = "MODEL_API_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replay", type=Path, required=True, metavar="RUN", help="a run folder, or its journal")
    parser.add_argument("--model", required=True, help="a model folder (a server is started), or with --url the name that is served")
    parser.add_argument("--url", action="append", default=[], help="a server that runs already; may be given several times")
    parser.add_argument("--key-from", default=KEY, metavar="VARIABLE", help=f"environment variable with that server's key ({KEY})")
    parser.add_argument("--out", type=Path, default=Path("profile"), metavar="FOLDER", help="where the report goes (profile)")
    parser.add_argument("--concurrency", default="1,2,4,8,16,32,64,128", metavar="LIST", help="calls in flight, rising")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N")
    parser.add_argument("--questions", type=int, metavar="N", help="only the first N questions of the run")
    parser.add_argument("--cache", choices=("cold", "warm"), default="cold", help="state of the caches before each pass (cold)")
    parser.add_argument("--block", type=int, default=16, metavar="TOKENS", help="the server's cache block, for the second bound (16)")
    parser.add_argument("--gpu-name", default="", help="for the hardware bound, where NVML does not answer")
    parser.add_argument("--peak-tflops", type=float, help="dense bf16 TFLOPS of one GPU")
    parser.add_argument("--peak-gbps", type=float, help="memory GB/s of one GPU")
    add_server_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from models import profile_report
    from models.journal import Journal
    from models.profile import sweep
    from models.replay import episodes, recorded

    path = args.replay / "journal.sqlite" if args.replay.is_dir() else args.replay
    with Journal(path, writable=False) as journal:
        work = recorded(journal, args.questions)
    print(f"{len(work.steps)} questions, {work.calls} calls" + (f", {work.lost} had no reply" if work.lost else ""), file=sys.stderr)
    levels_wanted = _numbers(args.concurrency)
    folder = Path(args.model).expanduser()

    def measure(engines: Callable[[int], Mapping[str, Engine]], urls: Sequence[str], key: str, reset: Any) -> list[Level]:
        from models.metrics import Watch

        return sweep(
            lambda salt: episodes(work, salt),
            engines,
            args.out,
            concurrencies=levels_wanted,
            repetitions=args.repetitions,
            cache=args.cache,
            reset=reset,
            watch=lambda: Watch(urls, key),
            tell=_tell,
        )

    roles = sorted({call.role for steps in work.steps.values() for step in steps for call in step})
    if args.url:
        from models.openai_server import OpenAIServer

        key = os.environ.get(args.key_from, "")

        def remote(slots: int) -> dict[str, Engine]:
            return dict.fromkeys(roles, OpenAIServer(args.url, args.model, key=key, slots=slots, stream=True))

        levels = measure(remote, args.url, key, None)
        bounds = _bounds(args.url[0], key, args.model, work, args.block)
    else:
        from models.serve_cli import fleet_of

        with fleet_of(args, folder, profiling=True) as fleet:
            levels = measure(
                lambda slots: dict.fromkeys(roles, fleet.engine(slots=slots, stream=True)), fleet.urls, fleet.key, fleet.reset_caches
            )
            files = fleet.options.media is not None
            bounds = _bounds(fleet.urls[0], fleet.key, fleet.options.name, work, args.block, files=files)
    least = _least(args, folder, levels)
    text = profile_report.table(levels, bounds, least)
    profile_report.write(args.out, levels, text, profile_report.lines(levels, bounds, least))
    print(text)
    print(f"{args.out}/: profile.txt, profile.jsonl, throughput.svg, timeline.json", file=sys.stderr)
    return 0


def _numbers(text: str) -> list[int]:
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise ConfigError(f"--concurrency {text!r}", remedy="numbers with commas between, 1,2,4,8")
    return found


def _tell(level: Level) -> None:
    rate = f"{level.calls_per_second:.1f} calls/s"
    failed = len(level.records) - len(level.completions)
    said = f"{level.concurrency} in flight, pass {level.repetition + 1}: {level.seconds:.1f} s, {rate}"
    print(said + (f", {failed} failed" if failed else ""), file=sys.stderr, flush=True)


def _bounds(url: str, key: str, model: str, work: Recorded, block: int, *, files: bool = False) -> dict[str, Bound]:
    """The prefix bound of the recorded order, question by question, tokenized by the server. Empty where it cannot tokenize."""
    from models.radix import bound
    from models.tokenized import tokenized

    requests = [call.request for steps in work.steps.values() for step in steps for call in step]
    rows = tokenized(url, key, model, requests, file_urls=files)
    if not all(map(len, rows)):
        print(f"no prefix bound: {url} did not tokenize {sum(not len(row) for row in rows)} of {len(rows)} calls", file=sys.stderr)
        return {}
    return {"perfect": bound(rows), f"blocks of {block}": bound(rows, block)}


def _least(args: argparse.Namespace, folder: Path, levels: Sequence[Level]) -> dict[int, Least]:
    """The hardware bound of each concurrency; empty where the model's shape or the GPU's peak is unknown."""
    from models import gpus
    from models.roofline import Work, least, peak_of
    from models.shape import read_shape

    names = [gpu.name for gpu in gpus.gpus()]
    peak = peak_of(args.gpu_name or (names[0] if names else ""), args.peak_tflops, args.peak_gbps)
    if peak is None or not folder.is_dir():
        return {}
    shape, _ = read_shape(folder)
    found = {}
    for concurrency in sorted({level.concurrency for level in levels}):
        level = next(one for one in levels if one.concurrency == concurrency)
        replies = [reply for _, reply in level.completions]
        prompt = sum(reply.prompt_tokens or 0 for reply in replies)
        cached = sum(reply.cached_tokens or 0 for reply in replies)
        output = sum(reply.output_tokens or 0 for reply in replies)
        context = (prompt + output) / max(1, len(replies))
        found[concurrency] = least(shape, peak, Work(prompt - cached, 0, output, context, concurrency), max(1, args.gpus))
    return found
