"""Pictures as the vision towers want them: 140×84 frames, patches in Qwen2-VL's order, mRoPE positions.

The layout is that of Qwen2VLImageProcessor (a test holds them equal); training uses this because it needs no library.
Knows no model. Try: python -c "from bench.tiny.patches import GRID; print(GRID)"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image

PATCH, MERGE = 14, 2
PIXELS: Final = 112 * 112  # min_pixels = max_pixels: a 16:9 frame of any size becomes 140×84
WIDTH, HEIGHT = 140, 84
GRID: Final = (1, HEIGHT // PATCH, WIDTH // PATCH)  # (t, h, w) in patches, before merging
ROWS, COLUMNS = GRID[1] // MERGE, GRID[2] // MERGE
TOKENS: Final = ROWS * COLUMNS  # merged tokens per frame
SIDE: Final = 112  # InternVL's tower takes squares only (transformers 5.19: its position embeddings are interpolated as a square)
SQUARE_TOKENS: Final = (SIDE // PATCH // MERGE) ** 2
MEAN: Final = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
STD: Final = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)

Frames = npt.NDArray[np.uint8]


def shrink(picture: Image.Image) -> Frames:
    """uint8 (84, 140, 3): the picture as the image processor resizes it (bicubic)."""
    return np.asarray(picture.convert("RGB").resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC))


def squares(frames: Frames) -> npt.NDArray[np.float32]:
    """uint8 (n, 84, 140, 3) → float32 (n, 3, 112, 112), normalised: the frames as InternVL's processor squeezes them."""
    resized = [np.asarray(Image.fromarray(frame).resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float32) for frame in frames]
    scaled = (np.stack(resized) / np.float32(255) - MEAN) / STD
    return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2), np.float32)


def arrange(frames: Frames) -> Frames:
    """uint8 (n, 84, 140, 3) → uint8 (n · 60, 588): 2×2 blocks of 14×14 patches, each channel, rows, columns; one time step."""
    n = len(frames)
    x = frames.reshape(n, ROWS, MERGE, PATCH, COLUMNS, MERGE, PATCH, 3).transpose(0, 1, 4, 2, 5, 7, 3, 6)
    return np.ascontiguousarray(x).reshape(n * GRID[1] * GRID[2], 3 * PATCH**2)


def patchify(frames: Frames) -> npt.NDArray[np.float32]:
    """uint8 (n, 84, 140, 3) → float32 (n · 60, 1176) as the image processor gives them: normalised, every frame as two time steps."""
    x = arrange(frames).reshape(-1, 3, 1, PATCH**2).astype(np.float32) * np.float32(1 / 255)
    x = (x - MEAN[:, None, None]) / STD[:, None, None]
    return np.repeat(x, 2, axis=2).reshape(len(x), -1)


def positions(ids: Sequence[int], image: int) -> npt.NDArray[np.int64]:
    """mRoPE positions (3, n) of a sequence: text counts on, a frame spans its rows and columns (Qwen2-VL, section 2.1).

    `image` is the id of the image slot; frames are taken as runs of 15 of them.
    """
    out = np.empty((3, len(ids)), np.int64)
    block = np.stack([np.zeros(TOKENS, np.int64), np.repeat(np.arange(ROWS), COLUMNS), np.tile(np.arange(COLUMNS), ROWS)])
    at, i = 0, 0
    while i < len(ids):
        if ids[i] == image:
            out[:, i : i + TOKENS] = block + at
            at += max(ROWS, COLUMNS)
            i += TOKENS
        else:
            out[:, i] = at
            at += 1
            i += 1
    return out
