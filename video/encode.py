"""Writes H.264 clips: frames in, an .mp4 out, whole or not at all.

Knows no creatures and no data sets. One thread, so that the same frames give the same bytes.

    python -c "import numpy as np; from video.encode import encode
    print(encode((np.full((90, 160, 3), 8 * i, np.uint8) for i in range(30)), 'out.mp4', 30))"
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from video.errors import OptionError, StoreError

if TYPE_CHECKING:
    from PIL.Image import Image

PRESETS = ("ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow")


def encode(
    frames: Iterable[np.ndarray[Any, Any] | Image],
    path: str | Path,
    fps: int,
    *,
    crf: int = 23,
    gop: int | None = None,
    preset: str = "ultrafast",
    durable: bool = True,
) -> int:
    """Encode RGB frames as H.264, yuv420p, and return how many there were.

    Args:
        frames: uint8 arrays of shape (height, width, 3) or RGB pictures, all of one even size.
        path: the .mp4 to write; its folder must exist. It appears only when it is complete.
        fps: frames a second, 1 to 240. crf: x264's quality, 0 (lossless) to 51. gop: frames between keyframes, default one second.
        preset: x264's trade of speed for size. durable: wait until the disk has it; off for who syncs many clips at once.

    Raises:
        OptionError: a parameter, a frame's shape or no frame at all. StoreError: the file cannot be written.
    """
    _between("fps", fps, 1, 240)
    _between("crf", crf, 0, 51)
    gop = fps if gop is None else gop
    _between("gop", gop, 1, 10_000)
    if preset not in PRESETS:
        raise OptionError(f"unknown preset {preset!r}", remedy=f"choose one of {', '.join(PRESETS)}")
    arrays = map(_rgb, frames)
    first = next(arrays, None)
    if first is None:
        raise OptionError("there is no frame to encode", where=str(path))
    height, width = first.shape[:2]
    if height % 2 or width % 2:
        raise OptionError(f"yuv420p needs an even width and height, got {width}x{height}", where=str(path))
    target = Path(path)
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        count = _write(chain([first], arrays), aside, (width, height), fps, {"crf": str(crf), "preset": preset, "g": str(gop)})
        if durable:
            with aside.open("rb+") as f:
                os.fsync(f.fileno())
        aside.replace(target)
    except OSError as e:  # av.error.FFmpegError of a full disk or a missing folder is one, too
        raise StoreError(
            f"the clip cannot be written: {e.strerror or e}", where=str(path), remedy="free space or choose another folder"
        ) from e
    finally:
        aside.unlink(missing_ok=True)
    return count


def _write(frames: Iterator[np.ndarray[Any, Any]], path: Path, size: tuple[int, int], fps: int, options: dict[str, str]) -> int:
    import av

    count = 0
    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("libx264", rate=fps, options={**options, "x264-params": "threads=1"})
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        for count, array in enumerate(frames, start=1):
            if array.shape != (size[1], size[0], 3):
                got = "x".join(map(str, array.shape[1::-1]))
                raise OptionError(f"frame {count} is {got}, the first is {size[0]}x{size[1]}; all frames of a clip have one size")
            frame = av.VideoFrame.from_ndarray(array, format="rgb24")
            frame.pts, frame.time_base = count - 1, Fraction(1, fps)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return count


def _rgb(frame: np.ndarray[Any, Any] | Image) -> np.ndarray[Any, Any]:
    if not isinstance(frame, np.ndarray) and frame.mode != "RGB":
        frame = frame.convert("RGB")
    array = np.ascontiguousarray(frame)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8:
        raise OptionError(f"a frame is a uint8 array of shape (height, width, 3), got {array.dtype} {array.shape}")
    return array


def _between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise OptionError(f"{name} = {value} is out of range", remedy=f"{low} to {high}")
