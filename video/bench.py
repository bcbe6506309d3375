"""The benchmark: right frames, time, memory and shots on clips that it makes itself, as ratios in one run.

Every timed step runs alone in a fresh process, in turns with its baseline; the least of the repeats counts, since neighbours only ever add.
Knows the targets of the table in docs/video.md. Try: python -m video bench --size 640x360 --frames 300
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from video import decoders, geometry, strategies
from video.errors import OptionError
from video.make_clips import Recipe, burst_shots, make, read_number, sound_recipes
from video.options import FrameOptions, whole
from video.source import FrameStore

ASKED = (2, 3, 5, 8, 10, 15, 24)  # evenly spaced frames; the tests ask for every number from 2 to 24 on small clips
SHOT_SEEDS = 5
LIMITS = (("frames", 60, 100_000), ("short", 30, 10_000), ("repeats", 1, 100), ("seeds", 0, 100))  # option, least, most
GRAIN = 9  # makes about 40 Mbit/s of 4K60 H.264, as players record


@dataclass(frozen=True)
class Row:
    """One line of the table: a measured value against its target (a value must not pass it, or must reach it where ``at_least``)."""

    what: str
    value: float
    target: float | None = None
    unit: str = ""
    at_least: bool = False

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "ok" if (self.value >= self.target if self.at_least else self.value <= self.target) else "MISSED"

    @property
    def cells(self) -> str:
        value = f"{self.value:.0f}" if self.unit == "MB" or self.value == int(self.value) else f"{self.value:.3f}"
        aim = "" if self.target is None else f"{'≥' if self.at_least else '≤'} {self.target:g} {self.unit}".strip()
        return f"| {self.what} | {value} {self.unit} | {aim} | {self.verdict} |"


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m video bench", description=__doc__)
    parser.add_argument("--size", default="3840x2160", help="of the timed clips (default %(default)s)")
    parser.add_argument("--frames", type=int, default=900, help="of the two timed clips, at 60 a second (default %(default)s)")
    parser.add_argument("--short", type=int, default=150, help="frames of the clips for exactness (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=SHOT_SEEDS, help="clips with short bursts, 0: none (default %(default)s)")
    parser.add_argument("--clips", type=Path, default=Path(".cache/bench_clips"), help="kept, so that a second run starts at once")
    parser.add_argument("--make-only", action="store_true", help="make the clips and stop")
    asked = parser.parse_args(given)
    width, height = _sizes(asked.size)
    for name, least, most in LIMITS:
        whole(name, getattr(asked, name), least, most)
    large = Recipe("", width=width, height=height, frames=asked.frames, grain=GRAIN, preset="superfast")
    timed = [replace(large, name=f"timed_gop{gop}.mp4", gop=gop) for gop in (60, 250)]
    sound = [replace(recipe, grain=GRAIN) for recipe in sound_recipes(width, height, asked.short, preset="ultrafast")]
    burst = Recipe("", frames=1020, grain=GRAIN)
    seeds = range(1, asked.seeds + 1)
    bursts = [replace(burst, name=f"shots_{seed}.mp4", shots=burst_shots(seed), seed=seed) for seed in seeds]
    place = asked.clips / f"{asked.size}_{asked.frames}_{asked.short}"
    paths = {recipe.name: _made(recipe, place) for recipe in (*timed, *sound, *bursts)}
    if asked.make_only:
        return 0
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}", flush=True)
    print("\n| what | measured | target | |\n|---|---|---|---|", flush=True)
    rows: list[Row] = []
    for part in (exactness([(r, paths[r.name]) for r in (*timed, *sound)]), timing(timed, paths, asked.repeats), shots(bursts, paths)):
        for row in part:
            print(row.cells, flush=True)
            rows.append(row)
    print(json.dumps({row.what: row.value for row in rows}))
    return 0


def _sizes(text: str) -> tuple[int, int]:
    """WIDTHxHEIGHT as two even numbers, as 4:2:0 needs them. Raises OptionError."""
    parts = text.split("x")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 5 and int(part) % 2 == 0 for part in parts):
        raise OptionError(f"size is {text!r}", remedy="give WIDTHxHEIGHT in even numbers, for example 640x360")
    width, height = map(int, parts)
    whole("size: the width", width, 160, 7680)
    whole("size: the height", height, 90, 4320)
    return width, height


def exactness(clips: Iterable[tuple[Recipe, Path]]) -> Iterable[Row]:
    """Frames whose picture is not the one asked for, over all sound clips and counts of evenly spaced frames."""
    from video import pyav

    wrong = missing = total = 0
    for recipe, path in clips:
        index = pyav.scan(path)
        shape = geometry.fit(index.width, index.height, index.aspect, index.rotation, 640)
        for count in ASKED:
            targets = strategies.uniform(index, count)
            seen: dict[int, int] = {}

            def emit(pts: int, pixels: decoders.Pixels, damaged: bool, seen: dict[int, int] = seen) -> None:
                seen[pts] = read_number(pixels)

            pyav.decode(path, index, targets, shape, emit)
            total += len(targets)
            missing += len(targets) - len(seen)
            wrong += sum(number != index.number[pts] + recipe.hidden for pts, number in seen.items())
    yield Row(f"wrong frames of {total}", wrong, 0)
    yield Row(f"missing frames of {total}", missing, 0)


def timing(recipes: Sequence[Recipe], paths: dict[str, Path], repeats: int) -> Iterable[Row]:
    steps = ("opencv", "uniform", "groups", "content", "fast", "nonref", "content-hq")
    best = {recipe.gop: _best([(step, paths[recipe.name]) for step in steps], repeats) for recipe in recipes}
    for gop, limit in ((60, 0.30), (250, 0.55)):
        run = best[gop]
        yield Row(f"GOP {gop}: `uniform` wall / OpenCV decoding all", run["uniform"]["wall"] / run["opencv"]["wall"], limit)
        yield Row(f"GOP {gop}: `uniform` CPU / needed groups, non-reference skipped", run["uniform"]["cpu"] / run["groups"]["cpu"], 1.4)
        yield Row(f"GOP {gop}: `content` CPU / `uniform`", run["content"]["cpu"] / run["uniform"]["cpu"], 1.15)
        yield Row(f"GOP {gop}: `content-hq` CPU / full non-reference pass", run["content-hq"]["cpu"] / run["nonref"]["cpu"], 1.4)
        if gop == 60:  # 15 s at GOP 250 have four keyframes: `fast` answers with `uniform` there
            yield Row(f"GOP {gop}: `fast` wall / OpenCV decoding all", run["fast"]["wall"] / run["opencv"]["wall"], 0.08)
            yield Row(f"GOP {gop}: `fast` CPU / OpenCV decoding all", run["fast"]["cpu"] / run["opencv"]["cpu"], 0.08)
        yield Row(f"GOP {gop}: `uniform` peak memory", run["uniform"]["peak_mb"], 256, "MB")
        yield Row(f"GOP {gop}: `content-hq` peak memory", run["content-hq"]["peak_mb"], 400, "MB")
        yield Row(f"GOP {gop}: OpenCV, wall", run["opencv"]["wall"], None, "s")
        yield Row(f"GOP {gop}: `uniform`, wall", run["uniform"]["wall"], None, "s")
    yield Row("second request", _second(paths[recipes[0].name]) * 1000, 5, "ms")


def shots(recipes: Sequence[Recipe], paths: dict[str, Path]) -> Iterable[Row]:
    """Share of shots, short bursts among them, from which at least one of ten frames comes."""
    for name in ("content", "content-hq", "uniform") if recipes else ():
        hit = total = 0
        with tempfile.TemporaryDirectory() as folder:
            for recipe in recipes:
                run = _run(name, paths[recipe.name], Path(folder))
                edges = [0, *recipe.shots, recipe.frames]
                hit += sum(any(a <= number < b for number in run["frames"]) for a, b in pairwise(edges))
                total += len(edges) - 1
        yield Row(f"shots hit by `{name}` of {total}", hit / total, None if name == "uniform" else 0.95, at_least=True)


def _best(steps: Sequence[tuple[str, Path]], repeats: int) -> dict[str, dict[str, Any]]:
    """The least wall, CPU and memory of each step over the repeats, all steps in turns."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name, _ in steps}
    for _ in range(repeats):
        for name, clip in steps:
            with tempfile.TemporaryDirectory() as folder:
                runs[name].append(_run(name, clip, Path(folder)))
    return {name: {key: min(run[key] for run in found) for key in ("wall", "cpu", "peak_mb")} for name, found in runs.items()}


def _run(step: str, clip: Path, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "video.bench_steps", step, str(clip.absolute()), str(folder)]
    root = str(Path(__file__).resolve().parent.parent)
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": root}, cwd=root)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _second(clip: Path) -> float:
    """Seconds of a request whose answer lies in the store, the median of five."""
    with tempfile.TemporaryDirectory() as folder, FrameStore(Path(folder), FrameOptions(strategy="uniform")) as frames:
        frames.frames((), clip)
        spent = []
        for _ in range(5):
            start = time.perf_counter()
            frames.frames((), clip)
            spent.append(time.perf_counter() - start)
    return statistics.median(spent)


def _made(recipe: Recipe, place: Path) -> Path:
    path = place / recipe.name
    if not path.exists():
        place.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        temporary = path.with_name(f"making_{recipe.name}")
        make(recipe, temporary).replace(path)
        print(f"made {path} in {time.perf_counter() - start:.0f} s, {path.stat().st_size / 1e6:.0f} MB", file=sys.stderr, flush=True)
    return path
