"""Strategies are pure functions: checked on indexes made of numbers, without a clip."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from video import pyav, strategies, survey
from video.geometry import fit
from video.index import KEY, ClipIndex
from video.make_clips import Recipe, burst_shots, make


def index_of(frames: int, gop: int = 30, step: int = 256, sizes: dict[int, int] | None = None, times: list[int] | None = None) -> ClipIndex:
    pts = times or [step * i for i in range(frames)]
    return ClipIndex(
        container="mov", codec="h264", pixel_format="yuv420p", width=64, height=36, aspect=(1, 1), rotation=0, time_base=(1, 15360),
        promised=frames, pts=tuple(pts), dts=tuple(pts), flags=tuple(KEY * (i % gop == 0) for i in range(frames)),
        size=tuple((sizes or {}).get(i, 9000 if i % gop == 0 else 1000) for i in range(frames)),
    )  # fmt: skip


@pytest.mark.parametrize("name", strategies.STRATEGIES)
@given(frames=st.integers(1, 200), gop=st.integers(1, 90), count=st.integers(1, 40), steps=st.data())
def test_chosen_frames_exist_in_order_each_once(name, frames, gop, count, steps) -> None:
    gaps = steps.draw(st.lists(st.integers(1, 4000), min_size=frames, max_size=frames))
    times = [sum(gaps[: i + 1]) for i in range(frames)]
    index = index_of(frames, gop, times=times)
    chosen = strategies.STRATEGIES[name](index, count)
    assert list(chosen) == sorted(set(chosen)) and set(chosen) <= set(index.frames)
    assert len(chosen) == min(count, frames) if name != "equal" else 1 <= len(chosen) <= count


def test_equal_is_the_papers_two_frames_a_second_at_most_ten() -> None:
    index = index_of(900)
    assert [index.number[pts] for pts in strategies.equal(index, 10)] == [30 * i for i in range(10)]
    assert [index_of(100).number[pts] for pts in strategies.equal(index_of(100), 10)] == [0, 30, 60, 90]


def test_uniform_takes_the_middles_of_equal_parts() -> None:
    index = index_of(100)
    assert [index.number[pts] for pts in strategies.uniform(index, 4)] == pytest.approx([12, 37, 62, 87], abs=1)


def test_fast_takes_keyframes_only_when_there_are_enough() -> None:
    index = index_of(300, gop=30)
    assert {index.number[pts] % 30 for pts in strategies.fast(index, 10)} == {0}
    assert strategies.fast(index, 11) == strategies.uniform(index, 11)


def test_content_visits_every_shot_that_packet_sizes_show() -> None:
    cuts = (47, 62, 141, 155, 222)
    index = index_of(300, sizes={cut: 8000 for cut in cuts})
    numbers = [index.number[pts] for pts in strategies.content(index, 8)]
    for begin, end in zip((0, *cuts), (*cuts, 300), strict=True):
        assert any(begin <= number < end for number in numbers)


def test_content_fills_the_longest_gap_of_a_clip_without_shots() -> None:
    index = index_of(300)
    numbers = [0, *(index.number[pts] for pts in strategies.content(index, 8)), 299]
    assert max(b - a for a, b in pairwise(numbers)) < 75  # evenly would be 37


@given(st.lists(st.integers(), max_size=60), st.integers(1, 20))
def test_thinning_keeps_order_ends_and_the_limit(items, count) -> None:
    kept = strategies.thinned(items, count)
    assert len(kept) == min(count, len(items))
    if len(items) > count > 1:
        assert kept[0] == items[0] and kept[-1] == items[-1]


def test_short_bursts_are_found_by_content_and_content_hq(tmp_path) -> None:
    shots = burst_shots(2, frames=480, bursts=3)
    path = make(Recipe("s", width=320, height=180, frames=480, shots=shots, grain=9), tmp_path / "shots.mp4")
    index = pyav.scan(path)
    packet = strategies.content(index, 8)
    pixel, _ = survey.survey(path, index, 8, fit(320, 180, (1, 1), 0, 160), lambda *_: None, lambda: None)
    for chosen in (packet, pixel):
        numbers = [index.number[pts] for pts in chosen]
        edges = [0, *shots, 480]
        assert all(any(a <= number < b for number in numbers) for a, b in pairwise(edges)), numbers


def test_a_change_meter_hears_cuts_and_not_motion() -> None:
    meter = survey.ChangeMeter()
    rng = np.random.default_rng(0)
    scene = rng.uniform(60, 180, (9, 16)).astype(np.float32)
    quiet = [meter.difference(scene + rng.normal(0, 1, scene.shape).astype(np.float32)) for _ in range(20)]
    assert not any(quiet)
    assert meter.difference(scene[::-1].copy()) > 3
