"""Copies of pictures by their layout: all transformations are found, strangers are not, and odd pictures have a layout too."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from tests_pipeline import noise

from pipeline.copies import COPY, DIMENSION, closeness, layout, layouts, views
from pipeline.safety.variants import TRANSFORMATIONS, made_picture

KNOWN = [made_picture(i, 96) for i in range(6)]


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_a_copy_is_closest_to_its_original(name: str) -> None:
    near = closeness([TRANSFORMATIONS[name](picture) for picture in KNOWN], layouts(KNOWN))
    assert near.shape == (6, 6) and (near.argmax(1) == np.arange(6)).all() and near.diagonal().min() >= COPY
    assert near[~np.eye(6, dtype=bool)].max() < COPY


def test_a_turned_copy_of_a_wide_picture_is_found() -> None:
    wide = [made_picture(40 + i, 160).resize((200, 110)) for i in range(4)]
    assert closeness([TRANSFORMATIONS["rotate 12"](one) for one in wide], layouts(wide)).diagonal().min() >= COPY


@pytest.mark.parametrize("size", [(1, 1), (1, 400), (400, 1), (3, 7)])
def test_odd_sizes_and_single_colours(size: tuple[int, int]) -> None:
    flat = Image.new("RGB", size, (200, 10, 10))
    assert layout(flat).shape == (DIMENSION,) and not layout(flat).any(), "one colour is like no other picture"
    assert views(flat).shape[1] == DIMENSION and closeness([flat], layouts([flat, noise(1)])).max() < COPY
    length = float(np.linalg.norm(layout(noise(3, size))))
    assert np.isfinite(length) and (length < 1e-6 or abs(length - 1) < 1e-4)


def test_nothing_has_no_layout() -> None:
    assert layouts([]).shape == (0, DIMENSION) and closeness([], layouts(KNOWN)).shape == (0, 6)
    assert closeness(KNOWN[:2], layouts([])).shape == (2, 0)
