"""Still pictures: any picture file to an upright 8-bit RGB array, and arrays to JPEG or PNG files.

Pictures for a model must not surprise it: EXIF orientation is applied, transparency is laid on a stated colour, the first picture of an
animation is taken, deep greys are scaled to 8 bits. Knows no clips. Try: python -m video FOLDER --out DIR
"""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from video.decoders import Pixels
from video.errors import PictureError

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
MOST_PIXELS = 100_000_000  # a larger picture is taken for a decompression bomb
LARGEST_ASPECT = 100
SMALLEST_SIDE = 28  # one token of Qwen2.5-VL; smaller sides are padded


def natural(path: Path) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key that puts f2 before f10; equal names fall back to the path as written."""
    parts = re.findall(r"\d+|\D+", str(path).casefold())
    return [(0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part) for part in parts], str(path)


def listed(paths: list[Path]) -> list[Path]:
    """Picture files in natural order; a folder stands for the pictures in it.

    Raises:
        PictureError: a missing file, or a folder without pictures.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [entry for entry in path.iterdir() if entry.suffix.lower() in SUFFIXES and not entry.name.startswith(".")]
            if not inside:
                raise PictureError("holds no pictures", where=str(path), remedy=f"put files ending in {', '.join(SUFFIXES)} there")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise PictureError("no such picture", where=str(path), remedy="check the path")
    return sorted(found, key=natural)


def read(path: Path, long_side: int, background: tuple[int, int, int]) -> Pixels:
    """One picture: upright, RGB, (height, width, 3) uint8, longest side at most ``long_side``, shortest at least 28 by padding.

    Raises:
        PictureError: unreadable, truncated, too large, or more than 100 times longer than wide.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's own warnings on metadata and size: the size is checked below
            with Image.open(path) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    what = f"is {width}x{height}, above the limit of {MOST_PIXELS // 10**6} megapixels"
                    raise PictureError(what, where=str(path), remedy="scale it down first")
                if max(width, height) > LARGEST_ASPECT * min(width, height):
                    what = f"is {width}x{height}, longer than {LARGEST_ASPECT} times its width"
                    raise PictureError(what, where=str(path), remedy="crop it or leave it out")
                image.seek(0)
                image.load()
                upright = ImageOps.exif_transpose(image)
                small = _scaled(_flat(upright, background), long_side)
    except PictureError:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError, IndexError, Image.DecompressionBombError) as error:
        what = f"cannot be read as a picture ({str(error) or type(error).__name__})"
        raise PictureError(what, where=str(path), remedy="save it again as JPEG or PNG") from error
    return _padded(np.asarray(small, dtype=np.uint8), background)


def encode(pixels: Pixels, format: str, quality: int) -> bytes:
    """A JPEG without chroma subsampling, or a PNG, of (height, width, 3) RGB."""
    out = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(pixels))
    if format == "png":
        image.save(out, "PNG", compress_level=3)
    else:
        image.save(out, "JPEG", quality=quality, subsampling=0)
    return out.getvalue()


def size(path: Path) -> tuple[int, int]:
    """Width and height of a written frame, pixels, read from its header."""
    with Image.open(path) as image:
        return image.size


def _flat(image: Image.Image, background: tuple[int, int, int]) -> Image.Image:
    """RGB without transparency, whatever the mode was."""
    if image.mode.startswith("I") or image.mode == "F":
        deep = np.asarray(image).astype(np.float64)
        top = 65535.0 if image.mode.startswith("I") and deep.max(initial=0) > 255 else max(255.0, float(deep.max(initial=0)))
        return Image.fromarray(np.clip(np.rint(deep * (255.0 / top)), 0, 255).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        layered = image.convert("RGBA")
        ground = Image.new("RGBA", layered.size, (*background, 255))
        return Image.alpha_composite(ground, layered).convert("RGB")
    return image.convert("RGB")


def _scaled(image: Image.Image, long_side: int) -> Image.Image:
    shrink = long_side / max(image.size)
    if shrink >= 1:
        return image
    wanted = (max(1, round(image.width * shrink)), max(1, round(image.height * shrink)))
    return image.resize(wanted, Image.Resampling.LANCZOS, reducing_gap=3.0)


def _padded(pixels: Pixels, background: tuple[int, int, int]) -> Pixels:
    height, width = pixels.shape[:2]
    if min(height, width) >= SMALLEST_SIDE:
        return pixels
    high, wide = max(height, SMALLEST_SIDE), max(width, SMALLEST_SIDE)
    ground = np.empty((high, wide, 3), dtype=np.uint8)
    ground[:] = background
    top, left = (high - height) // 2, (wide - width) // 2
    ground[top : top + height, left : left + width] = pixels
    return ground
