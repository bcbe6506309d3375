"""The tiny models: configurations by family, fresh or loaded, and the export to a folder that anything can load.

The only file of bench/tiny that knows transformers. A family is a row of FAMILIES; the two have the same language model, so that
data, training and evaluation are shared. Knows nothing of the world.

    python -c "from bench.tiny.architecture import build, FAMILIES; ..."   (see bench/tiny/cli.py for whole commands)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer
from torch import nn

from bench.tiny import patches
from bench.tiny.tokenizer import chat_template, token
from models.errors import ModelError

HIDDEN, LAYERS, HEADS, INNER = 256, 5, 4, 640
VISION_HIDDEN, VISION_LAYERS = 128, 3
CONTEXT = 2048
ROPE_BASE = 1e4


@dataclass(frozen=True)
class Family:
    """One architecture: how its picture slots are written, and how configuration, image processor and video processor look."""

    name: str
    slot: str  # the token that stands for one merged patch
    tokens: int  # slots of one frame
    opens: str
    closes: str
    chat_image: str  # what the chat template writes for a picture
    chat_video: str
    config: Callable[[Tokenizer], Any]
    image_processor: dict[str, Any]
    processor: dict[str, Any]


def _qwen_config(tokenizer: Tokenizer) -> Any:
    from transformers import Qwen2_5_VLConfig

    half = HIDDEN // HEADS // 2
    space = (half - half // 4) // 2  # a quarter of the rotary pairs tell time, the rest rows and columns
    return Qwen2_5_VLConfig(
        text_config=dict(
            _text_config(tokenizer),
            rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE, "mrope_section": [half - 2 * space, space, space]},
        ),
        vision_config=dict(
            depth=VISION_LAYERS, hidden_size=VISION_HIDDEN, intermediate_size=2 * VISION_HIDDEN, num_heads=4, out_hidden_size=HIDDEN,
            fullatt_block_indexes=list(range(VISION_LAYERS)), patch_size=patches.PATCH, spatial_merge_size=patches.MERGE,
            temporal_patch_size=2, window_size=112,
        ),
        image_token_id=token(tokenizer, "<|image_pad|>"), video_token_id=token(tokenizer, "<|video_pad|>"),
        vision_start_token_id=token(tokenizer, "<|vision_start|>"), vision_end_token_id=token(tokenizer, "<|vision_end|>"),
        tie_word_embeddings=True,
    )  # fmt: skip


def _internvl_config(tokenizer: Tokenizer) -> Any:
    from transformers import InternVLConfig

    return InternVLConfig(
        text_config=dict(
            _text_config(tokenizer), model_type="qwen2", rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE}
        ),
        vision_config=dict(
            hidden_size=VISION_HIDDEN, num_hidden_layers=VISION_LAYERS, num_attention_heads=4, intermediate_size=2 * VISION_HIDDEN,
            image_size=[patches.SIDE, patches.SIDE], patch_size=[patches.PATCH, patches.PATCH], use_mean_pooling=True,
            attention_bias=True,
        ),
        image_token_id=token(tokenizer, "<IMG_CONTEXT>"), image_seq_length=patches.SQUARE_TOKENS, downsample_ratio=0.5,
        tie_word_embeddings=True,
    )  # fmt: skip


def _text_config(tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "vocab_size": (tokenizer.get_vocab_size() + 63) // 64 * 64,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "bos_token_id": token(tokenizer, "<|endoftext|>"),
        "eos_token_id": token(tokenizer, "<|im_end|>"),
        "pad_token_id": token(tokenizer, "<|endoftext|>"),
    }


_PIXELS: Final = {
    "do_convert_rgb": True, "do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": patches.MEAN.tolist(),
    "image_std": patches.STD.tolist(), "resample": 3, "rescale_factor": 1 / 255,
}  # fmt: skip
_QWEN_PIXELS: Final = {
    **_PIXELS, "merge_size": patches.MERGE, "patch_size": patches.PATCH, "temporal_patch_size": 2,
    "size": {"longest_edge": patches.PIXELS, "shortest_edge": patches.PIXELS},
}  # fmt: skip
_FIXED: Final = {**_PIXELS, "size": {"height": patches.SIDE, "width": patches.SIDE}}

FAMILIES: Final[dict[str, Family]] = {
    family.name: family
    for family in (
        Family(
            "qwen2.5-vl", "<|image_pad|>", patches.TOKENS, "<|vision_start|>", "<|vision_end|>",
            "<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>", _qwen_config,
            {**_QWEN_PIXELS, "image_processor_type": "Qwen2VLImageProcessor"},
            {
                "processor_class": "Qwen2_5_VLProcessor",
                "video_processor": {
                    **_QWEN_PIXELS, "do_sample_frames": False, "max_frames": 768, "min_frames": 4, "max_video_tokens": 128000,
                    "return_metadata": False, "video_processor_type": "Qwen2VLVideoProcessor",
                },
            },
        ),
        Family(
            "internvl", "<IMG_CONTEXT>", patches.SQUARE_TOKENS, "<img>", "</img>", "<IMG_CONTEXT>", "<video>", _internvl_config,
            {**_FIXED, "crop_to_patches": False, "min_patches": 1, "max_patches": 1, "image_processor_type": "GotOcr2ImageProcessor"},
            {
                "processor_class": "InternVLProcessor", "image_seq_length": patches.SQUARE_TOKENS,
                "video_processor": {**_FIXED, "do_sample_frames": False, "video_processor_type": "InternVLVideoProcessor"},
            },
        ),
    )
}  # fmt: skip


def family_named(name: str) -> Family:
    """The row of this name; ModelError with the list of names for any other."""
    if name not in FAMILIES:
        raise ModelError(f"unknown architecture {name!r}", remedy=f"one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def build(family: Family, tokenizer: Tokenizer, seed: int = 0) -> Any:
    """A fresh float32 model of the family (a PreTrainedModel), initialised from `seed` alone."""
    from transformers import AutoModelForImageTextToText

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = AutoModelForImageTextToText.from_config(family.config(tokenizer))  # type: ignore[no-untyped-call]
    model.generation_config.eos_token_id = [token(tokenizer, "<|im_end|>"), token(tokenizer, "<|endoftext|>")]
    model.generation_config.pad_token_id = token(tokenizer, "<|endoftext|>")
    return model


def load(folder: Path) -> Any:
    """The bfloat16 model in an exported folder; ModelError when it cannot be loaded."""
    from transformers import AutoModelForImageTextToText

    if not (folder / "config.json").exists():
        raise ModelError("is no model folder", where=str(folder), remedy="export one: python -m bench train-tiny --export")
    model: Any = AutoModelForImageTextToText.from_pretrained(str(folder), dtype=torch.bfloat16, local_files_only=True)
    return model.eval()


def cast(model: Any, dtype: torch.dtype) -> Any:
    """The model with its parameters in `dtype`. Buffers stay: rotary frequencies in bfloat16 would turn the positions."""
    for p in model.parameters():
        p.data = p.data.to(dtype)
    return model


def vision_parts(model: Any) -> dict[str, nn.Module]:
    """The parts of the model that see, without the language model: {"tower": …}, and {"projector": …} where it is not in the tower."""
    inner = model.model
    if hasattr(inner, "visual"):
        return {"tower": inner.visual}
    return {"tower": inner.vision_tower, "projector": inner.multi_modal_projector}


def export(model: Any, tokenizer: Tokenizer, family: Family, folder: Path, card: str) -> None:
    """Writes the folder that transformers, vLLM and the project load; the old folder of that name is replaced only when all is there.

    Args:
        card: the text of README.md.
    """
    from transformers import PreTrainedTokenizerFast

    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    dtype = next(model.parameters()).dtype
    cast(model, torch.bfloat16).save_pretrained(fresh)
    cast(model, dtype)
    fast: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", unk_token="[UNK]", padding_side="left",
        model_max_length=CONTEXT, clean_up_tokenization_spaces=False, extra_special_tokens=_extra_tokens(family),
    )  # fmt: skip
    fast.chat_template = chat_template(family.chat_image, family.chat_video)
    fast.save_pretrained(fresh)
    for file in fresh.iterdir():  # safetensors writes for the owner alone
        file.chmod(0o644)
    _write_json(fresh / "preprocessor_config.json", family.image_processor)
    _write_json(fresh / "processor_config.json", {"image_processor": family.image_processor, **family.processor})
    (fresh / "README.md").write_text(card, encoding="utf-8")
    old = folder.with_name(folder.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.replace(old)
    fresh.replace(folder)
    shutil.rmtree(old, ignore_errors=True)


def _extra_tokens(family: Family) -> dict[str, str] | list[str]:
    if family.name == "internvl":
        return {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>", "video_token": "<video>"}
    return ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
