"""From stored pixels to upright, square-pixel, even sizes.

Knows numbers only. Try: python -c "from video.geometry import fit; print(fit(3840, 2160, (1, 1), 90, 1024))"
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Fit:
    """How one clip's frames are scaled.

    ``scaled`` is what the scaler makes of the stored picture, before turning; ``upright`` is the written size. Both are (width, height) in
    pixels and even, as chroma-subsampled formats and encoders want them.
    """

    scaled: tuple[int, int]
    upright: tuple[int, int]
    quarter_turns: int  # counter-clockwise, as numpy.rot90 counts


def fit(width: int, height: int, aspect: tuple[int, int], rotation: int, long_side: int) -> Fit:
    """Size of the written frame: sample aspect first, then rotation, then the long side.

    Args:
        width, height: stored picture, pixels.
        aspect: sample (pixel) aspect ratio as (numerator, denominator); (0, 1) or (1, 1) mean square.
        rotation: degrees counter-clockwise that make the picture upright; rounded to a quarter turn.
        long_side: most pixels on the longer written side; a smaller picture is not enlarged.

    A wide pixel widens the picture and a tall one lengthens it, so no stored detail is thrown away before the final scaling.
    """
    ratio = Fraction(*aspect) if aspect[0] > 0 and aspect[1] > 0 else Fraction(1)
    wide, high = Fraction(width), Fraction(height)
    if ratio > 1:
        wide *= ratio
    else:
        high /= ratio
    shrink = min(Fraction(1), Fraction(long_side) / max(wide, high))
    scaled = (even(wide * shrink), even(high * shrink))
    turns = round(rotation / 90) % 4
    return Fit(scaled, scaled if turns % 2 == 0 else (scaled[1], scaled[0]), turns)


def even(length: Fraction) -> int:
    """The nearest even whole number, at least 2; halves go down so that a limit is never passed."""
    return max(2, 2 * int(length / 2 + Fraction(499, 1000)))
