"""Makes clips whose every frame carries its own number, for the benchmark and the tests.

The number stands as 16 black or white blocks, most significant bit first, in the top left corner, so a decoded picture can be asked
which frame it is. Behind it textures move, one per shot. Knows nothing of the readers that it is made to check.

    python -m video.make_clips OUT_FOLDER --size 640x360
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
BITS = 16
TICKS = 15360  # time base of every clip: divides by 24, 25, 30, 50, 60 and 120


@dataclass(frozen=True)
class Recipe:
    """One clip.

    ``gop`` frames between keyframes; ``open_gop`` lets pictures reach back over a keyframe; ``depth`` bits a sample; ``chroma`` 420 or 444;
    ``shots`` are first frames of new shots; ``uneven`` gives a variable frame rate; ``hidden`` leading frames are cut by an edit list;
    ``grain`` is the strength of fresh noise in grey levels, 0 to 20.
    """

    name: str
    codec: str = "libx264"
    width: int = 640
    height: int = 360
    fps: int = 60
    frames: int = 300
    gop: int = 60
    open_gop: bool = False
    depth: int = 8
    chroma: int = 420
    shots: tuple[int, ...] = ()
    uneven: bool = False
    hidden: int = 0
    rotation: int = 0
    aspect: tuple[int, int] = (1, 1)
    preset: str = "veryfast"
    grain: int = 0
    seed: int = 0
    options: dict[str, str] = field(default_factory=dict)

    @property
    def times(self) -> list[int]:
        """Presentation time of each frame in ticks; uneven clips drop to a half and a quarter of their rate in turns."""
        step = TICKS // self.fps
        stretch = [(1, 2, 4)[(i // 50) % 3] for i in range(self.frames)] if self.uneven else [1] * self.frames
        return [step * sum(stretch[:i]) - step * self.hidden for i in range(self.frames)]


def make(recipe: Recipe, path: Path) -> Path:
    """Encode one clip to ``path``; the container follows the suffix."""
    with av.open(str(path), "w", options={"avoid_negative_ts": "disabled"} if recipe.hidden else {}) as container:
        stream: Any = container.add_stream(recipe.codec, rate=recipe.fps)
        stream.width, stream.height = recipe.width, recipe.height
        stream.pix_fmt = f"yuv{recipe.chroma}p" + ("10le" if recipe.depth == 10 else "")
        stream.time_base = stream.codec_context.time_base = Fraction(1, TICKS)
        stream.codec_context.sample_aspect_ratio = Fraction(*recipe.aspect)
        stream.options = _encoder_options(recipe)
        if recipe.rotation:
            stream.set_display_rotation(recipe.rotation)
        for planes, time in zip(pictures(recipe), recipe.times, strict=True):
            frame = _frame(planes, stream.pix_fmt, recipe)
            frame.pts, frame.time_base = time, Fraction(1, TICKS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def pictures(recipe: Recipe) -> Iterator[tuple[Bytes, Bytes, Bytes]]:
    """Luma and two chroma planes of each frame, 8 bit; the texture changes at every shot and moves a little in between."""
    starts = [0, *recipe.shots, recipe.frames]
    divide = 1 if recipe.chroma == 444 else 2
    grain = _grain(recipe.width, recipe.height, recipe.grain)
    for shot, (begin, end) in enumerate(pairwise(starts)):
        texture = _texture(recipe.width, recipe.height, 1000 * recipe.seed + shot)
        rng = np.random.default_rng([recipe.seed, shot])
        tint, (dx, dy) = rng.integers(64, 192, 2), rng.integers(-3, 4, 2)
        planes = [np.full((-(-recipe.height // divide), -(-recipe.width // divide)), value, np.uint8) for value in tint]
        for number in range(begin, end):
            right, down = _swing(int(dx) * (number - begin), recipe.width), _swing(int(dy) * (number - begin), recipe.height)
            luma = texture[down : down + recipe.height, right : right + recipe.width].copy()
            if recipe.grain:  # fresh in every frame, so that the encoder has something to do and the decoder too
                left, top = rng.integers(0, recipe.width), rng.integers(0, recipe.height)
                luma += grain[top : top + recipe.height, left : left + recipe.width]  # texture and grain stay within 8 bits together
            stamp(luma, number)
            yield luma, planes[0], planes[1]


def stamp(luma: Bytes, number: int) -> None:
    """Write a frame's number into its top left corner; blocks are a fortieth of the width."""
    block = max(4, luma.shape[1] // 40)
    for bit in range(BITS):
        luma[:block, bit * block : (bit + 1) * block] = 235 if number >> (BITS - 1 - bit) & 1 else 16


def read_number(pixels: Bytes) -> int:
    """The number in a decoded frame, (height, width, 3) or (height, width), of any size that keeps the proportions."""
    grey = pixels if pixels.ndim == 2 else pixels.mean(axis=2)
    block = grey.shape[1] / 40
    number = 0
    for bit in range(BITS):
        part = grey[int(block * 0.25) : max(1, int(block * 0.75)), int(block * (bit + 0.25)) : int(block * (bit + 0.75)) + 1]
        number = 2 * number + int(part.mean() > 127)
    return number


def burst_shots(seed: int, frames: int = 1020, bursts: int = 4, fps: int = 60) -> tuple[int, ...]:
    """First frames of shots: ``bursts`` short shots of 0.25 to 0.5 s strewn over a clip of otherwise long ones."""
    rng = np.random.default_rng(seed)
    part = frames // bursts
    starts: list[int] = []
    for burst in range(bursts):
        long = int(rng.integers(fps // 4, fps // 2 + 1))
        begin = burst * part + int(rng.integers(fps // 2, part - long - fps // 2))
        starts += [begin, begin + long]
    return tuple(starts)


def sound_recipes(width: int, height: int, frames: int, preset: str = "veryfast") -> Sequence[Recipe]:
    """The kinds of sound clip that no frame may be wrong on."""
    common: dict[str, Any] = {"width": width, "height": height, "frames": frames, "preset": preset}
    return (
        Recipe("h264_closed.mp4", **common),
        Recipe("h264_gop250.mp4", gop=250, **common),
        Recipe("h264_open.mp4", open_gop=True, **common),
        Recipe("h264_vfr.mp4", uneven=True, **common),
        Recipe("h264_editlist.mp4", hidden=min(45, frames // 3), **common),
        Recipe("h264.mkv", **common),
        Recipe("hevc_open.mp4", codec="libx265", open_gop=True, **common),
        Recipe("hevc_closed.mp4", codec="libx265", **common),
        Recipe("hevc_10bit.mp4", codec="libx265", open_gop=True, depth=10, **common),
    )


def _swing(way: int, length: int) -> int:
    """There and back between 0 and ``length``: a texture that turns around never jumps, so a shot holds no hidden cut."""
    return length - abs(way % (2 * length) - length)


def _encoder_options(recipe: Recipe) -> dict[str, str]:
    if recipe.codec == "libx264":
        params = f"keyint={recipe.gop}:min-keyint={recipe.gop}:scenecut=0:bframes=3:b-pyramid=normal:open-gop={int(recipe.open_gop)}"
        return {"preset": recipe.preset, "crf": "23", "x264-params": params, **recipe.options}
    if recipe.codec == "libx265":
        params = f"keyint={recipe.gop}:min-keyint={recipe.gop}:scenecut=0:bframes=4:open-gop={int(recipe.open_gop)}:log-level=none"
        if recipe.width < 1000:  # its thread pool would spin on a picture of few blocks
            params += ":pools=1:frame-threads=1"
        return {"preset": recipe.preset, "crf": "28", "x265-params": params, **recipe.options}
    return dict(recipe.options)


def _frame(planes: tuple[Bytes, Bytes, Bytes], pixel_format: str, recipe: Recipe) -> av.VideoFrame:
    frame = av.VideoFrame(recipe.width, recipe.height, pixel_format)
    for plane, values in zip(frame.planes, planes, strict=True):
        deep = recipe.depth > 8
        memory: Any = plane  # has the buffer protocol, which its stub does not say
        rows = np.frombuffer(memory, np.uint16 if deep else np.uint8).reshape(plane.height, -1)
        rows[:, : values.shape[1]] = values.astype(np.uint16) << (recipe.depth - 8) if deep else values
    return frame


@cache
def _texture(width: int, height: int, seed: int) -> Bytes:
    """Coarse noise with fine grain, twice the frame's size both ways so that a moving window never leaves it."""
    rng = np.random.default_rng(seed)
    high, wide = 2 * height, 2 * width
    total = np.zeros((high, wide), np.float32)
    for cell, strength in ((width // 8, 60.0), (width // 32, 40.0), (width // 128 or 1, 20.0)):
        coarse = rng.random((high // cell + 2, wide // cell + 2), np.float32)
        total += strength * np.repeat(np.repeat(coarse, cell, 0), cell, 1)[:high, :wide]
    total += rng.integers(20, 120) + 6 * rng.random((high, wide), np.float32)
    result: Bytes = np.clip(total, 16, 235).astype(np.uint8)
    return result


@cache
def _grain(width: int, height: int, strength: int) -> Bytes:
    noise: Bytes = np.random.default_rng(7).integers(0, strength + 1, (2 * height, 2 * width), np.uint8)
    return noise


def main() -> None:
    parser = argparse.ArgumentParser(description="make the sound clips, a number in each frame")
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", default="640x360")
    parser.add_argument("--frames", type=int, default=300)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    width, height = (int(part) for part in arguments.size.split("x"))
    for recipe in sound_recipes(width, height, arguments.frames):
        print(make(recipe, arguments.out / recipe.name), flush=True)


if __name__ == "__main__":
    main()
