"""Any picture opens as upright RGB, or is one typed error."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from models.errors import DataError
from pipeline.images import BadPicture, load, prepare


def save(tmp_path: Path, picture: Image.Image, name: str, **options: object) -> Path:
    picture.save(tmp_path / name, **options)  # type: ignore[arg-type]
    return tmp_path / name


def mean(picture: Image.Image) -> tuple[int, ...]:
    return tuple(int(x) for x in np.asarray(picture, np.float64).mean((0, 1)).round())


def test_modes(tmp_path: Path) -> None:
    red = Image.new("RGB", (40, 30), (250, 0, 0))
    sixteen = Image.fromarray(np.full((30, 40), 0x8000, np.uint16))
    animated = save(tmp_path, red, "a.gif", save_all=True, append_images=[Image.new("RGB", (40, 30), (0, 0, 250))])
    clear = Image.new("P", (40, 30), 0)
    clear.putpalette([0, 250, 0] * 256)
    cases = {
        save(tmp_path, red.convert("CMYK"), "cmyk.jpg", quality=100): (250, 0, 0),
        save(tmp_path, sixteen, "16.png"): (127, 127, 127),
        save(tmp_path, sixteen, "16.tif"): (127, 127, 127),
        animated: (250, 0, 0),
        save(tmp_path, clear, "p.png", transparency=0): (255, 255, 255),
        save(tmp_path, Image.new("RGBA", (40, 30), (0, 0, 0, 0)), "rgba.webp", lossless=True): (255, 255, 255),
        save(tmp_path, Image.new("LA", (40, 30), (9, 255)), "la.png"): (9, 9, 9),
        save(tmp_path, Image.new("1", (40, 30), 1), "1.bmp"): (255, 255, 255),
    }
    for path, colour in cases.items():
        made = load(path)
        assert made.mode == "RGB" and made.size == (40, 30)
        assert all(abs(a - b) <= 6 for a, b in zip(mean(made), colour, strict=True)), path.name


def test_orientation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert load(save(tmp_path, Image.new("RGB", (40, 30)), "x.jpg", exif=exif)).size == (30, 40)


def test_one_pixel_and_slivers_are_padded_before_they_are_sent(tmp_path: Path) -> None:
    one = prepare(save(tmp_path, Image.new("RGB", (1, 1)), "1.png"), tmp_path / "store")
    assert load(one.path).size == (28, 28)
    sliver = prepare(save(tmp_path, Image.new("RGB", (2000, 1)), "s.png"), tmp_path / "store")
    width, height = load(sliver.path).size
    assert width <= 50 * height
    assert prepare(tmp_path / "1.png", tmp_path / "store").digest == one.digest


def claiming(width: int, height: int) -> bytes:
    """A PNG whose header claims a size."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    chunks = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))
    )
    return b"\x89PNG\r\n\x1a\n" + chunks


@pytest.mark.parametrize("size", [(20_000, 20_000), (13_000, 10_000), (2**31 - 1, 2**31 - 1)])
def test_huge_pictures_are_refused_before_they_are_decoded(tmp_path: Path, size: tuple[int, int]) -> None:
    (tmp_path / "huge.png").write_bytes(claiming(*size))
    with pytest.raises(BadPicture, match="pixels"):
        load(tmp_path / "huge.png")


def test_large_pictures_are_scaled(tmp_path: Path) -> None:
    assert load(save(tmp_path, Image.new("L", (3000, 1500)), "big.jpg"), 512).size == (512, 256)


def test_what_is_no_picture(tmp_path: Path) -> None:
    whole = save(tmp_path, Image.effect_noise((200, 200), 90).convert("RGB"), "x.jpg").read_bytes()
    for name, content in {"cut.jpg": whole[:2000], "text.png": b"hello", "empty.png": b"", "head.png": b"\x89PNG\r\n\x1a\n"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadPicture, match=name):
            load(tmp_path / name)
    for path in (tmp_path / "none.png", tmp_path):
        with pytest.raises(DataError):
            load(path)
