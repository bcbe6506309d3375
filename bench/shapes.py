"""Whether what a JSON file holds has the shape that its reader counts on: a run folder may have been edited by hand.

A shape is a type (`float` takes whole numbers, `int` no booleans), several types, ``[shape]`` for a list, ``{str: shape}`` for a mapping
with any keys, or ``{"key": shape}`` for one that has at least these keys.
Try: python -c "from bench.shapes import misfit; print(misfit({'k': [1, 'x']}, {'k': [int]}))"
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

TEXT_OR_NOTHING = (str, NoneType)


def misfit(value: object, shape: Any, place: str = "") -> str:
    """Where the value first differs from the shape, in words; "" where it fits."""
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _said(place, value, "a list")
        return next(filter(None, (misfit(one, shape[0], f"{place}[{i}]") for i, one in enumerate(value))), "")
    if isinstance(shape, Mapping):
        if not isinstance(value, dict):
            return _said(place, value, "a mapping")
        if str in shape:
            return next(filter(None, (misfit(one, shape[str], f"{place}.{key}") for key, one in value.items())), "")
        if lacks := [key for key in shape if key not in value]:
            return f"{place.lstrip('.') or 'it'} lacks {', '.join(lacks)}"
        return next(filter(None, (misfit(value[key], inner, f"{place}.{key}") for key, inner in shape.items())), "")
    kinds = shape if isinstance(shape, tuple) else (shape,)
    if any(_is(value, kind) for kind in kinds):
        return ""
    return _said(place, value, " or ".join("nothing" if kind is NoneType else f"a {kind.__name__}" for kind in kinds))


def _is(value: object, kind: type) -> bool:
    if isinstance(value, bool):
        return kind in (bool, object)
    return isinstance(value, (int, float) if kind is float else kind)


def _said(place: str, value: object, due: str) -> str:
    return f"{place.lstrip('.') or 'it'} is {str(value)[:40]!r}, not {due}"
