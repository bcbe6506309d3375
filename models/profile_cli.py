"""`python -m models profile --replay RUN`: a recorded run's calls at rising concurrency, against a server or one that it starts."""

from __future__ import annotations

import argparse
import os
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from models.environment import KEY
from models.errors import ConfigError
from models.locate import at_home
from models.serve_cli import add_server_arguments

if TYPE_CHECKING:
    from models.engines import Engine
    from models.profile import Engines, Episodes, Level
    from models.profile_tokens import Prefix
    from models.replay import Recorded
    from models.roofline import Least

HELP = "measure latency and throughput on a recorded run's calls"


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """What every command that profiles takes."""
    parser.add_argument("--out", type=Path, default=Path("profile"), metavar="FOLDER", help="where the report goes (profile)")
    parser.add_argument("--concurrency", metavar="LIST", help="calls in flight, rising (1,2,4 … until throughput is flat)")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="passes at each concurrency (3)")
    parser.add_argument("--cache", choices=("cold", "warm"), default="cold", help="state of the caches before each pass (cold)")
    parser.add_argument("--block", type=int, metavar="TOKENS", help="the server's cache block; without it what the server says, or 16")
    parser.add_argument("--gpu-name", default="", help="for the hardware bound, where NVML does not answer")
    parser.add_argument("--peak-tflops", type=float, help="dense bf16 TFLOPS of one GPU")
    parser.add_argument("--peak-gbps", type=float, help="memory GB/s of one GPU")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replay", type=Path, required=True, metavar="RUN", help="a run folder, or its journal")
    parser.add_argument("--model", required=True, help="a model folder (a server is started), or with --url the name that is served")
    parser.add_argument("--url", action="append", default=[], help="a server that runs already; may be given several times")
    parser.add_argument("--key-from", default=KEY, metavar="VARIABLE", help=f"environment variable with that server's key ({KEY})")
    parser.add_argument("--questions", type=int, metavar="N", help="only the first N questions of the run")
    add_measuring(parser)
    add_server_arguments(parser)


def run(args: argparse.Namespace) -> int:
    work = work_of(args.replay, args.questions)
    roles = sorted({call.role for steps in work.steps.values() for step in steps for call in step})
    levels_wanted = concurrencies(args.concurrency, len(work.steps))
    folder = at_home(args.model)
    if args.url:
        from models.openai_server import OpenAIServer

        key = os.environ.get(args.key_from, "")

        def remote(slots: int) -> dict[str, Engine]:
            return dict.fromkeys(roles, OpenAIServer(args.url, args.model, key=key, slots=slots, stream=True))

        served = Served(tuple(args.url), key, args.model, False, lambda: reset_caches(args.url, key))
        levels = measure(args, replayed(work), remote, served, levels_wanted)
        conclude(args, levels, served, folder)
    else:
        from models.serve_cli import fleet_of

        with fleet_of(args, folder, profiling=True) as fleet:
            served = Served(fleet.urls, fleet.key, fleet.options.name, fleet.options.media is not None, fleet.reset_caches)
            engines: Engines = lambda slots: dict.fromkeys(roles, fleet.engine(slots=slots, stream=True))  # noqa: E731
            levels = measure(args, replayed(work), engines, served, levels_wanted)
            conclude(args, levels, served, folder, gpus=args.gpus)
    return 0


@dataclass(frozen=True)
class Served:
    """Servers under measurement: addresses (none for an engine in this process), key, name; `files`: they read pictures themselves."""

    urls: tuple[str, ...] = ()
    key: str = ""
    name: str = ""
    files: bool = False
    reset: Callable[[], bool] | None = None


def work_of(replay: Path, questions: int | None) -> Recorded:
    """The recorded calls of a run. Raises RunError."""
    from models.journal import Journal
    from models.replay import recorded

    with Journal(replay / "journal.sqlite" if replay.is_dir() else replay, writable=False) as journal:
        work = recorded(journal, questions)
    print(f"{len(work.steps)} questions, {work.calls} calls" + (f", {work.lost} had no reply" if work.lost else ""), file=sys.stderr)
    return work


