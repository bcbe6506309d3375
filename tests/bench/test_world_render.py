"""Pictures: alike at every size, unlike for different motions and elements, the two families of scenes apart."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from bench.world.creatures import Look
from bench.world.lexicon import ELEMENTS, MOTIONS, NEEDS_ELEMENT
from bench.world.poses import KEY_TIMES, phase_of, pose
from bench.world.render import draw, portrait
from bench.world.scene import background, make_scene

LOOK = Look("ellipse", 1, 2, False, 1.0, 4, 1.0)
WILD, ARENA = make_scene("wild", 5), make_scene("arena", 5)


def film(motion: str, element: str | None, size: tuple[int, int] = (140, 84)) -> np.ndarray:
    return np.stack([np.asarray(draw(LOOK, motion, element, t, WILD, size), dtype=np.int16) for t in KEY_TIMES])


def test_motions_and_elements_differ_in_three_small_frames() -> None:
    films = {(m, e): film(m, e) for m in MOTIONS for e in (None, *ELEMENTS) if e is not None or m not in NEEDS_ELEMENT}
    for (a, x), (b, y) in combinations(films.items(), 2):
        strong = (np.abs(x - y).max(axis=-1) > 40).sum()
        assert strong > 60, (a, b, strong)


@pytest.mark.parametrize("motion", ["leap", "breath", "spin"])
def test_sizes_show_the_same_picture(motion: str) -> None:
    small = film(motion, "fire", (160, 90))
    for factor, size in ((2, (320, 180)), (4, (640, 360))):
        large = [draw(LOOK, motion, "fire", t, WILD, size).reduce(factor) for t in KEY_TIMES]
        assert np.abs(np.stack([np.asarray(i, np.int16) for i in large]) - small).mean() < 4


def test_drawing_is_repeatable_and_leaves_the_background_alone() -> None:
    clean = background(WILD, (280, 168)).tobytes()
    assert draw(LOOK, "dig", "ice", 0.7, WILD, (140, 84)).tobytes() == draw(LOOK, "dig", "ice", 0.7, WILD, (140, 84)).tobytes()
    assert background(WILD, (280, 168)).tobytes() == clean
    assert draw(LOOK, "dig", "ice", 0.7, WILD, (140, 84), glow=1) != draw(LOOK, "dig", "ice", 0.7, WILD, (140, 84))


def test_families_and_seeds_look_different() -> None:
    pictures = {portrait(LOOK, s, (140, 84)).tobytes() for s in (WILD, ARENA, make_scene("wild", 6), make_scene("arena", 6))}
    assert len(pictures) == 4


def test_motion_is_continuous_and_rests_at_its_ends() -> None:
    assert (phase_of(0.0), phase_of(0.1), phase_of(0.5), phase_of(1.0)) == (0.0, 0.0, 1.0, 2.0)
    for motion in MOTIONS:
        steps = [pose(motion, i / 200) for i in range(201)]
        assert max(abs(a.dx - b.dx) + abs(a.dy - b.dy) for a, b in pairwise(steps)) < 2
        assert pose(motion, 0.0) == pose(motion, 0.1) and pose(motion, 0.9) == pose(motion, 1.0)
    with pytest.raises(KeyError):
        pose("sing", 0.5)


def test_the_whole_creature_stays_in_sight_but_for_jumps_and_burrows() -> None:
    for motion in set(MOTIONS) - {"dig"}:
        for t in KEY_TIMES:
            p = pose(motion, t)
            assert 58 + 5 + 1.3 * (p.dx + 20) < 160 and WILD.ground - 1.3 * (20 - p.dy) > 15
