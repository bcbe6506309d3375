"""The second decoder: decord (from the decord2 wheel), by frame count, at reduced size.

Only for clips whose index proves that counting is exact (``decoders.uncountable``). Two things that the index cannot prove are watched
here: decord's own timestamps must agree, and its decoder must have nothing to complain of, since decord hands on damaged pictures
without a word. Otherwise the verified decoder answers. Knows nothing of strategies. Try: python -m video CLIP --decoder decord --out
DIR
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import decord
import numpy as np

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
        with _complaints() as heard:
            reader = decord.VideoReader(str(path), width=fit.upright[0], height=fit.upright[1], num_threads=2)
            if len(reader) != len(index.frames):
                raise ValueError(f"decord counts {len(reader)} frames, the index {len(index.frames)}")
            _same_times(reader, index, counts)
            frames = reader.get_batch(counts).asnumpy()
            del reader
        if heard:
            raise ValueError(f"its decoder complained: {heard[0]}")
    except (decord.DECORDError, ValueError, RuntimeError, IndexError) as error:  # it also fails at random when its threads are starved
        outcome = load("pyav")(path, index, targets, fit, emit, beat)
        outcome.notes.insert(0, f"decord was not believed, pyav answered ({str(error).splitlines()[0][:200]})")
        return outcome
    for pts, pixels in zip(wanted, frames, strict=True):
        beat()
        emit(pts, np.ascontiguousarray(pixels), False)
    return Outcome(set(wanted))


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """What native code writes to standard error inside the block, by lines, filled when the block ends: decord has no other way to tell."""
    heard: list[str] = []
    decord.logging.set_level(decord.logging.ERROR)
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield heard
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            heard += file.read().decode(errors="replace").splitlines()


def _same_times(reader: decord.VideoReader, index: ClipIndex, counts: list[int]) -> None:
    starts = np.asarray(reader.get_frame_timestamp(counts))[:, 0]
    zero = float(np.asarray(reader.get_frame_timestamp([0]))[0, 0])
    for count, start in zip(counts, starts, strict=True):
        if abs(float(start) - zero - index.seconds(index.frames[count])) > max(index.frame_seconds / 2, 1e-4):
            raise ValueError(f"decord puts frame {count} at {float(start):.4f} s, the index at {index.seconds(index.frames[count]):.4f} s")
