"""How many frames of which size a model can take: fitted before anything is sent, tokens known beforehand.

Two families of image processor are known. Qwen2/2.5-VL resizes to multiples of 28 between a least and a most number of pixels, one
token per 28 × 28. InternVL cuts into 448-pixel tiles plus a thumbnail, 256 tokens each. Knows no model weights and no engine.
Try: python -c "from video.budget import ImageBudget, plan; print(plan([(1024, 576)] * 10, ImageBudget('qwen', max_tokens=4096)))"
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from video.errors import BudgetError
from video.options import FrameOptions
from video.strategies import thinned

Size = tuple[int, int]  # width, height in pixels
LONGEST_ASPECT = 200  # Qwen's processor refuses longer ones


@dataclass(frozen=True)
class ImageBudget:
    """A model card's limits. Defaults are those of the Qwen2.5-VL and InternVL3 cards.

    Args:
        family: ``qwen`` or ``internvl``.
        factor, min_pixels, max_pixels: Qwen: side multiple (patch × merge), least and most pixels of one image.
        tile, min_tiles, max_tiles, thumbnail, tile_tokens: InternVL: tile side, range of tiles, whether a whole view is added, tokens each.
        max_images: most images in one request, None for no limit.
        max_tokens: most image tokens in one request, None for no limit.
        least_tokens: an image is not shrunk below this many tokens to make room; frames are left out instead.
    """

    family: str
    factor: int = 28
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 16384
    tile: int = 448
    min_tiles: int = 1
    max_tiles: int = 12
    thumbnail: bool = True
    tile_tokens: int = 256
    max_images: int | None = None
    max_tokens: int | None = None
    least_tokens: int = 64

    def __post_init__(self) -> None:
        if self.family not in ("qwen", "internvl"):
            raise BudgetError(f"family is {self.family!r}", remedy="choose one of: qwen, internvl")
        if not 0 < self.min_pixels <= self.max_pixels or not 0 < self.min_tiles <= self.max_tiles:
            raise BudgetError(f"its least size is above its most: {self}", remedy="check the model's preprocessor_config.json")

    @staticmethod
    def of_model(folder: Path, *, max_images: int | None = None, max_tokens: int | None = None) -> ImageBudget:
        """Read from a model folder's ``preprocessor_config.json`` and ``config.json``.

        Raises:
            BudgetError: no such files, or an image processor of another family.
        """
        card = {**_json(folder / "config.json"), **_json(folder / "processor_config.json").get("image_processor", {})}
        card |= _json(folder / "preprocessor_config.json")
        kind = f"{card.get('image_processor_type', '')} {card.get('model_type', '')}".lower()
        size = card.get("size", {}) if isinstance(card.get("size"), dict) else {}
        if "qwen2" in kind:
            factor = int(card.get("patch_size", 14)) * int(card.get("merge_size", 2))
            low = int(card.get("min_pixels") or size.get("shortest_edge") or 56 * 56)
            high = int(card.get("max_pixels") or size.get("longest_edge") or 28 * 28 * 1280)
            return ImageBudget("qwen", factor, low, high, max_images=max_images, max_tokens=max_tokens)
        if "internvl" in kind or "gotocr2" in kind:
            tile = int(size.get("height") or card.get("force_image_size") or 448)
            most = int(card.get("max_patches") or card.get("max_dynamic_patch") or 12)
            least = int(card.get("min_patches") or card.get("min_dynamic_patch") or 1)
            tokens = int(card.get("image_seq_length") or (tile // 14 * float(card.get("downsample_ratio", 0.5))) ** 2)
            thumbnail = bool(card.get("use_thumbnail", True))
            return ImageBudget(
                "internvl", tile=tile, min_tiles=least, max_tiles=most, thumbnail=thumbnail, tile_tokens=tokens,
                max_images=max_images, max_tokens=max_tokens,
            )  # fmt: skip
        known = "Qwen2-VL, Qwen2.5-VL, InternVL"
        raise BudgetError(f"image processor {kind.strip() or 'unnamed'!r} is not known", where=str(folder), remedy=f"known are {known}")


@dataclass(frozen=True)
class BudgetPlan:
    """What will be sent: places of the kept images, their sizes as the processor will make them, and their tokens."""

    kept: tuple[int, ...]
    sizes: tuple[Size, ...]
    tokens: tuple[int, ...]
    budget: ImageBudget
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.tokens)

    def __repr__(self) -> str:
        return f"BudgetPlan({len(self.kept)} images, {self.total} tokens{''.join('; ' + note for note in self.notes)})"


def image_tokens(size: Size, budget: ImageBudget) -> int:
    """Tokens that one image of ``size`` takes in the prompt, without the markers around it."""
    if budget.family == "qwen":
        wide, high = qwen_size(size, budget)
        return wide * high // budget.factor**2
    columns, rows = internvl_grid(size, budget)
    tiles = columns * rows
    return budget.tile_tokens * (tiles + (1 if budget.thumbnail and tiles > 1 else 0))


def plan(sizes: Sequence[Size], budget: ImageBudget) -> BudgetPlan:
    """Fit images to a budget: first thin to the image limit, then shrink all alike, then thin further.

    Raises:
        BudgetError: not even one image fits, or a shape that the processor refuses.
    """
    kept = tuple(range(len(sizes)))
    notes = []
    if budget.max_images is not None and len(kept) > budget.max_images:
        if budget.max_images < 1:
            raise BudgetError("no image is allowed", remedy="raise the engine's image limit, or ask without frames")
        kept = thinned(kept, budget.max_images)
        notes.append(f"{len(sizes)} images against a limit of {budget.max_images}: {len(kept)} kept, evenly spread")
    while kept:
        for smaller in _smaller(budget, len(kept)):
            tokens = tuple(image_tokens(sizes[place], smaller) for place in kept)
            if budget.max_tokens is None or sum(tokens) <= budget.max_tokens:
                made = tuple(qwen_size(sizes[place], smaller) if budget.family == "qwen" else sizes[place] for place in kept)
                if smaller != budget:
                    limit = f"{smaller.max_pixels} pixels" if budget.family == "qwen" else f"{smaller.max_tiles} tiles"
                    notes.append(f"at most {limit} an image, to keep within {budget.max_tokens} image tokens")
                if len(kept) < min(len(sizes), budget.max_images or len(sizes)):
                    notes.append(f"{len(kept)} of {len(sizes)} images fit into {budget.max_tokens} image tokens")
                return BudgetPlan(kept, made, tokens, smaller, tuple(notes))
        kept = thinned(kept, len(kept) - 1) if len(kept) > 1 else ()
    if not sizes:
        return BudgetPlan((), (), (), budget)
    raise BudgetError(f"not one image fits into {budget.max_tokens} image tokens", remedy="raise the context length, or lower least_tokens")


def fitted(options: FrameOptions, budget: ImageBudget, shape: Size = (16, 9)) -> tuple[FrameOptions, tuple[str, ...]]:
    """The same request with as many frames, and frames as large, as the budget takes for pictures of ``shape``; and what was changed."""
    long, short = max(shape), min(shape)
    side = options.long_side
    size = (side, max(1, round(side * short / long)))
    fit = plan([size] * options.frames, budget)
    frames, notes = len(fit.kept), list(fit.notes)
    if budget.family == "qwen":
        side = max(28, min(side, max(fit.sizes[0])))
    else:
        columns, rows = internvl_grid(size, fit.budget)
        side = max(28, min(side, budget.tile * max(columns, rows)))
    if side < options.long_side:
        notes.append(f"long side {options.long_side} lowered to {side}: the processor would shrink larger frames")
    return replace(options, frames=frames, long_side=side), tuple(notes)


def qwen_size(size: Size, budget: ImageBudget) -> Size:
    """Width and height that Qwen's processor resizes to (Qwen2-VL, 2.1; ``smart_resize``).

    Raises:
        BudgetError: an aspect ratio above 200, which the processor refuses.
    """
    wide, high = size
    if max(size) > LONGEST_ASPECT * min(size):
        raise BudgetError(f"an image of {wide}x{high} is longer than {LONGEST_ASPECT} times its width", remedy="crop it or leave it out")
    tall, broad = (_library_resize() or smart_resize)(high, wide, budget.factor, budget.min_pixels, budget.max_pixels)
    return max(budget.factor, broad), max(budget.factor, tall)


def smart_resize(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """The arithmetic of ``qwen_vl_utils.smart_resize``, for where that library cannot be imported (it wants torchvision)."""
    tall, broad = max(factor, round(height / factor) * factor), max(factor, round(width / factor) * factor)
    if tall * broad > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        tall = max(factor, math.floor(height / shrink / factor) * factor)
        broad = max(factor, math.floor(width / shrink / factor) * factor)
    elif tall * broad < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        tall, broad = math.ceil(height * grow / factor) * factor, math.ceil(width * grow / factor) * factor
    return tall, broad


def internvl_grid(size: Size, budget: ImageBudget) -> tuple[int, int]:
    """Columns and rows of tiles: the grid of the nearest aspect ratio (InternVL 1.5, 3.2, dynamic high resolution).

    Of equally near grids the larger is taken while the image has more than half the grid's pixels.
    """
    wide, high = size
    counts = range(1, budget.max_tiles + 1)
    grids = [(c, r) for c in counts for r in counts if budget.min_tiles <= c * r <= budget.max_tiles]
    best, nearest = (1, 1), math.inf
    for columns, rows in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        away = abs(wide / high - columns / rows)
        if away < nearest or (away == nearest and wide * high > 0.5 * budget.tile**2 * columns * rows):
            best, nearest = (columns, rows), away
    return best


def _smaller(budget: ImageBudget, images: int) -> list[ImageBudget]:
    """The budget itself, then tighter ones down to ``least_tokens`` an image."""
    if budget.max_tokens is None:
        return [budget]
    if budget.family == "internvl":
        floor = max(budget.min_tiles, 1)
        return [replace(budget, max_tiles=tiles) for tiles in range(budget.max_tiles, floor - 1, -1)]
    area = budget.factor**2
    share = budget.max_tokens // images
    if share < budget.least_tokens or share * area < budget.min_pixels:
        return [budget]
    return [budget, replace(budget, max_pixels=min(budget.max_pixels, share * area))]


@cache
def _library_resize() -> Callable[..., tuple[int, int]] | None:
    if importlib.util.find_spec("torchvision") is None or importlib.util.find_spec("qwen_vl_utils") is None:
        return None
    try:
        from qwen_vl_utils import smart_resize as library
    except ImportError:
        return None
    found: Callable[..., tuple[int, int]] = library
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BudgetError(f"cannot be read ({error})", where=str(path), remedy="download the model's files again") from error
    return data if isinstance(data, dict) else {}
