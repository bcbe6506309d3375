"""The encoder: what goes in comes out, of the asked shape, or nothing appears at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from video.encode import encode
from video.errors import OptionError, StoreError


def frames(count: int, size: tuple[int, int] = (64, 48)) -> list[np.ndarray[Any, Any]]:
    return [np.full((size[1], size[0], 3), 40 + 10 * i, np.uint8) for i in range(count)]


def test_frames_come_back_in_order(tmp_path: Path) -> None:
    clip = tmp_path / "a.mp4"
    assert encode(frames(12), clip, 24, gop=5, crf=10) == 12
    with av.open(str(clip)) as container:
        stream = container.streams.video[0]
        back = list(container.decode(stream))
        assert (stream.codec_context.name, stream.codec_context.pix_fmt, stream.average_rate) == ("h264", "yuv420p", 24)
    assert [round(f.time * 24) for f in back] == list(range(12))
    assert [i for i, f in enumerate(back) if f.key_frame] == [0, 5, 10]
    for i, f in enumerate(back):
        assert abs(int(f.to_ndarray(format="rgb24").mean()) - (40 + 10 * i)) < 4
    data = clip.read_bytes()
    assert data.find(b"moov") < data.find(b"mdat")  # the index stands in front
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]


def test_pictures_and_arrays_are_the_same_and_so_are_the_bytes(tmp_path: Path) -> None:
    encode(frames(4), tmp_path / "a.mp4", 10)
    encode((Image.fromarray(f).convert("RGBA") for f in frames(4)), tmp_path / "b.mp4", 10, durable=False)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_a_failure_leaves_the_old_clip_and_no_other_file(tmp_path: Path) -> None:
    def broken() -> Iterator[np.ndarray[Any, Any]]:
        yield from frames(3)
        raise RuntimeError("the artist left")

    clip = tmp_path / "a.mp4"
    clip.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="the artist left"):
        encode(broken(), clip, 10)
    with pytest.raises(OptionError, match="frame 2 is 32x32, the first is 64x48"):
        encode([*frames(1), *frames(1, (32, 32))], clip, 10)
    assert clip.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"fps": 0}, "fps = 0"), ({"crf": 52}, "crf = 52"), ({"gop": 0}, "gop = 0"), ({"preset": "warp"}, "unknown preset 'warp'")],
)
def test_options_outside_their_range(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        encode(frames(2), tmp_path / "a.mp4", **{"fps": 10, **options})


def test_frames_that_cannot_be_a_clip(tmp_path: Path) -> None:
    for bad, message in (
        ([], "no frame"),
        (frames(1, (63, 48)), "even width and height, got 63x48"),
        ([np.zeros((4, 4), np.uint8)], "shape"),
        ([np.zeros((4, 4, 3), np.float32)], "float32"),
    ):
        with pytest.raises(OptionError, match=message):
            encode(bad, tmp_path / "a.mp4", 10)
    assert not list(tmp_path.iterdir())
    with pytest.raises(StoreError, match="cannot be written"):
        encode(frames(1), tmp_path / "missing" / "a.mp4", 10)
