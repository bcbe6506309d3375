"""A picture file → upright RGB, as a model is shown it. Knows nothing of models.

Transparent pixels are laid on white; EXIF orientations 1 to 8 are turned upright. Try: python -m models check FOLDER
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.errors import CallFailed
from models.requests import Picture

if TYPE_CHECKING:
    from PIL import Image

_ASPECT = 100  # a picture longer than this many times its width says nothing to a model and breaks resizers (Qwen's limit is 200)


def size_of(picture: Picture) -> tuple[int, int]:
    """Width and height as it will be shown, from the file's header. Raises CallFailed("bad-image")."""
    from PIL import Image

    try:
        with Image.open(picture.path) as file:
            width, height = file.size
            turned = file.getexif().get(0x0112, 1) >= 5  # orientations that swap the sides
    except (OSError, ValueError, SyntaxError, TypeError, Image.DecompressionBombError) as error:
        raise _bad(picture, str(error)) from None
    if max(width, height) > _ASPECT * min(width, height):
        raise _bad(picture, f"{width}×{height} is more than {_ASPECT} times as long as wide")
    return (height, width) if turned else (width, height)


def open_rgb(picture: Picture) -> Image.Image:
    """The decoded picture. Raises CallFailed("bad-image") when the file is missing, cut short or no picture."""
    from PIL import Image, ImageOps

    try:
        with Image.open(picture.path) as file:
            file.load()
            image = ImageOps.exif_transpose(file)
        if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image)
        return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, EOFError, TypeError, Image.DecompressionBombError) as error:
        raise _bad(picture, str(error)) from None


def _bad(picture: Picture, said: str) -> CallFailed:
    return CallFailed("bad-image", f"{picture.path}: {said}".replace(f": {picture.path}", ""))
