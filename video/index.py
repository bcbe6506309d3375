"""What one demux pass learns about a clip: timestamps, keyframes, packet sizes, and how far they can be trusted.

A frame is named by its presentation timestamp (pts, an integer in units of ``time_base``), never by a count: counts lie on variable frame
rates and truncated files. Knows no decoder and opens no clip. Try: python -m video index CLIP
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

KEY, DISCARD, CORRUPT = 1, 2, 4  # bits of ``ClipIndex.flags``
SKIPPABLE_CODECS = ("h264", "hevc")  # whose decoders leave non-reference pictures out without touching the others


@dataclass(frozen=True)
class Span:
    """Packets ``first`` to ``last`` (decode positions, both included) that must be read for ``targets`` (pts)."""

    first: int
    last: int
    targets: frozenset[int]


@dataclass(frozen=True)
class ClipIndex:
    """One clip's packets in decode order, and its picture format.

    ``pts``, ``dts`` (None where the container gives none), ``size`` (bytes) and ``flags`` run in parallel. ``rotation`` is in degrees
    counter-clockwise; ``aspect`` is the sample aspect ratio; ``promised`` is the header's frame count, 0 where it makes none.
    ``closed_headers`` tells whether every keyframe starts with an IDR picture; None where the codec was not looked into.
    """

    container: str
    codec: str
    pixel_format: str
    width: int
    height: int
    aspect: tuple[int, int]
    rotation: int
    time_base: tuple[int, int]
    promised: int
    pts: tuple[int | None, ...]
    dts: tuple[int | None, ...]
    size: tuple[int, ...]
    flags: tuple[int, ...]
    temporal_layers: bool = False
    problems: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ClipIndex({self.codec} {self.width}x{self.height}, {len(self.frames)} frames, {self.seconds_long:.2f} s, {self.container})"

    @cached_property
    def keys(self) -> tuple[int, ...]:
        """Decode positions of the keyframes that have a timestamp, discarded ones included: all are seek points."""
        return tuple(i for i, flag in enumerate(self.flags) if flag & KEY and self.pts[i] is not None)

    @cached_property
    def position(self) -> dict[int, int]:
        """Decode position of each timestamp that only one packet carries: the others cannot be told apart."""
        counts = Counter(pts for pts in self.pts if pts is not None)
        return {pts: i for i, pts in enumerate(self.pts) if pts is not None and counts[pts] == 1}

    @cached_property
    def frames(self) -> tuple[int, ...]:
        """Timestamps (pts) that can be asked for, in presentation order.

        Left out: discarded packets (an edit list hides them), shared timestamps, and what comes before the first keyframe, in decode order
        or, for the leading pictures of an open group, in time: their references are not in the file.
        """
        if not self.keys:
            return ()
        first = self.keys[0]
        floor = self._pts(first)
        return tuple(sorted(pts for pts, i in self.position.items() if i >= first and pts >= floor and not self.flags[i] & DISCARD))

    @cached_property
    def number(self) -> dict[int, int]:
        """Frame number, from 0 in presentation order, of each timestamp in ``frames``."""
        return {pts: i for i, pts in enumerate(self.frames)}

    @cached_property
    def closed(self) -> bool:
        """Whether no picture is shown before the keyframe that it follows in the file (no open group of pictures)."""
        newest: int | None = None
        for i, pts in enumerate(self.pts):
            if pts is None:
                return False
            if self.flags[i] & KEY:
                newest = pts
            elif newest is None or pts < newest:
                return False
        return True

    @cached_property
    def skips(self) -> bool:
        """Whether non-reference pictures may be left out of decoding without touching the others."""
        return self.codec in SKIPPABLE_CODECS and not self.temporal_layers

    @cached_property
    def step(self) -> int:
        """Median time between neighbouring frames, in pts; 0 for a single frame."""
        steps = sorted(b - a for a, b in pairwise(self.frames))
        return steps[len(steps) // 2] if steps else 0

    @cached_property
    def gaps(self) -> tuple[tuple[int, int], ...]:
        """(frame before, frame after) of each hole in a steady clip; a variable rate has many kinds of steps and tells nothing."""
        pairs = list(pairwise(self.frames))
        steady = sum(abs(b - a - self.step) <= 0.15 * self.step for a, b in pairs)  # milliseconds make 16 and 17 of one step
        if len(pairs) < 10 or steady < 0.9 * len(pairs):
            return ()
        return tuple((a, b) for a, b in pairs if b - a > 1.9 * self.step)

    @cached_property
    def shaky(self) -> frozenset[int]:
        """Frames that may have lost a reference: decoders conceal a lost packet without a word.

        A lost picture was shown within a gap. Pictures shown before it lean on it only as far back as this clip reorders at all; those
        shown after it may, up to the next keyframe.
        """
        newest, back = self.frames[0], 0
        for pts in self.pts:
            if pts is not None:
                newest = max(newest, pts)
                back = max(back, newest - pts)
        lost: set[int] = set()
        for before, _ in self.gaps:
            home = self.home(before)
            lost |= {pts for pts in self.frames if pts >= before - back and self.home(pts) == home}
        return frozenset(lost)

    @property
    def seconds_long(self) -> float:
        return self.seconds(self.frames[-1]) + self.frame_seconds if self.frames else 0.0

    @property
    def frame_seconds(self) -> float:
        """Median time between neighbouring frames, seconds; 0 for a single frame."""
        return self.step * self.time_base[0] / self.time_base[1]

    def seconds(self, pts: int) -> float:
        """Time since the first frame that can be shown."""
        return (pts - self.frames[0]) * self.time_base[0] / self.time_base[1]

    def home(self, pts: int) -> int:
        """Decode position of the keyframe from which the frame at ``pts`` can be decoded."""
        at = bisect_right(self.keys, self.position[pts]) - 1
        while at > 0 and self._pts(self.keys[at]) > pts:
            at -= 1
        return self.keys[max(at, 0)]

    def spans(self, targets: Iterable[int]) -> tuple[Span, ...]:
        """The packet ranges that hold ``targets``, one per keyframe needed, in decode order.

        A target's keyframe is the last one that comes before it both in the file and in time; the leading pictures of an open group
        therefore start from the keyframe before theirs.
        """
        groups: dict[int, set[int]] = {}
        for pts in targets:
            groups.setdefault(self.home(pts), set()).add(pts)
        return tuple(Span(key, max(self.position[pts] for pts in wanted), frozenset(wanted)) for key, wanted in sorted(groups.items()))

    def _pts(self, at: int) -> int:
        pts = self.pts[at]
        assert pts is not None  # ``keys`` holds only packets with a timestamp
        return pts

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> ClipIndex:
        data: dict[str, Any] = json.loads(text)
        fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
        return ClipIndex(**fields)


def soundness(index: ClipIndex) -> tuple[str, ...]:
    """What is wrong with a clip, in words, as far as its packets show: the ``problems`` of its index."""
    found = []
    total, keys = len(index.pts), index.keys
    if index.promised > total:
        found.append(f"truncated: the header promises {index.promised} frames, {total} are in the file")
    if corrupt := sum(bool(flag & CORRUPT) for flag in index.flags):
        found.append(f"{corrupt} damaged packets")
    if keys and keys[0] > 0:
        found.append(f"starts in the middle of a group of pictures: its first {keys[0]} frames cannot be decoded")
    if without := sum(pts is None for pts in index.pts):
        found.append(f"{without} frames without a timestamp cannot be asked for")
    if shared := total - without - len(index.position):
        found.append(f"{shared} frames share a timestamp with another and cannot be told apart")
    times = [dts for dts in index.dts if dts is not None]
    if any(b < a for a, b in pairwise(times)):
        found.append("decode timestamps run backwards")
    if index.gaps:
        lost = sum(round((after - before) / index.step) - 1 for before, after in index.gaps)
        found.append(f"{lost} frames are missing between others: what follows in their groups of pictures may be damaged")
    return tuple(found)
