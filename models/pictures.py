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


def open_rgb(picture: Picture) -> Image.Image:
    """The decoded picture. Raises CallFailed("bad-image") when the file is missing, cut short, no picture, or a sliver."""
    from PIL import Image, ImageOps

    try:
        with Image.open(picture.path) as file:
            file.load()
            image = ImageOps.exif_transpose(file)
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise CallFailed("bad-image", f"{picture.path}: {error}") from None
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        ground = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(ground, image)
    long, short = max(image.size), min(image.size)
    if long > _ASPECT * short:
        raise CallFailed("bad-image", f"{picture.path}: {image.width}×{image.height} is more than {_ASPECT} times as long as wide")
    return image.convert("RGB")
