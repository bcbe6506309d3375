"""Opening any picture that a user has: upright RGB of a bounded size, or one typed error.

EXIF orientation is applied, transparency is laid on white, 16 bits become 8, CMYK becomes RGB, of an animation the first frame counts.
Knows no encoder. Try: python -c "from pathlib import Path; from pipeline.images import *; print(load(Path('x.png')).size)"
"""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from models.errors import DataError
from models.requests import Picture

MAX_PIXELS = 120_000_000  # of a decoded picture; a JPEG is decoded at a half, a quarter or an eighth where that is enough
LONG_SIDE = 2048  # pixels of what is handed out
_BACKGROUND = (255, 255, 255)


class BadPicture(DataError):
    """A file that cannot be opened as a picture."""


def load(path: Path, long_side: int = LONG_SIDE) -> Image.Image:
    """Upright RGB, at most `long_side` pixels long. Raises BadPicture: missing, no picture, truncated, too large."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd EXIF blocks, palette transparency, size warnings: decided below
            with Image.open(path) as opened:
                return _decode(opened, path, long_side)
    except FileNotFoundError:
        raise BadPicture("there is no such picture", where=str(path)) from None
    except UnidentifiedImageError:
        raise BadPicture("is no picture of a known format", where=str(path), remedy="give a PNG, JPEG, WebP, GIF, BMP or TIFF") from None
    except Image.DecompressionBombError:
        raise BadPicture("has too many pixels", where=str(path), remedy=f"scale it to {LONG_SIDE} pixels") from None
    except BadPicture:
        raise
    except (OSError, SyntaxError, ValueError, IndexError, EOFError, MemoryError) as error:
        what = f"cannot be decoded: {error or type(error).__name__}"
        raise BadPicture(what, where=str(path), remedy="it is damaged: save it again") from None


def _decode(picture: Image.Image, path: Path, long_side: int) -> Image.Image:
    if picture.format == "JPEG":
        picture.draft("RGB", (long_side, long_side))
    width, height = picture.size
    if width * height > MAX_PIXELS:
        what = f"{width}x{height} is more than {MAX_PIXELS // 1_000_000} million pixels"
        raise BadPicture(what, where=str(path), remedy=f"scale it to {LONG_SIDE} pixels")
    picture.load()
    upright = ImageOps.exif_transpose(picture)
    flat = _rgb(upright)
    flat.thumbnail((long_side, long_side), Image.Resampling.BICUBIC)
    return flat


def _rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I") or picture.mode == "F":
        values = np.asarray(picture, np.float64)
        top = 65535.0 if values.max(initial=0) > 255 else 255.0
        grey = np.clip(values * (255.0 / top), 0, 255).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB")
    if picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info:
        over = picture.convert("RGBA")
        ground = Image.new("RGBA", over.size, (*_BACKGROUND, 255))
        return Image.alpha_composite(ground, over).convert("RGB")
    return picture.convert("RGB")


def prepare(path: Path, store: Path, *, long_side: int = 1024, min_side: int = 28) -> Picture:
    """The picture as it is sent to a model: loaded, padded with white to `min_side` pixels and to an aspect of at most 1:50,
    written as PNG under its own digest in `store`. Raises BadPicture."""
    picture = load(path, long_side)
    width, height = picture.size
    wanted = (max(width, min_side, -(-height // 50)), max(height, min_side, -(-width // 50)))
    if wanted != picture.size:
        ground = Image.new("RGB", wanted, _BACKGROUND)
        ground.paste(picture, ((wanted[0] - width) // 2, (wanted[1] - height) // 2))
        picture = ground
    name = hashlib.sha256(f"{picture.size}".encode() + picture.tobytes()).hexdigest()
    target = store / f"{name}.png"
    if not target.exists():
        store.mkdir(parents=True, exist_ok=True)
        aside = store / f".{name}.{os.getpid()}.part"
        picture.save(aside, "PNG", compress_level=1)
        aside.replace(target)
    return Picture.of(target)
