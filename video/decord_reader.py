"""The second decoder: decord (from the decord2 wheel), by frame count, at reduced size.

Only for clips whose index proves that counting is exact (``decoders.uncountable``); its own timestamps are compared once more here, and any
misfit hands the request to the verified decoder. Knows nothing of strategies. Try: python -m video CLIP --decoder decord --out DIR
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import decord
import numpy as np

from video.decoders import Beat, Emit, Outcome, load
from video.geometry import Fit
from video.index import ClipIndex

BATCH = 8  # frames held at once


def decode(path: Path, index: ClipIndex, targets: Sequence[int], fit: Fit, emit: Emit, beat: Beat) -> Outcome:
    """As ``decoders.Decoder``. decord turns pictures before it scales them, so it is given the upright size."""
    outcome = Outcome()
    try:
        reader = decord.VideoReader(str(path), width=fit.upright[0], height=fit.upright[1], num_threads=2)
        if len(reader) != len(index.frames):
            raise ValueError(f"decord counts {len(reader)} frames, the index {len(index.frames)}")
        wanted = sorted(targets)
        for start in range(0, len(wanted), BATCH):
            part = wanted[start : start + BATCH]
            counts = [index.number[pts] for pts in part]
            _same_times(reader, index, counts)
            for pts, pixels in zip(part, reader.get_batch(counts).asnumpy(), strict=True):
                beat()
                outcome.found.add(pts)
                emit(pts, np.ascontiguousarray(pixels), False)
    except (decord.DECORDError, ValueError, RuntimeError, IndexError) as error:  # it also fails at random when its threads are starved
        rest = [pts for pts in targets if pts not in outcome.found]
        finished = load("pyav")(path, index, rest, fit, emit, beat)
        finished.found |= outcome.found
        finished.notes.insert(0, f"decord gave up after {len(outcome.found)} frames, pyav went on: {str(error).splitlines()[0][:200]}")
        return finished
    return outcome


def _same_times(reader: decord.VideoReader, index: ClipIndex, counts: list[int]) -> None:
    starts = np.asarray(reader.get_frame_timestamp(counts))[:, 0]
    zero = float(np.asarray(reader.get_frame_timestamp([0]))[0, 0])
    for count, start in zip(counts, starts, strict=True):
        if abs(float(start) - zero - index.seconds(index.frames[count])) > max(index.frame_seconds / 2, 1e-4):
            raise ValueError(f"decord puts frame {count} at {float(start):.4f} s, the index at {index.seconds(index.frames[count]):.4f} s")
