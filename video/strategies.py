"""Which moments of a clip the model sees: pure functions from an index, or from a change signal, to timestamps.

Every function returns timestamps (pts) of ``index.frames``, ascending, each once: a clip of three frames gives three, however many are
asked for. Knows no decoder. Try: python -m video CLIP --strategy content --out DIR
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

from video.index import KEY, ClipIndex

T = TypeVar("T")
HALF_SECOND = 0.5
SPIKE = 2.2  # a packet this many times its neighbours' usual size starts a shot
SHORTEST = 0.1  # seconds: two cuts closer than this are one
NEAR = 24  # neighbours on either side that say what is usual


def equal(index: ClipIndex, count: int) -> tuple[int, ...]:
    """One frame every half second from the first on, the first ``count`` of them (MH-MMKG, Table 5: two a second, at most ten)."""
    chosen: list[int] = []
    for step in range(count):
        wanted = step * HALF_SECOND
        if wanted > index.seconds(index.frames[-1]) + index.frame_seconds / 2:
            break
        pts = _nearest(index, wanted)
        if pts not in chosen:
            chosen.append(pts)
    return tuple(sorted(chosen))


def uniform(index: ClipIndex, count: int) -> tuple[int, ...]:
    """The frames nearest to the middles of ``count`` equal parts of the clip's time."""
    if count >= len(index.frames):
        return index.frames
    chosen = {_nearest(index, (part + 0.5) * index.seconds_long / count) for part in range(count)}
    return _filled(index, chosen, count, index.frames)  # a variable rate may give two parts the same frame


def fast(index: ClipIndex, count: int) -> tuple[int, ...]:
    """Keyframes only, thinned evenly; ``uniform`` where the clip has fewer keyframes than ``count``."""
    keys = sorted(pts for pts in index.frames if index.flags[index.position[pts]] & KEY)
    return thinned(keys, count) if len(keys) >= min(count, len(index.frames)) else uniform(index, count)


def content(index: ClipIndex, count: int) -> tuple[int, ...]:
    """One frame per shot, shots told by packet sizes, then the longest gaps filled. Decodes nothing.

    Within a shot or a gap, frames soon after a keyframe are taken before others, for they cost less to decode.
    """
    if count >= len(index.frames):
        return index.frames
    cuts = strongest(index, packet_cuts(index), count - 1)
    chosen = set()
    for begin, end in _shots(index.frames, cuts):
        chosen.add(_cheapest(index, _middle(index.frames[begin:end])))
    return _filled(index, chosen, count, index.frames, lambda frames: _cheapest(index, frames))


