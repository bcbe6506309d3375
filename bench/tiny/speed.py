"""Calls a second of the embedded model in this process: perceiver calls with three frames each, sixteen at a time, on two threads.

Counted is all that a call costs from picture files to text: decoding, resizing, tower, prompt, reply. No frame comes twice, so that the
engine's memory of seen pictures does not help. Knows no target machine: say beside the figure where it was measured.

    python -m bench eval-tiny --speed
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.tiny import targets, tasks
from bench.tiny.clips import TIMES
from bench.world.render import draw
from bench.world.scene import make_scene
from models.errors import CallFailed, RunError
from models.hf_engine import TransformersEngine
from models.requests import Message, Picture, Request

BATCH, FRAMES, BATCHES, WARM_UP = 16, 3, 8, 2
SIZE: Final = (640, 360)


def measure(model: Path, work: Path, seed: int, threads: int = 2, batches: int = BATCHES) -> dict[str, Any]:
    """``calls_per_s`` over all batches and of each, with what it was measured on. Raises RunError when calls fail."""
    engine = TransformersEngine(model, device="cpu", batch=BATCH, threads=threads)
    calls = _calls(work, (WARM_UP + batches) * BATCH, seed)
    seconds: list[float] = []
    tokens = 0
    for at in range(0, len(calls), BATCH):
        begun = time.perf_counter()
        replies = [reply for _, reply in engine.complete_batch(calls[at : at + BATCH])]
        seconds.append(time.perf_counter() - begun)
        lost = [reply for reply in replies if isinstance(reply, CallFailed)]
        if lost:
            raise RunError(f"{len(lost)} of {len(replies)} calls failed: {lost[0]}")
        tokens += sum(reply.output_tokens or 0 for reply in replies if not isinstance(reply, CallFailed))
    timed = seconds[WARM_UP:]
    return {
        "calls_per_s": BATCH * len(timed) / sum(timed),
        "median": BATCH / statistics.median(timed),
        "slowest": BATCH / max(timed),
        "fastest": BATCH / min(timed),
        "reply_tokens": tokens / len(calls),
        "batch": BATCH, "frames": FRAMES, "batches": len(timed), "threads": threads,
    }  # fmt: skip


def _calls(work: Path, count: int, seed: int) -> list[Request]:
    """Perceiver calls whose frames lie in `work` as PNG files, as they do in a sample world."""
    work.mkdir(parents=True, exist_ok=True)
    source = tasks.source("perceive", Random(f"speed/{seed}").getrandbits(40), "test")
    calls = []
    for k, sample in enumerate(islice(source, count)):
        assert sample.clip is not None
        clip, scene = sample.clip, make_scene("wild", sample.clip.scene)
        pictures = []
        for i, t in enumerate(TIMES[FRAMES]):
            path = work / f"{k:04d}-{i}.png"
            draw(clip.look, clip.motion, clip.element, t, scene, SIZE).save(path, compress_level=1)
            pictures.append(Picture.of(path))
        calls.append(showing(sample.request, pictures))
    return calls


def showing(request: Request, pictures: list[Picture]) -> Request:
    """The request with these pictures in place of those that stood for them."""
    left = iter(pictures)
    messages = tuple(
        Message(m.role, tuple(next(left) if isinstance(part, Picture) else part for part in m.parts)) for m in request.messages
    )
    return replace(request, messages=messages)


def table(facts: Mapping[str, Any]) -> str:
    """One line for people."""
    wanted = targets.verdict(targets.CALLS_A_SECOND, facts["calls_per_s"])
    return (
        f"{facts['calls_per_s']:.1f} calls a second ({wanted}) over {facts['batches']} batches of {facts['batch']} perceiver calls, "
        f"{facts['frames']} frames each, {facts['threads']} threads; a batch: median {facts['median']:.1f}, "
        f"{facts['slowest']:.1f} to {facts['fastest']:.1f}; replies of {facts['reply_tokens']:.1f} tokens"
    )
