"""The ratios that need no model: scheduling, own CPU, memory, and what a perfect prefix cache could serve of the prompts.

Each takes its own reference in the same run, so that a slow or busy machine moves both. Knows the stub server, no real one.
Try: python -m bench speed --rows radix
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bench.config import ROLES
from bench.episode import Prediction
from bench.speed.stub import NAME, serving
from bench.speed.work import Work
from models.agents import Episode
from models.drivers import Limits, Outcome, run
from models.journal import Journal
from models.openai_server import OpenAIServer, fire
from models.radix import bound
from models.requests import Completion, Request
from models.wire import body_of

SLOTS = 64
DELAY = 0.1


@dataclass(frozen=True)
class Figure:
    """One line of the table. `target` with `least` says at least, without it at most; None: reported, no target."""

    what: str
    value: float | None
    target: float | None = None
    least: bool = False
    unit: str = "×"
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.value is None or self.target is None:
            return None
        return self.value >= self.target if self.least else self.value <= self.target


def drive(work: Work, url: str, *, copies: int = 1, live: int = 512) -> tuple[dict[str, Outcome[Any]], float, float]:
    """Outcomes, wall seconds and CPU seconds of this process, of the questions driven through client and journal."""
    with tempfile.TemporaryDirectory(prefix="speed-") as folder, Journal(Path(folder) / "journal.sqlite") as journal:
        engines = dict.fromkeys(ROLES, OpenAIServer([url], NAME, slots=SLOTS, file_urls=True))
        kept: dict[str, Outcome[Any]] = {}
        wall, cpu = time.perf_counter(), time.process_time()
        run(work.episodes(copies), engines, journal, on_done=kept.__setitem__, limits=Limits(live=live), keep=False)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    lost = [outcome.failure for outcome in kept.values() if not outcome.ok]
    if lost:
        raise RuntimeError(f"{len(lost)} questions were lost against the stub: {lost[0]}")
    return kept, wall, cpu


def scheduling(work: Work) -> Figure:
    """Wall clock against what no scheduler can beat: the longest question, or all calls on all slots."""
    with serving(work.table, seconds=DELAY, slots=SLOTS) as url:
        outcomes, wall, cpu = drive(work, url)
    calls = sum(outcome.calls for outcome in outcomes.values())
    least = max(work.rounds * DELAY, calls * DELAY / SLOTS)
    said = f"{len(outcomes)} questions, {calls} calls, {wall:.2f} s against {least:.2f} s; {calls * DELAY / wall:.0f} × one at a time"
    what = f"{work.row.label}, stub of {DELAY:g} s and {SLOTS} slots: wall ÷ bound"
    return Figure(what, wall / least, 1.15, note=f"{said}; CPU {cpu:.2f} s")


def own_cpu(work: Work, what: str, target: float, passes: int = 3) -> list[Figure]:
    """CPU of this process for one call that goes out, and of a bare aiohttp loop that sends the same bytes and reads the answers."""
    with serving(work.table) as url:
        found, bare = [], []
        for _ in range(passes):
            outcomes, _, cpu = drive(work, url)
            sent = sum(outcome.calls - outcome.reused for outcome in outcomes.values())
            found.append(1000 * cpu / sent)
            begun = time.process_time()
            asyncio.run(fire(url, bodies(work.requests), SLOTS))
            bare.append(1000 * (time.process_time() - begun) / len(work.requests))
    figure = Figure(f"own CPU a call, {what}", float(np.median(found)), target, unit="ms", note=f"{sent} calls, {passes} passes")
    return [figure, Figure(f"  bare aiohttp with the same bodies, {what}", float(np.median(bare)), unit="ms")]


def bodies(requests: Sequence[Request]) -> list[bytes]:
    """The requests as the client sends them to the stub."""
    return [body_of(request, NAME, file_urls=True, word_ids={}) for request in requests]


def memory(options: Sequence[str], many: int, few: int = 100) -> Figure:
    """Peak resident memory of a fresh process with `many` questions under way at once, against one with `few`."""
    peaks = []
    for count in (few, many):
        command = [sys.executable, "-m", "bench", "speed", *options, "--peak", str(count)]
        root = Path(__file__).resolve().parent.parent.parent
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the process with {count} questions ended with {done.returncode}: {done.stderr[-500:]}")
        peaks.append(json.loads(done.stdout.splitlines()[-1])["mib"])
    note = f"{peaks[0]:.0f} MiB with {few}, {peaks[1]:.0f} MiB with {many}"
    return Figure(f"memory with {many:,} questions in flight ÷ with {few}", peaks[1] / peaks[0], 2.0, note=note)


class _Held(OpenAIServer):
    """Sends nothing until it is let go."""

    def __init__(self, url: str) -> None:
        super().__init__([url], NAME, slots=SLOTS, file_urls=True)
        self.gate = asyncio.Event()

    async def complete(self, request: Request) -> Completion:
        await self.gate.wait()
        return await super().complete(request)


def peak(work: Work, count: int) -> float:
    """MiB at most of this process, after driving `count` questions that are all under way at once.

    No call goes out before all of them have begun: a driver takes in new ones as it finds time, and would else have ended many by then.
    """
    import resource

    copies = max(1, -(-count // len(work.samples)))
    with serving(work.table) as url, tempfile.TemporaryDirectory(prefix="speed-") as name, Journal(Path(name) / "j") as journal:
        engine = _Held(url)

        def chosen() -> Iterator[tuple[str, Episode[Prediction]]]:
            yield from islice(work.episodes(copies), count)
            engine.gate.set()

        run(chosen(), dict.fromkeys(ROLES, engine), journal, limits=Limits(live=count + 1), keep=False)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def tokenizer(folder: Path) -> Callable[[Request], list[int]]:
    """Requests → ids under a folder's own tokenizer and chat template."""
    from models.tokenizing import chat_ids

    return chat_ids(folder)


def radix(works: Sequence[Work], ids: Callable[[Request], list[int]]) -> list[Figure]:
    """What a perfect prefix cache could serve: of each setting by itself, and of a run of all of them."""
    rows: dict[str, list[int]] = {}
    found = []
    for work in works:
        mine = [rows.setdefault(request.key(""), ids(request)) for request in work.requests]
        one = bound(mine)
        target = 0.75 if work.rounds > 1 else None  # one call a question has nothing to extend
        note = f"{one.calls} calls, {one.prompt_tokens:,} tokens, {one.prompt_tokens - one.served:,} to compute"
        found.append(Figure(f"prompt tokens that a perfect cache serves, {work.row.label}", one.share, target, True, "", note))
    if len(works) > 1:
        every = bound(rows.values())
        note = f"{every.calls} distinct calls, {every.prompt_tokens:,} tokens"
        found.append(Figure("prompt tokens that a perfect cache serves, one run of these settings", every.share, 0.75, True, "", note))
    return found