def replayed(work: Recorded) -> Episodes:
    """The recorded calls as episodes."""
    from models.replay import episodes

    return lambda salt: episodes(work, salt)


def measure(args: argparse.Namespace, episodes: Episodes, engines: Engines, served: Served, wanted: Sequence[int]) -> list[Level]:
    """The sweep that the arguments describe."""
    from models.metrics import Watch
    from models.profile import sweep

    return sweep(
        episodes,
        engines,
        args.out,
        concurrencies=wanted,
        repetitions=args.repetitions,
        cache=args.cache,
        reset=served.reset,
        watch=lambda: Watch(served.urls, served.key),
        tell=_tell,
    )


def reset_caches(urls: Sequence[str], key: str) -> bool:
    """Empties the prefix and media caches of servers that run already; False where one will not (only vLLM in development mode does)."""
    done = []
    for url in urls:
        for path in ("/reset_prefix_cache", "/reset_mm_cache"):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            asked = urllib.request.Request(url.rstrip("/").removesuffix("/v1") + path, b"", headers, method="POST")
            try:
                with urllib.request.urlopen(asked, timeout=60) as answer:
                    done.append(answer.status == 200)
            except (OSError, ValueError):
                done.append(False)
    return bool(done) and all(done)


def conclude(args: argparse.Namespace, levels: Sequence[Level], served: Served, folder: Path, gpus: int = 1) -> None:
    """Counts tokens, lays the bounds beside the figures, writes and prints the report. Called while the servers still answer."""
    from models import profile_report

    tokens, found = _tokens(args, levels, served)
    images = {key: int((row < 0).sum()) for key, row in tokens.items()}
    beside = profile_report.Beside(found, images, _least(args, folder, levels, tokens, gpus))
    text = profile_report.table(levels, beside)
    profile_report.write(args.out, levels, text, profile_report.lines(levels, beside))
    print(text)
    print(f"{args.out}/: profile.txt, profile.jsonl, throughput.svg, latency.svg, timeline.json", file=sys.stderr)


def _tokens(args: argparse.Namespace, levels: Sequence[Level], served: Served) -> tuple[dict[str, np.ndarray], list[Prefix]]:
    """The calls of every first pass as the server itself tokenizes them, and their prefix bounds; empty where it cannot."""
    from models.metrics import Watch, block_in
    from models.profile_tokens import prefixes, tokens_of
    from models.tokenized import tokenized

    if not served.urls:
        return {}, []
    first = [level for level in levels if level.repetition == 0]
    tokens = tokens_of(first, lambda rows: tokenized(served.urls[0], served.key, served.name, rows, file_urls=served.files))
    if not tokens:
        print(f"no prefix bound, no count of picture tokens: {served.urls[0]} does not tokenize", file=sys.stderr)
    blocks = [block_in(text) for text in Watch(served.urls, served.key).texts()]
    return tokens, prefixes(first, tokens, args.block or next((block for block in blocks if block), 16))


def concurrencies(text: str | None, questions: int) -> list[int]:
    """The list given, or doublings up to the first that keeps every question under way. Raises ConfigError."""
    from models.profile import DOUBLINGS

    if text is None:
        return [c for c in DOUBLINGS if c < 2 * questions]
    return _numbers(text)


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


def _least(
    args: argparse.Namespace, folder: Path, levels: Sequence[Level], tokens: Mapping[str, np.ndarray], gpus_used: int
) -> dict[int, Least]:
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
        seen = _distinct_pictures(level, tokens)
        found[concurrency] = least(shape, peak, Work(prompt - cached, seen, output, context, concurrency), max(1, gpus_used))
    return found


def _distinct_pictures(level: Level, tokens: Mapping[str, np.ndarray]) -> int:
    """Tokens of pictures, each picture once: what the vision tower has to compute with a media cache that forgets nothing."""
    lengths: dict[int, int] = {}
    for record, _ in level.completions:
        row = tokens.get(record.key)
        if row is not None:
            for number, count in zip(*np.unique(row[row < 0], return_counts=True), strict=True):
                lengths[int(number)] = int(count)
    return sum(lengths.values())
