"""Makes the bad clips of issue 4, one function per kind, each from a small sound clip whose frames carry their numbers.

By hand: python tests/video/make_clips.py OUT_FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from video.make_clips import Recipe, make

BASE = Recipe("base", width=320, height=180, frames=150, gop=30, preset="superfast")
FRONT = {"movflags": "faststart"}


def sound(path: Path, recipe: Recipe = BASE) -> Path:
    return make(recipe, path)


def remuxed(source: Path, path: Path, keep: Callable[[int], bool] = lambda place: True, options: dict[str, str] | None = None) -> Path:
    """The same packets, some left out, in a new container."""
    with av.open(str(source)) as old, av.open(str(path), "w", options=options or {}) as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for place, packet in enumerate(packet for packet in old.demux(video=0) if packet.size):
            if keep(place):
                packet.stream = stream
                new.mux(packet)
    return path


def _patched(path: Path, change: Callable[[bytearray], object]) -> Path:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    return path


def zero_byte(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("this is not a video\n" * 50)


def garbage(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(50_000))


def no_moov(path: Path) -> None:
    data = sound(path).read_bytes()
    path.write_bytes(data[: data.rindex(b"moov") - 4])


def audio_only(path: Path) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=48000, layout="mono")
        for part in range(40):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
            frame.sample_rate, frame.pts, frame.time_base = 48000, 1024 * part, Fraction(1, 48000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def truncated(path: Path) -> None:
    remuxed(sound(path.with_suffix(".full.mp4")), path, options=FRONT)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * 0.6)])


def zeroed_head(path: Path) -> None:
    def change(data: bytearray) -> None:
        data[:4096] = bytes(4096)

    _patched(sound(path), change)


def zeroed_tail(path: Path) -> None:
    def change(data: bytearray) -> None:
        data[int(len(data) * 0.7) :] = bytes(len(data) - int(len(data) * 0.7))

    _patched(remuxed(sound(path.with_suffix(".full.mp4")), path, options=FRONT), change)


def corrupt_packets(path: Path) -> None:
    def change(data: bytearray) -> None:
        rng = np.random.default_rng(1)
        begin = data.index(b"mdat") + 4 + (len(data) - data.index(b"mdat")) // 3
        for place in rng.integers(begin, begin + (len(data) - begin) // 3, 60):
            data[place] = int(rng.integers(256))

    _patched(remuxed(sound(path.with_suffix(".full.mp4")), path, options=FRONT), change)


def corrupt_hevc(path: Path) -> None:
    """Flipped bytes of which the HEVC decoder only speaks: it marks none of the pictures that it patches up."""

    def change(data: bytearray) -> None:
        rng = np.random.default_rng(10)
        begin = data.index(b"mdat") + 4 + (len(data) - data.index(b"mdat") - 4) // 2
        for place in rng.integers(begin, begin + (len(data) - data.index(b"mdat") - 4) // 4, 60):
            data[place] = int(rng.integers(256))

    _patched(remuxed(sound(path.with_suffix(".full.mp4"), replace(BASE, codec="libx265")), path, options=FRONT), change)


def dropped_packets(path: Path) -> None:
    remuxed(sound(path.with_suffix(".full.mp4")), path, keep=lambda place: place not in (37, 38, 39, 40, 95))


def mid_gop_start(path: Path) -> None:
    remuxed(sound(path.with_suffix(".full.mp4")), path, keep=lambda place: place >= 12)


def raw_stream(path: Path) -> None:
    with av.open(str(sound(path.with_suffix(".full.mp4")))) as old:
        to_bytes = av.bitstream.BitStreamFilterContext("h264_mp4toannexb", old.streams.video[0])
        path.write_bytes(b"".join(bytes(out) for packet in old.demux(video=0) if packet.size for out in to_bytes.filter(packet)))


def wrong_rate(path: Path) -> None:
    """A header that claims a thousand ticks a second where there are 15,360: every time is stretched."""

    def change(data: bytearray) -> None:
        place = data.index(b"mdhd") + 4 + 12
        assert int.from_bytes(data[place : place + 4], "big") == 15360
        data[place : place + 4] = (1000).to_bytes(4, "big")

    _patched(sound(path), change)


def one_frame(path: Path) -> None:
    sound(path, Recipe("one", width=320, height=180, frames=1))


def two_frames(path: Path) -> None:
    sound(path, Recipe("two", width=320, height=180, frames=2))


def odd_size(path: Path) -> None:
    sound(path, Recipe("odd", width=321, height=181, frames=30, chroma=444))


KINDS: dict[str, Callable[[Path], None]] = {
    "zero_byte.mp4": zero_byte,
    "text.mp4": text,
    "garbage.mp4": garbage,
    "no_moov.mp4": no_moov,
    "audio_only.mp4": audio_only,
    "truncated.mp4": truncated,
    "zeroed_head.mp4": zeroed_head,
    "zeroed_tail.mp4": zeroed_tail,
    "corrupt_packets.mp4": corrupt_packets,
    "corrupt_hevc.mp4": corrupt_hevc,
    "dropped_packets.mp4": dropped_packets,
    "dropped_packets.mkv": dropped_packets,
    "mid_gop_start.ts": mid_gop_start,
    "raw.h264": raw_stream,
    "wrong_rate.mp4": wrong_rate,
    "one_frame.mp4": one_frame,
    "two_frames.mp4": two_frames,
    "odd_size.mp4": odd_size,
}


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, kind in KINDS.items():
        kind(out / name)
        print(out / name, flush=True)
