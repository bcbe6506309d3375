"""Pictures: alike at every size, unlike for different motions and elements, the two families of scenes apart."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest

from bench.world.creatures import Look
from bench.world.lexicon import ELEMENTS, MOTIONS, NEEDS_ELEMENT
from bench.world.poses import KEY_TIMES, phase_of, pose
from bench.world.render import draw, portrait
from bench.world.scene import ROUGH, WEATHERS, background, make_scene, weathered

LOOK = Look("ellipse", 1, 2, False, 1.0, 4, 1.0)
WILD, ARENA = make_scene("wild", 4), make_scene("arena", 5)


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


def test_bad_weather_comes_over_a_third_of_the_wild_and_never_into_the_arena() -> None:
    seen = [make_scene("wild", seed).weather for seed in range(600)]
    assert abs(sum(map(bool, seen)) / len(seen) - ROUGH) < 0.06
    assert {*WEATHERS, ""} == set(seen)
    assert not any(make_scene("arena", seed).weather for seed in range(100))


@pytest.mark.parametrize("weather", WEATHERS)
def test_weather_takes_something_away_and_the_same_in_every_frame_size(weather: str) -> None:
    scene = next(s for s in map(lambda seed: make_scene("wild", seed), range(200)) if s.weather == weather)
    clear = replace(scene, weather="")
    small, large = (
        np.asarray(draw(LOOK, "breath", "fire", 0.9, scene, size).resize((160, 90)), np.int16) for size in ((320, 180), (640, 360))
    )
    assert np.abs(small - large).mean() < 4
    seen, gone = (np.asarray(draw(LOOK, "breath", "fire", 0.9, s, (160, 90)), np.int16) for s in (scene, clear))
    assert np.abs(seen - gone).mean() > 15
    picture = draw(LOOK, "leap", None, 0.5, clear, (140, 84))
    assert weathered(picture, clear) is picture


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
