"""The second decoder: decord (from the decord2 wheel), by frame count, at reduced size.

Only for clips whose index proves that counting is exact (``decoders.uncountable``). Two things that the index cannot prove are watched
here: decord's own timestamps must agree, and its decoder must have nothing to complain of, since decord hands on damaged pictures
without a word. Otherwise the verified decoder answers. Knows nothing of strategies. Try: python -m video CLIP --decoder decord --out
DIR
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import decord
import numpy as np

from video.complaints import complaints
from video.decoders import Beat, Emit, Outcome, load
from video.geometry import Fit
from video.index import ClipIndex


def decode(path: Path, index: ClipIndex, targets: Sequence[int], fit: Fit, emit: Emit, beat: Beat) -> Outcome:
    """As ``decoders.Decoder``. Holds all frames until the last is known to be sound; requests are small (``decoders.MOST``).

    decord turns pictures before it scales them, so it is given the upright size.
    """
    wanted = sorted(targets)
    counts = [index.number[pts] for pts in wanted]
    try:
        decord.logging.set_level(decord.logging.ERROR)
        with complaints() as heard:
            reader = decord.VideoReader(str(path), width=fit.upright[0], height=fit.upright[1], num_threads=2)
            if len(reader) != len(index.frames):
                raise ValueError(f"decord counts {len(reader)} frames, the index {len(index.frames)}")
            _same_times(reader, index, counts)
            frames = reader.get_batch(counts).asnumpy()
            del reader
            said = heard.lines
        if said:  # decord hands on patched pictures without another word
            raise ValueError(f"its decoder complained: {said[0]}")
    except (decord.DECORDError, ValueError, RuntimeError, IndexError) as error:  # it also fails at random when its threads are starved
        outcome = load("pyav")(path, index, targets, fit, emit, beat)
        outcome.notes.insert(0, f"decord was not believed, pyav answered ({str(error).splitlines()[0][:200]})")
        return outcome
    for pts, pixels in zip(wanted, frames, strict=True):
        beat()
        emit(pts, np.ascontiguousarray(pixels), False)
    return Outcome(set(wanted))


def _same_times(reader: decord.VideoReader, index: ClipIndex, counts: list[int]) -> None:
    starts = np.asarray(reader.get_frame_timestamp(counts))[:, 0]
    zero = float(np.asarray(reader.get_frame_timestamp([0]))[0, 0])
    for count, start in zip(counts, starts, strict=True):
        if abs(float(start) - zero - index.seconds(index.frames[count])) > max(index.frame_seconds / 2, 1e-4):
            raise ValueError(f"decord puts frame {count} at {float(start):.4f} s, the index at {index.seconds(index.frames[count]):.4f} s")
