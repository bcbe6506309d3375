"""The decoders behind one protocol, and which of them a request gets.

decord answers by frame count and never says which frame came back, so it is used only where the index proves that counting is exact,
and only for dense requests: for a few frames the verified path decodes less. Knows no codec library. Try: python -m video CLIP
--decoder decord --out DIR
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from video.geometry import Fit
from video.index import DISCARD, KEY, ClipIndex

Pixels = npt.NDArray[np.uint8]
Emit = Callable[[int, Pixels, bool], None]  # pts, RGB of shape (height, width, 3), whether the picture may be damaged
Beat = Callable[[], None]
DENSE = 0.75  # share of the frames in the needed groups from which decord was measured to be no slower
LINES = 720  # unlabelled colour is BT.709 from here on; decord takes all of it for BT.601
LEAST, MOST = 32, 64  # frames of a request: decord's start is not worth fewer, and it holds them all at once


@dataclass
class Outcome:
    """What came back: timestamps found, those whose picture may be damaged, and what happened on the way."""

    found: set[int] = field(default_factory=set)
    damaged: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


class Decoder(Protocol):
    """Hands each wanted frame to ``emit``, upright and scaled, and never another frame in its place."""

    def __call__(self, path: Path, index: ClipIndex, targets: Sequence[int], fit: Fit, emit: Emit, beat: Beat) -> Outcome: ...


def load(name: str) -> Decoder:
    """The decoder of that name; its library is imported here and not before."""
    if name == "decord":
        from video import decord_reader

        return decord_reader.decode
    from video import pyav

    return pyav.decode


def choose(index: ClipIndex, targets: Sequence[int], asked: str) -> tuple[str, str]:
    """(decoder, reason). ``decord`` on a clip where it cannot be proven exact is answered with pyav, and the reason says so."""
    if asked == "pyav":
        return "pyav", "asked for"
    if doubt := uncountable(index):
        return "pyav", f"decord is not proven exact here: {doubt}"
    if asked == "decord":
        return "decord", "asked for, and proven exact by the index"
    share = len(targets) / sum(span.last - span.first + 1 for span in index.spans(targets))
    if share < DENSE or not LEAST <= len(targets) <= MOST:
        limits = f"{LEAST} to {MOST} frames that are {DENSE:.0%} of their groups"
        return "pyav", f"verified path; decord is no slower only for {limits}, wanted are {len(targets)}, {share:.0%}"
    if index.height >= LINES:
        return "pyav", "verified path; decord would take unlabelled HD colour for BT.601"
    return "decord", f"proven exact by the index, and {share:.0%} of the frames in the needed groups are wanted"


def uncountable(index: ClipIndex) -> str:
    """Why frame counts and timestamps might not agree on this clip; empty where they provably do."""
    doubts = {
        "the clip is damaged": bool(index.problems) or any(flag & ~(KEY | DISCARD) for flag in index.flags),
        "an edit list hides frames": any(flag & DISCARD for flag in index.flags),
        "frames are shown before the keyframe that they follow (open group)": not index.closed,
        "timestamps are missing or shared": len(index.frames) != len(index.pts),
        "the container does not state its frame count": index.promised != len(index.pts),
        f"the codec {index.codec} is not verified": index.codec not in ("h264", "hevc"),
    }
    return next((text for text, holds in doubts.items() if holds), "")
