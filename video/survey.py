"""``content-hq``: one pass over the reference pictures that finds shots by pixel change and keeps what may be wanted.

The wanted frames are taken from the same pass, so the clip is decoded once. What is kept is bounded: a regular grid and the pictures just
after a change. What the decoder complains of on the way casts doubt on the whole group of pictures that it was at: decoding runs in
threads, and tells late. Knows no decoder but pyav's pass. Try: python -m video CLIP --strategy content-hq --out DIR
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from video.decoders import Beat, Emit, Outcome, Pixels
from video.geometry import Fit
from video.index import ClipIndex
from video.strategies import by_change

CHANGE = 3.0  # a difference this many times the usual one starts a shot …
LEAST = 3.0  # … when it is at least this many grey levels
SETTLED = 2  # reference pictures after a cut until one is kept: past a blend, still within a short shot
GRID = 24  # pictures kept at regular steps
AFTER = 24  # pictures kept after changes, the strongest
SAMPLES = (54, 96)  # rows, columns of the luma samples …
BLOCK = 6  # … and the side of the blocks whose means are compared: motion within a block changes its mean little


class ChangeMeter:
    """Tells cuts from ordinary motion as pictures pass by: the mean luma difference against its recent median."""

    def __init__(self) -> None:
        self._last: npt.NDArray[np.float32] | None = None
        self._recent: deque[float] = deque(maxlen=24)

    def difference(self, luma: npt.NDArray[np.float32]) -> float:
        """Strength of a cut before this picture, in usual changes; 0 for none. ``luma``: rows × columns, 0 to 255."""
        last, self._last = self._last, luma
        if last is None:
            return 0.0
        change = float(np.abs(luma - last).mean())
        usual = float(np.median(self._recent)) if len(self._recent) >= 3 else 0.0
        if len(self._recent) >= 3 and change > max(CHANGE * usual, LEAST):
            return change / max(usual, 1.0)
        self._recent.append(change)
        return 0.0


def survey(path: Path, index: ClipIndex, count: int, fit: Fit, emit: Emit, beat: Beat) -> tuple[tuple[int, ...], Outcome]:
    """Choose up to ``count`` frames by pixel change and hand them to ``emit``; returns the choice and what came back.

    Memory: ``GRID + AFTER`` pictures of the written size besides the decoder's own.
    """
    from video import pyav

    outcome, meter = Outcome(), ChangeMeter()
    cuts: list[tuple[int, float]] = []
    grid: dict[int, Pixels] = {}
    after: dict[int, tuple[float, Pixels]] = {}
    tainted: set[int] = set()  # groups of pictures, by the decode position of their keyframe
    step = index.seconds_long / max(GRID, 2 * count)
    due, settle, strength = step / 2, 0, 0.0
    for frame in pyav.reference_frames(path, index, beat, tainted):
        if frame.pts not in index.number:
            continue
        if frame.is_corrupt:
            tainted.add(index.home(frame.pts))
        change = meter.difference(_luma(frame))
        if change:
            cuts.append((frame.pts, change))
            settle, strength = SETTLED, change
        elif settle:
            settle -= 1
            if settle == 0:
                after[frame.pts] = (strength, pyav.picture(frame, fit))
                if len(after) > max(AFTER, 2 * count):
                    del after[min(after, key=lambda pts: after[pts][0])]
        if index.seconds(frame.pts) >= due:
            due += step * max(1, int((index.seconds(frame.pts) - due) / step) + 1)
            grid[frame.pts] = pyav.picture(frame, fit)
    kept = {**grid, **{pts: pixels for pts, (_, pixels) in after.items()}}
    if not kept:
        return (), outcome
    chosen = by_change(index, cuts, sorted(kept), count)
    for pts in chosen:
        outcome.found.add(pts)
        damaged = index.home(pts) in tainted
        outcome.damaged |= {pts} if damaged else set()
        emit(pts, kept[pts], damaged)
    return chosen, outcome


def _luma(frame: Any) -> npt.NDArray[np.float32]:
    """Block means of a grid of single luma samples, as 0 to 255: no scaling pass over the whole picture, little said of small motion."""
    plane = frame.planes[0]
    deep = frame.format.components[0].bits > 8
    rows = np.frombuffer(plane, np.uint16 if deep else np.uint8).reshape(plane.height, -1)[:, : plane.width]
    high, wide = max(1, plane.height // SAMPLES[0]), max(1, plane.width // SAMPLES[1])
    grid = rows[high // 2 :: high, wide // 2 :: wide].astype(np.float32)
    if deep:
        grid /= 2 ** (frame.format.components[0].bits - 8)
    side = max(1, min(BLOCK, *grid.shape))
    down, across = grid.shape[0] // side, grid.shape[1] // side
    means: npt.NDArray[np.float32] = grid[: down * side, : across * side].reshape(down, side, across, side).mean(axis=(1, 3))
    return means
