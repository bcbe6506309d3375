"""Finds replies that ended in a loop ("!!!!!!…"), as a model with broken numerics or a tiny one writes them until it is cut off."""

from __future__ import annotations

from collections.abc import Sequence

_UNIT = 200  # the longest unit looked for, in characters or tokens
_COVER = 64  # what the repeats must cover at least
_TIMES = 4


def loop_in(text: Sequence[object]) -> int:
    """The length of the unit whose repeats end the text (or tokens), 0 for none: at least 4 repeats covering at least 64.

    Only a reply that was cut off should be asked: one that ended by itself is not a loop.
    """
    size = len(text)
    for unit in range(1, min(_UNIT, size // _TIMES) + 1):
        need = max(_COVER, _TIMES * unit)
        if need > size:
            break
        if all(text[size - 1 - i] == text[size - 1 - i - unit] for i in range(need - unit)):
            return unit
    return 0
