"""Whether one picture is a copy of another (flipped, cropped, blurred, darkened, turned a little): by layout, not by subject.

An encoder tells what a picture shows; copies that are blurred or turned lie farther from their original in it than strangers of the same
kind. So a picture's layout stands beside it: its middle on a grid of 12 × 12, blurred, without what light adds (mean and slopes of each
colour). A picture that is asked for is laid out in many views (mirrored, turned back, zoomed); the closest view counts.
Knows no policy and no document. Try: python -m pipeline index bench-pictures --pictures 500 --queries 20
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from PIL import Image, ImageFilter

from pipeline.vectors import Floats, Vectors

GRID = 12
DIMENSION = 3 * GRID * GRID
COPY = 0.94  # cosine of two layouts from which a picture counts as a copy; chosen on other pictures than measured (docs/pipeline.md)
_SIDE = 64  # pixels of the long side that are looked at
_BLUR = 3  # of them: coarser than what blurring a copy takes away
_KEPT = 0.75  # share of each side that is laid out: turning a copy brings foreign corners
_TURNS = (-15, -10, -5, 0, 5, 10, 15)  # degrees
_ZOOMS = (0.71, 0.75, 0.79, 0.83, 0.87)  # around _KEPT: a copy without its border shows the same middle larger


def _window() -> tuple[Floats, Floats]:
    """(weights of the cells (cells, 1), most in the middle; orthonormal mean and slopes under them (cells, 3))."""
    y, x = (np.mgrid[0:GRID, 0:GRID] - (GRID - 1) / 2) / (GRID / 2)
    weights = np.sqrt(np.clip(1.3 - np.hypot(x, y), 0.02, 1)).reshape(-1, 1)
    light, _ = np.linalg.qr(np.stack([np.ones(GRID * GRID), x.ravel(), y.ravel()], axis=1) * weights)
    return weights.astype(np.float32), light.astype(np.float32)


_WEIGHTS, _LIGHT = _window()


def layout(picture: Image.Image) -> Floats:
    """(DIMENSION,), float32, unit length; zero for a picture of one colour, which is like no other."""
    return _laid(_small(picture), _KEPT)


def layouts(pictures: Sequence[Image.Image]) -> Floats:
    """(len(pictures), DIMENSION)."""
    return np.stack([layout(picture) for picture in pictures]) if pictures else np.zeros((0, DIMENSION), np.float32)


def views(picture: Image.Image) -> Floats:
    """(views, DIMENSION): the picture as it could have been before somebody changed it."""
    small, out = _small(picture), []
    for seen, turn in product((small, small.transpose(Image.Transpose.FLIP_LEFT_RIGHT)), _TURNS):
        turned = seen.rotate(turn, Image.Resampling.BILINEAR) if turn else seen
        out += [_laid(turned, zoom) for zoom in _ZOOMS]
    return np.stack(out)


def closeness(pictures: Sequence[Image.Image], known: Floats) -> Floats:
    """(pictures, known): cosine of each picture's closest view with each layout of `known` (n, DIMENSION)."""
    if not pictures:
        return np.zeros((0, len(known)), np.float32)
    return np.stack([(views(picture) @ known.T).max(0, initial=-1.0) for picture in pictures])


def with_copies(hits: Sequence[tuple[int, float]], picture: Image.Image, laid: Vectors, k: int) -> list[tuple[int, float]]:
    """(picture, score) by an encoder, joined with the copies among the layouts `laid`: each at its higher score, best first."""
    found = dict(hits)
    for row in laid.search(views(picture), k):
        found.update((number, score) for number, score in row if score >= COPY and score > found.get(number, 0.0))
    return sorted(found.items(), key=lambda one: -one[1])


def _small(picture: Image.Image) -> Image.Image:
    scale = _SIDE / max(picture.size)
    size = (max(8, round(picture.width * scale)), max(8, round(picture.height * scale)))
    how = Image.Resampling.BOX if scale < 1 else Image.Resampling.BICUBIC
    return picture.convert("RGB").resize(size, how).filter(ImageFilter.GaussianBlur(_BLUR))


def _laid(small: Image.Image, kept: float) -> Floats:
    w, h, edge = *small.size, (1 - kept) / 2
    box = (edge * w, edge * h, w - edge * w, h - edge * h)
    cells = np.asarray(small.resize((GRID, GRID), Image.Resampling.BOX, box), np.float32).reshape(-1, 3) * _WEIGHTS
    flat: Floats = (cells - _LIGHT @ (_LIGHT.T @ cells)).ravel()
    length = float(np.linalg.norm(flat))
    return flat / length if length > 1.0 else np.zeros(DIMENSION, np.float32)
