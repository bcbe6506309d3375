"""Never a frame other than the one asked for: the number in the picture is read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from video import decoders, pyav
from video.geometry import fit
from video.index import ClipIndex
from video.make_clips import Recipe, make, pictures, read_number
from video.strategies import uniform

NAMES = [
    "h264_closed.mp4", "h264_gop250.mp4", "h264_open.mp4", "h264_vfr.mp4", "h264_editlist.mp4", "h264.mkv",
    "hevc_open.mp4", "hevc_closed.mp4", "hevc_10bit.mp4",
]  # fmt: skip


def decoded(path: Path, index: ClipIndex, targets: tuple[int, ...], decoder: str = "pyav") -> tuple[dict[int, int], decoders.Outcome]:
    seen: dict[int, int] = {}
    shape = fit(index.width, index.height, index.aspect, index.rotation, 320)
    outcome = decoders.load(decoder)(path, index, targets, shape, lambda pts, px, _: seen.__setitem__(pts, read_number(px)), lambda: None)
    return seen, outcome


@pytest.mark.parametrize("name", NAMES)
def test_evenly_spaced_frames_are_the_ones_asked_for(clips, name) -> None:
    recipe, path = clips[name]
    index = pyav.scan(path)
    assert len(index.frames) == recipe.frames - recipe.hidden
    for count in (*range(2, 25, 2), 7, 17, len(index.frames)):
        targets = uniform(index, count)
        seen, outcome = decoded(path, index, targets)
        assert seen == {pts: index.number[pts] + recipe.hidden for pts in targets}
        assert not outcome.damaged and not outcome.notes


@pytest.mark.parametrize("name", ["h264_open.mp4", "hevc_open.mp4"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_frames_of_open_groups_are_the_ones_asked_for(clips, name, data) -> None:
    _, path = clips[name]
    index = pyav.scan(path)
    targets = tuple(sorted(data.draw(st.sets(st.sampled_from(index.frames), min_size=1, max_size=6))))
    seen, outcome = decoded(path, index, targets)
    assert seen == {pts: index.number[pts] for pts in targets} and not outcome.notes


def test_open_groups_are_seen_in_the_index(clips) -> None:
    closed = {name: pyav.scan(path).closed for name, (_, path) in clips.items()}
    assert not closed["h264_open.mp4"] and not closed["hevc_open.mp4"] and not closed["hevc_10bit.mp4"]
    assert closed["h264_closed.mp4"] and closed["hevc_closed.mp4"] and closed["h264.mkv"]


def test_decord_is_used_only_where_it_is_proven_exact(clips) -> None:
    for name, (_, path) in clips.items():
        index = pyav.scan(path)
        chosen, reason = decoders.choose(index, index.frames, "decord")
        proven = name in ("h264_closed.mp4", "h264_gop250.mp4", "h264_vfr.mp4", "hevc_closed.mp4")
        assert (chosen == "decord") == proven, (name, reason)
        if not proven:
            assert "not proven exact" in reason
            assert decoders.choose(index, index.frames, "auto")[0] == "pyav"


def test_auto_takes_decord_for_dense_requests_only(closed) -> None:
    index = pyav.scan(closed)
    assert decoders.choose(index, index.frames[:60], "auto")[0] == "decord"
    assert decoders.choose(index, uniform(index, 10), "auto")[0] == "pyav"


@pytest.mark.parametrize("name", ["h264_closed.mp4", "hevc_closed.mp4", "h264_vfr.mp4"])
def test_decord_gives_the_same_frames(clips, name) -> None:
    _, path = clips[name]
    index = pyav.scan(path)
    seen, outcome = decoded(path, index, index.frames, "decord")
    assert seen == dict(index.number.items())
    assert not outcome.damaged  # where its threads were starved, decord fails and pyav answers: the frames are the same


def test_decord_that_counts_otherwise_is_not_believed(clips) -> None:
    """An edit list hides frames from the index that decord counts: its answer is dropped for the verified one."""
    recipe, path = clips["h264_editlist.mp4"]
    index = pyav.scan(path)
    targets = uniform(index, 5)
    seen, outcome = decoded(path, index, targets, "decord")
    assert seen == {pts: index.number[pts] + recipe.hidden for pts in targets}
    assert "decord was not believed" in outcome.notes[0]


def test_decord_that_decodes_damage_is_not_believed(bad_clips) -> None:
    """The index cannot see flipped bytes, and decord would hand the smeared pictures on as sound."""
    path = bad_clips["corrupt_packets.mp4"]
    index = pyav.scan(path)
    assert decoders.choose(index, index.frames, "decord")[0] == "decord"
    seen, outcome = decoded(path, index, index.frames, "decord")
    wrong = {pts for pts, number in seen.items() if number != index.number[pts]}
    assert wrong and wrong <= outcome.damaged and "its decoder complained" in outcome.notes[0]


def test_index_survives_its_own_file(closed) -> None:
    index = pyav.scan(closed)
    assert ClipIndex.from_json(index.to_json()) == index


def _one(path: Path, long_side: int = 320, decoder: str = "pyav") -> np.ndarray:
    index = pyav.scan(path)
    found: list[np.ndarray] = []
    shape = fit(index.width, index.height, index.aspect, index.rotation, long_side)
    decoders.load(decoder)(path, index, index.frames[:1], shape, lambda _, pixels, __: found.append(pixels), lambda: None)
    return found[0]


@pytest.mark.parametrize("decoder", ["pyav", "decord"])
@pytest.mark.parametrize("rotation", [90, 180, -90])
def test_rotated_clips_come_out_upright(tmp_path, rotation, decoder) -> None:
    plain = _one(make(Recipe("p", width=320, height=180, frames=3), tmp_path / "plain.mp4"))
    turned = _one(make(Recipe("p", width=320, height=180, frames=3, rotation=rotation), tmp_path / "turned.mp4"), decoder=decoder)
    expected = np.rot90(plain, rotation // 90)
    assert turned.shape == expected.shape
    assert np.abs(turned.astype(int) - expected).mean() < 6  # two scalers differ in rounding; a wrong turn differs by 40 and more


def test_wide_pixels_widen_the_picture(tmp_path) -> None:
    path = make(Recipe("w", width=320, height=180, frames=2, aspect=(2, 1)), tmp_path / "wide.mp4")
    assert _one(path, long_side=1024).shape == (180, 640, 3)
    assert _one(path).shape == (90, 320, 3)


@pytest.mark.parametrize(("codec", "depth", "chroma"), [("libx265", 10, 420), ("libx264", 8, 444), ("libx264", 10, 420)])
def test_deep_and_full_chroma_clips_come_out_as_8_bit_rgb(tmp_path, codec, depth, chroma) -> None:
    plain = _one(make(Recipe("p", width=320, height=180, frames=2), tmp_path / "plain.mp4"))
    path = make(Recipe("d", codec=codec, width=320, height=180, frames=12, depth=depth, chroma=chroma), tmp_path / "deep.mp4")
    pixels = _one(path)
    assert pixels.dtype == np.uint8 and pixels.shape == (180, 320, 3) and read_number(pixels) == 0
    assert np.abs(pixels.astype(int) - plain).mean() < 6  # three lossy encodings of one picture


def test_unlabelled_hd_is_bt709(tmp_path) -> None:
    """BT.709 and BT.601 part by 20 levels on strong chroma; players take unlabelled HD for BT.709."""
    recipe = Recipe("hd", width=1280, height=720, frames=1, seed=3)
    _, u, v = next(pictures(recipe))
    pixels = _one(make(recipe, tmp_path / "hd.mp4"), 1280).astype(float)
    bar = pixels[4:12, 4:28].mean(axis=(0, 1))  # a black block: Y 16
    cb, cr = float(u[0, 0]) - 128, float(v[0, 0]) - 128
    expected = np.clip([1.7927 * cr, -0.2132 * cb - 0.5329 * cr, 2.1124 * cb], 0, 255)
    assert np.abs(bar - expected).max() < 8


@pytest.mark.parametrize(
    ("stored", "aspect", "rotation", "side", "upright"),
    [
        ((3840, 2160), (1, 1), 0, 1024, (1024, 576)),
        ((3840, 2160), (1, 1), 90, 1024, (576, 1024)),
        ((1440, 1080), (4, 3), 0, 960, (960, 540)),
        ((321, 181), (1, 1), 0, 1024, (320, 180)),
        ((640, 360), (0, 1), -90, 1023, (360, 640)),
        ((4000, 2), (1, 1), 0, 1024, (1024, 2)),
    ],
)
def test_sizes_are_even_and_upright(stored, aspect, rotation, side, upright) -> None:
    shape = fit(*stored, aspect, rotation, side)
    assert shape.upright == upright and all(length % 2 == 0 for length in shape.scaled)