def by_change(index: ClipIndex, cuts: Sequence[tuple[int, float]], kept: Sequence[int], count: int) -> tuple[int, ...]:
    """The choice of ``content-hq``: one kept frame per shot, then the longest gaps filled from the kept ones.

    Args:
        cuts: (pts of a shot's first seen frame, how much it differs), as ``survey`` finds them.
        kept: timestamps whose pictures are at hand, ascending.
    """
    starts = strongest(index, cuts, count - 1)
    chosen = set()
    for begin, end in _shots(kept, starts):
        if begin < end:
            chosen.add(kept[(begin + end - 1) // 2])
    return _filled(index, chosen, min(count, len(kept)), kept)


def thinned(items: Sequence[T], count: int) -> tuple[T, ...]:
    """At most ``count`` of the items, evenly spread, first and last kept when there is room for both."""
    if len(items) <= count:
        return tuple(items)
    if count == 1:
        return (items[len(items) // 2],)
    return tuple(items[round(i * (len(items) - 1) / (count - 1))] for i in range(count))


def topped_up(index: ClipIndex, chosen: Sequence[int], count: int) -> tuple[int, ...]:
    """``chosen`` and as many frames more, from the longest gaps, as ``count`` and the clip allow."""
    return _filled(index, set(chosen), count, index.frames)


def strongest(index: ClipIndex, cuts: Sequence[tuple[int, float]], most: int) -> tuple[int, ...]:
    """The ``most`` strongest of (pts, strength) as ascending pts; of several within ``SHORTEST`` seconds only the strongest."""
    room = SHORTEST * index.time_base[1] / index.time_base[0]
    kept: list[int] = []
    ends = (index.frames[0], index.frames[-1])  # an encoder settling in after its first picture is no cut
    for pts, _ in sorted(cuts, key=lambda cut: -cut[1]):
        if len(kept) < most and all(abs(pts - other) >= room for other in (*kept, *ends)):
            kept.append(pts)
    return tuple(sorted(kept))


def packet_cuts(index: ClipIndex) -> list[tuple[int, float]]:
    """(pts, strength) of each frame that probably starts a shot, from packet sizes alone.

    Only pictures shown later than all before them in the file are compared (P, not B: their sizes differ for no reason of content). After a
    cut such a picture is coded nearly whole: far larger than its neighbours, and about as large as a keyframe. A keyframe counts as a cut
    where the encoder put it off its regular beat.
    """
    ahead: list[int] = []  # decode positions of pictures that move time forward, keyframes included
    newest: int | None = None
    for i in range(index.keys[0], len(index.pts)):
        pts = index.pts[i]
        if pts is not None and pts in index.position and (newest is None or pts > newest):
            newest = pts
            ahead.append(i)
    is_key = [bool(index.flags[i] & KEY) for i in ahead]
    plain = [at for at, key in enumerate(is_key) if not key]
    cuts: list[tuple[int, float]] = []
    for rank, at in enumerate(plain):
        near = sorted(index.size[ahead[other]] for other in plain[max(0, rank - NEAR) : rank + NEAR + 1] if other != at)
        usual = max(near[len(near) // 2], 1) if near else 1
        size = index.size[ahead[at]]
        whole = index.size[index.keys[max(bisect_left(index.keys, ahead[at]) - 1, 0)]]
        if size > SPIKE * usual and size > 0.25 * whole:
            cuts.append((_pts(index, ahead[at]), size / usual))
    beats = [b - a for a, b in pairwise(index.keys)]
    for before, key in zip(beats, index.keys[1:], strict=False):
        if before < 0.9 * max(beats) and index.pts[key] in index.number:
            cuts.append((_pts(index, key), SPIKE * max(beats) / before))
    return cuts


def _filled(
    index: ClipIndex, chosen: set[int], count: int, pool: Sequence[int], pick: Callable[[Sequence[int]], int] | None = None
) -> tuple[int, ...]:
    """Add frames of ``pool``, each in the middle half of the longest stretch without one, until there are ``count`` or none is left."""
    while len(chosen) < min(count, len(pool)):
        marks = sorted(chosen)
        edges = [(2 * (marks[0] - index.frames[0]), index.frames[0] - 1, marks[0])] if marks else []
        edges += [(b - a, a, b) for a, b in pairwise(marks)]
        edges += [(2 * (index.frames[-1] - marks[-1]), marks[-1], index.frames[-1] + 1)] if marks else []
        for _, low, high in sorted(edges or [(0, index.frames[0] - 1, index.frames[-1] + 1)], reverse=True):
            inside = pool[bisect_left(pool, low + 1) : bisect_left(pool, high)]
            if inside:
                chosen.add(pick(_middle(inside)) if pick else inside[(len(inside) - 1) // 2])
                break
        else:
            break
    return tuple(sorted(chosen))


def _shots(frames: Sequence[int], cuts: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of places in ``frames`` between the cuts, empty ones left out."""
    edges = [0, *(bisect_left(frames, cut) for cut in cuts), len(frames)]
    return [(a, b) for a, b in pairwise(edges) if a < b]


def _middle(frames: Sequence[int]) -> Sequence[int]:
    """The middle half, at least one frame."""
    quarter = len(frames) // 4
    return frames[quarter : len(frames) - quarter] or frames


def _cheapest(index: ClipIndex, frames: Sequence[int]) -> int:
    """The frame with the fewest packets to read from its keyframe; of equals the one nearest to the middle."""
    half = (len(frames) - 1) / 2
    best = min(range(len(frames)), key=lambda at: (index.position[frames[at]] - index.home(frames[at]), abs(at - half)))
    return frames[best]


def _nearest(index: ClipIndex, seconds: float) -> int:
    """The frame on the screen at, or else nearest to, a time in seconds since the first."""
    wanted = index.frames[0] + seconds * index.time_base[1] / index.time_base[0]
    at = bisect_left(index.frames, wanted)
    around = index.frames[max(0, at - 1) : at + 1]
    return min(around, key=lambda pts: abs(pts - wanted))


def _pts(index: ClipIndex, place: int) -> int:
    pts = index.pts[place]
    assert pts is not None
    return pts


STRATEGIES: dict[str, Callable[[ClipIndex, int], tuple[int, ...]]] = {"equal": equal, "uniform": uniform, "content": content, "fast": fast}
