"""The one file that imports transformers for inference: loads a checked local folder, and reads a GGUF file once.

Local folders only, safetensors only, no code from the folder, no network. Knows nothing of requests or batches.
Try: python -c "from pathlib import Path; from models.hf import load; print(load(Path('FOLDER')).family)"
"""

# ruff: noqa: E402  (the switches come before the libraries that read them)
from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from models import environment

environment.apply()  # transformers and the hub's library read their switches when they are imported

import numpy as np
import torch
import transformers
from transformers.cache_utils import DynamicCache
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from models.checkpoint import Checkpoint, Family
from models.errors import ModelError

Size = tuple[int, int, int]


class _LinearPatches(torch.nn.Module):
    """Qwen's patch embedding: a convolution whose stride is its kernel, so a matrix product; on a CPU ten times as fast in bfloat16."""

    def __init__(self, convolution: torch.nn.Conv3d) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(convolution.weight.detach().flatten(1), requires_grad=False)
        self.bias = convolution.bias

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(patches.flatten(1).to(self.weight.dtype), self.weight, self.bias)


@dataclass(frozen=True)
class Loaded:
    """A model ready to run: `model` on `device`, its tokenizer, and the picture processor of a vision model."""

    checkpoint: Checkpoint
    model: Any
    tokenizer: Any
    pictures: Any
    device: torch.device
    eos: frozenset[int]
    image_token: int | None

    @property
    def family(self) -> Family:
        return self.checkpoint.family


def pick_device(wanted: str) -> torch.device:
    """``auto`` is the first GPU where there is one. Raises ModelError for a GPU that is not there."""
    if wanted not in ("auto", "cpu") and not wanted.startswith("cuda"):
        raise ModelError(f"unknown device {wanted!r}", remedy="one of: auto, cpu, cuda")
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError("no GPU answers to CUDA on this machine", remedy="use device auto or cpu, or see that the driver is loaded")
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted)


def load(checkpoint: Checkpoint, *, device: str = "auto", min_pixels: int | None = None, max_pixels: int | None = None) -> Loaded:
    """The model in bfloat16 on the device. Raises ModelError, naming the folder, when the library refuses it."""
    where = pick_device(device)
    folder = checkpoint.folder
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    auto: Any = transformers.AutoModelForCausalLM if checkpoint.family == "text" else transformers.AutoModelForImageTextToText
    try:
        model, told = auto.from_pretrained(folder, dtype=torch.bfloat16, use_safetensors=True, output_loading_info=True, **local)
        model.eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
        pictures = None
        if checkpoint.family != "text":
            # The PIL back end: the same arithmetic on every machine, with or without torchvision.
            processor: Any = transformers.AutoImageProcessor
            pictures = processor.from_pretrained(folder, backend="pil", **local)
            if checkpoint.family == "qwen2.5-vl":
                _budget(pictures, min_pixels, max_pixels)
                model.model.visual.patch_embed = _LinearPatches(model.model.visual.patch_embed.proj)
    except (OSError, ValueError, KeyError, RuntimeError, AttributeError, ImportError) as error:
        said = " ".join(str(error).split())[:400]
        raise ModelError(f"transformers {transformers.__version__} cannot load it: {said}", where=str(folder)) from None
    lost = sorted(told.get("missing_keys", ())) + sorted(str(key) for key in told.get("mismatched_keys", ()))
    if lost:
        left = sorted(told.get("unexpected_keys", ()))
        what = f"its weights lack {', '.join(lost[:4])}{' …' if len(lost) > 4 else ''}"
        what += f"; not used: {', '.join(left[:4])}{' …' if len(left) > 4 else ''}" if left else ""
        raise ModelError(what, where=str(folder), remedy="copy the model again: these weights belong to another configuration")
    tokenizer.chat_template = tokenizer.chat_template or checkpoint.template
    if getattr(model.generation_config, "eos_token_id", None) is None and tokenizer.eos_token_id is None:
        raise ModelError("neither generation_config.json nor the tokenizer names an end token", where=str(folder))
    return Loaded(
        checkpoint,
        model.to(where),
        tokenizer,
        pictures,
        where,
        _eos(model, tokenizer),
        None if checkpoint.family == "text" else int(model.config.image_token_id),
    )


