"""The fourteen motion programmes: key poses at t = 0.1, 0.5 and 0.9, and what lies between them.

Knows no pixels. Lengths are units of the creature's own size (its body is about 32 long), y grows downward.

    python -c "from bench.world.poses import pose; print(pose('leap', 0.5))"
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi
from typing import Final

KEY_TIMES: Final = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class Pose:
    """Offset, body rotation (degrees, nose down is positive), tail angle (180 straight back, 90 up, 0 forward),
    head lift and reach, mouth opening, wing lift, and `turn`: 1 faces right, -1 faces left."""

    dx: float
    dy: float
    rotation: float
    tail: float
    lift: float
    reach: float
    mouth: float
    wing: float
    turn: float


_Row = tuple[float, float, float, float, float, float, float, float]
_KEYS: Final[dict[str, tuple[_Row, _Row, _Row]]] = {
    "tail_left": ((0, 0, 0, 95, 0, 0, 0, 0), (0, 0, 0, 145, 0, 0, 0, 0), (0, 0, 0, 200, 0, 0, 0, 0)),
    "tail_right": ((-2, 0, 0, 155, 0, 0, 0, 0), (-2, 0, 0, 95, 0, 0, 0, 0), (-2, 0, 0, 35, -6, 0, 0, 0)),
    "leap": ((-24, 0, -10, 180, 0, 0, 0, 0), (4, -19, -15, 190, 0, 0, 0, 0), (34, 0, 10, 170, 0, 0, 0, 0)),
    "charge": ((-24, 0, 6, 170, -9, 4, 0, 0), (6, 0, 6, 175, -9, 4, 0, 0), (36, 0, 6, 170, -9, 4, 0, 0)),
    "breath": ((-14, 0, 0, 170, 0, 0, 2, 0), (-14, 0, 0, 170, 0, 2, 6, 0), (-14, 0, 0, 170, 0, 2, 7, 0)),
    "ball": ((-14, 0, 0, 170, 2, 0, 3, 0), (-14, 0, 0, 170, 0, 2, 6, 0), (-14, 0, 0, 170, 0, 0, 3, 0)),
    "slam": ((0, 0, 0, 170, 0, 0, 0, 0), (0, -9, -42, 195, 2, 0, 0, 0), (0, 4, 5, 165, -5, 0, 0, 0)),
    "spin": ((0, 0, 0, 180, 0, 0, 0, 0), (0, 0, 0, 180, 0, 0, 0, 0), (0, 0, 0, 180, 0, 0, 0, 0)),
    "roar": ((0, 0, 0, 170, 3, 0, 2, 0), (0, 0, -8, 170, 12, -3, 7, 0), (0, 0, -8, 170, 12, -3, 7, 0)),
    "dive": ((-22, -8, -15, 190, 0, 0, 0, 8), (-4, -21, -4, 180, 0, 0, 0, 13), (26, -6, 42, 180, 0, 0, 0, 6)),
    "dig": ((0, 3, 8, 170, -4, 0, 0, 0), (0, 18, 15, 160, -6, 0, 0, 0), (0, 38, 15, 150, -6, 0, 0, 0)),
    "rock": ((-12, 0, -6, 170, 2, 0, 0, 0), (-12, 0, 0, 170, 0, 2, 0, 0), (-12, 0, 2, 170, 0, 0, 0, 0)),
    "bite": ((0, 0, 0, 170, 0, -2, 1, 0), (4, 0, 4, 170, 0, 11, 10, 0), (8, 0, 4, 170, -2, 18, 1, 0)),
    "back": ((24, 0, 0, 170, 0, 0, 0, 0), (-2, -15, 10, 150, 0, -2, 0, 0), (-30, 0, 0, 170, 0, -2, 0, 0)),
}


def phase_of(t: float) -> float:
    """Time in [0, 1] → position between the key poses in [0, 2]; it rests a moment at both ends."""
    return min(2.0, max(0.0, (t - KEY_TIMES[0]) / (KEY_TIMES[1] - KEY_TIMES[0])))


def between(u: float, first: float, middle: float, last: float) -> float:
    """The value at u of [0, 2] on the polyline through three values."""
    return first + (middle - first) * u if u < 1 else middle + (last - middle) * (u - 1)


def pose(motion: str, t: float) -> Pose:
    """The pose of a motion at time t; KeyError for an unknown motion."""
    u = phase_of(t)
    values = [between(u, *keys) for keys in zip(*_KEYS[motion], strict=True)]
    if motion in ("leap", "back", "dive"):  # a jump is an arc, not a tent
        first, middle, last = (row[1] for row in _KEYS[motion])
        base = first + (last - first) * u / 2
        values[1] = base + (middle - (first + last) / 2) * (1 - (u - 1) ** 2)
    dx, dy, rotation, tail, lift, reach, mouth, wing = values
    return Pose(dx, dy, rotation, tail, lift, reach, mouth, wing, cos(pi * u) if motion == "spin" else 1.0)
