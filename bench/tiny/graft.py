"""A fresh model of one family that speaks as a trained one of another does: same language model, untrained eyes.

The families share the language model's architecture and tokenizer, so its weights fit as they are (positions of text are the same
number on all of Qwen's three rotary axes). What is left to learn is to see, and to read what is seen. Knows no data.

    python -m bench train-tiny --family internvl --language-from .cache/tiny/qwen2.5-vl
"""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.tiny import architecture, checkpoint
from bench.tiny.tokenizer import with_vocabulary_of
from models.errors import ModelError

LANGUAGE = "model.language_model."


def graft(source: Path, target: Path, family: architecture.Family, seed: int) -> None:
    """tokenizer.json and fresh.safetensors in `target`, with the averaged language model of `source`/joint.safetensors.

    Nothing happens when `target` has its fresh.safetensors. Raises: ModelError when `source` holds no trained state, or one of other sizes.
    """
    if (target / "fresh.safetensors").exists():
        return
    tensors, _ = checkpoint.load(source / "joint.safetensors")
    tokenizer = with_vocabulary_of((source / "tokenizer.json").read_text(encoding="utf-8"))
    trained = {name: value for name, value in checkpoint.part(tensors, "average").items() if name.startswith(LANGUAGE)}
    weights = dict(architecture.build(family, tokenizer, seed).named_parameters())
    wanted = {name: value.shape for name, value in weights.items() if name.startswith(LANGUAGE)}
    if {name: value.shape for name, value in trained.items()} != wanted:
        raise ModelError("holds a language model of other sizes", where=str(source), remedy="train it again with this version")
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / "tokenizer.json", target / "tokenizer.json")
    checkpoint.save(target / "fresh.safetensors", {f"model.{n}": p for n, p in (weights | trained).items()}, {"seed": seed})