def _budget(pictures: Any, low: int | None, high: int | None) -> None:
    size = {"shortest_edge": pictures.size.shortest_edge, "longest_edge": pictures.size.longest_edge}
    # Qwen's published folders say min_pixels/max_pixels; newer ones say it as sizes, which hold pixel counts in spite of their names.
    size["shortest_edge"] = low or size["shortest_edge"]
    size["longest_edge"] = high or size["longest_edge"]
    if size["shortest_edge"] > size["longest_edge"]:
        raise ModelError(f"min_pixels {size['shortest_edge']} is above max_pixels {size['longest_edge']}", remedy="swap or drop one")
    pictures.size = type(pictures.size)(**size)


def _eos(model: Any, tokenizer: Any) -> frozenset[int]:
    ids = model.generation_config.eos_token_id
    found = set(ids) if isinstance(ids, (list, tuple)) else {ids}
    return frozenset(int(i) for i in found | {tokenizer.eos_token_id} if i is not None)


def new_cache() -> Any:
    """An empty key/value cache that grows with each forward pass."""
    return DynamicCache()


def size_of(loaded: Loaded, width: int, height: int) -> Size:
    """A picture's (frames, height, width) in patches for Qwen, in tiles for InternVL. Raises ValueError for what it refuses."""
    p = loaded.pictures
    if loaded.family == "qwen2.5-vl":
        unit = p.patch_size * p.merge_size
        h, w = smart_resize(height, width, factor=unit, min_pixels=p.size.shortest_edge, max_pixels=p.size.longest_edge)
        return 1, h // p.patch_size, w // p.patch_size
    return int(p.get_number_of_image_patches(height, width, {})), 1, 1


def features(loaded: Loaded, images: Sequence[Any]) -> list[torch.Tensor]:
    """Each PIL picture's tokens for the language model, (tokens, hidden), from one pass of the vision tower over all of them."""
    core = loaded.model.model
    if loaded.family == "qwen2.5-vl":
        # picture by picture, in threads: resizing is most of the work of a small model, and the result is the same
        with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
            made = list(pool.map(lambda image: loaded.pictures(images=[image], return_tensors="pt"), images))
        pixels = torch.cat([one["pixel_values"] for one in made]).to(loaded.device, torch.bfloat16)
        grid = torch.cat([one["image_grid_thw"] for one in made]).to(loaded.device)
        return list(core.get_image_features(pixels, image_grid_thw=grid, return_dict=True).pooler_output)
    inputs = loaded.pictures(images=list(images), return_tensors="pt")
    pixels = inputs["pixel_values"].to(loaded.device, torch.bfloat16)
    out = core.get_image_features(
        pixel_values=pixels,
        vision_feature_layer=loaded.model.config.vision_feature_layer,
        vision_feature_select_strategy=loaded.model.config.vision_feature_select_strategy,
        return_dict=True,
    ).pooler_output
    parts = torch.split(out, [int(n) for n in inputs["num_patches"]])
    return [part.reshape(-1, part.shape[-1]) for part in parts]


def positions(loaded: Loaded, ids: np.ndarray, sizes: Sequence[Size]) -> np.ndarray:
    """Rotary positions, (3, tokens) for Qwen2.5-VL's three-part positions (its paper, §2.1.3), else (1, tokens)."""
    if loaded.family != "qwen2.5-vl" or not sizes:
        return np.arange(len(ids))[None].repeat(3 if loaded.family == "qwen2.5-vl" else 1, 0)
    merge = loaded.model.config.vision_config.spatial_merge_size
    out = np.empty((3, len(ids)), dtype=np.int64)
    at = place = 0  # index into ids, next free position
    waiting = iter(sizes)
    pads = ids == loaded.image_token
    while at < len(ids):
        if not pads[at]:
            stop = at + int(np.argmax(pads[at:])) if pads[at:].any() else len(ids)
            out[:, at:stop] = np.arange(place, place + stop - at)
            place += stop - at
            at = stop
        else:
            t, h, w = next(waiting)
            h, w = h // merge, w // merge
            out[0, at : at + t * h * w] = place + np.repeat(np.arange(t), h * w)
            out[1, at : at + t * h * w] = place + np.tile(np.repeat(np.arange(h), w), t)
            out[2, at : at + t * h * w] = place + np.tile(np.arange(w), t * h)
            at += t * h * w
            place += max(h, w)
    return out


def tokens_of(loaded: Loaded, size: Size) -> int:
    """How many tokens a picture of this size becomes."""
    if loaded.family == "qwen2.5-vl":
        return size[0] * size[1] * size[2] // int(loaded.model.config.vision_config.spatial_merge_size) ** 2
    return size[0] * int(loaded.model.config.image_seq_length)


def library_versions() -> dict[str, str]:
    """For reports."""
    return {"transformers": transformers.__version__, "torch": torch.__version__, "python": sys.version.split()[0]}
