"""Still pictures come out upright, in RGB, flattened on the stated colour, or are refused with a typed error."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from video import pictures
from video.errors import PictureError
from video.options import FrameOptions
from video.source import FrameStore

WHITE, BLUE = (255, 255, 255), (0, 0, 255)


def arrow() -> np.ndarray:
    """60 × 40, the top left quarter red, the rest grey: no turn or flip of it is itself."""
    pixels = np.full((40, 60, 3), 120, np.uint8)
    pixels[:20, :30] = (255, 0, 0)
    return pixels


STORED = {  # how a camera stores the picture for each EXIF orientation (Exif 2.3, 4.6.4)
    1: lambda a: a, 2: np.fliplr, 3: lambda a: np.rot90(a, 2), 4: np.flipud,
    5: lambda a: np.swapaxes(a, 0, 1), 6: lambda a: np.rot90(a, 1),
    7: lambda a: np.rot90(np.swapaxes(a, 0, 1), 2), 8: lambda a: np.rot90(a, -1),
}  # fmt: skip


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_exif_orientation_is_applied(tmp_path, orientation, kind) -> None:
    image = Image.fromarray(np.ascontiguousarray(STORED[orientation](arrow())))
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"p.{kind.lower()}"
    image.save(path, kind, exif=exif, **({"quality": 95, "subsampling": 0} if kind == "JPEG" else {}))
    pixels = pictures.read(path, 1024, WHITE)
    assert pixels.shape == (40, 60, 3)
    assert np.abs(pixels.astype(int) - arrow()).mean() < 4  # JPEG's own loss; any wrong turn is above 30


def _saved(tmp_path: Path, image: Image.Image, name: str = "p.png", **options: object) -> np.ndarray:
    image.save(tmp_path / name, **options)
    return pictures.read(tmp_path / name, 1024, BLUE)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "I;16", "I"])
def test_every_mode_becomes_8_bit_rgb(tmp_path, mode) -> None:
    if mode == "I;16":
        image = Image.fromarray(np.full((32, 48), 120 * 257, np.uint16))
    elif mode == "I":
        image = Image.fromarray(np.full((32, 48), 120 * 257, np.int32))
    elif mode == "1":
        image = Image.new("L", (48, 32), 255).convert("1")
    elif mode == "P":
        image = Image.new("RGB", (48, 32), (120, 120, 120)).convert(mode, palette=Image.Palette.ADAPTIVE)
    else:
        image = Image.new("RGB", (48, 32), (120, 120, 120)).convert(mode)
    pixels = _saved(tmp_path, image, "p.tif" if mode in ("CMYK", "I") else "p.png")
    assert pixels.shape == (32, 48, 3) and pixels.dtype == np.uint8
    assert np.abs(pixels.astype(int) - (255 if mode == "1" else 120)).max() <= 3


def test_transparency_shows_the_stated_colour(tmp_path) -> None:
    clear = _saved(tmp_path, Image.new("RGBA", (32, 32), (200, 10, 10, 0)))
    assert (clear == BLUE).all()
    half = _saved(tmp_path, Image.new("LA", (32, 32), (0, 128)))
    assert abs(int(half[0, 0, 2]) - 127) <= 1 and half[0, 0, 0] == 0
    palette = Image.new("P", (32, 32), 1)
    palette.putpalette([9, 9, 9, 250, 250, 250])
    assert (_saved(tmp_path, palette, transparency=1) == BLUE).all()
    assert (_saved(tmp_path, Image.new("RGB", (32, 32), (1, 2, 3)), transparency=(1, 2, 3)) == BLUE).all()
    assert (_saved(tmp_path, Image.new("L", (32, 32), 7), transparency=7) == BLUE).all()


def test_the_first_picture_of_an_animation_is_taken(tmp_path) -> None:
    pages = [Image.new("RGB", (32, 32), colour) for colour in ("red", "lime", "blue")]
    pages[0].save(tmp_path / "a.gif", save_all=True, append_images=pages[1:])
    assert (pictures.read(tmp_path / "a.gif", 1024, WHITE)[5, 5] == (255, 0, 0)).all()


def test_large_pictures_are_scaled_and_small_ones_padded(tmp_path) -> None:
    assert _saved(tmp_path, Image.new("RGB", (2000, 1000))).shape == (512, 1024, 3)
    dot = _saved(tmp_path, Image.new("RGB", (1, 1), (9, 9, 9)))
    assert dot.shape == (28, 28, 3) and (dot == 9).all(axis=2).sum() == 1 and (dot[0, 0] == BLUE).all()
    assert _saved(tmp_path, Image.new("RGB", (2000, 25))).shape == (28, 1024, 3)


def _truncated(path: Path) -> None:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (200, 200, 3), np.uint8)).save(out, path.suffix[1:].replace("jpg", "jpeg"))
    path.write_bytes(out.getvalue()[: len(out.getvalue()) // 2])


@pytest.mark.parametrize("name", ["cut.jpg", "cut.png", "text.png", "empty.jpg", "bomb.png", "long.png", "absent.png"])
def test_unusable_pictures_are_refused_by_name(tmp_path, name) -> None:
    path = tmp_path / name
    if name.startswith("cut"):
        _truncated(path)
    elif name.startswith("text"):
        path.write_text("not a picture")
    elif name.startswith("empty"):
        path.write_bytes(b"")
    elif name.startswith("bomb"):
        Image.new("1", (12_000, 9_000)).save(path)
    elif name.startswith("long"):
        Image.new("RGB", (1010, 10)).save(path)
    with pytest.raises(PictureError) as caught:
        pictures.read(path, 1024, WHITE)
    assert caught.value.where == str(path) and caught.value.remedy


def test_names_sort_as_people_count(tmp_path) -> None:
    for name in ("f10.png", "f2.png", "F1.png", "f02b.png", ".hidden.png", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in pictures.listed([tmp_path])] == ["F1.png", "f2.png", "f02b.png", "f10.png"]


def test_a_full_folder_is_thinned_evenly_and_says_so(tmp_path) -> None:
    folder = tmp_path / "frames"
    folder.mkdir()
    for number in range(12):
        Image.new("RGB", (64, 32), (number * 20,) * 3).save(folder / f"f{number}.png")
    with FrameStore(tmp_path / "store", FrameOptions(frames=4, format="png"), workers=1) as store:
        made = store.frames([folder], None)
        one_by_one = store.frames([folder / f"f{number}.png" for number in (10, 2, 1)], None)
        with pytest.raises(PictureError, match="holds no pictures"):
            store.frames([tmp_path / "store" / "locks"], None)
        (folder / "f3.png").write_bytes(b"broken")
        with pytest.raises(PictureError, match=r"f3\.png"):
            store.frames([folder / "f3.png"], None)
    shades = [int(pictures.read(path, 1024, WHITE)[0, 0, 0]) // 20 for path in made.paths]
    assert shades == [0, 4, 7, 11] and "12 pictures, 4 kept" in made.notes[0]
    assert [record.source for record in one_by_one.records] == ["f1.png", "f2.png", "f10.png"]


def test_jpeg_keeps_full_chroma() -> None:
    data = pictures.encode(arrow(), "jpeg", 92)
    assert Image.open(io.BytesIO(data)).layer[0][1:3] == (1, 1)
