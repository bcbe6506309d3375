"""The three stages by name, each resumable and skipped when its result is there: fresh, vision, joint; and the export of a result.

python -m bench train-tiny            (all stages; see bench/tiny/cli.py)
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any, Final

from bench.tiny import architecture, checkpoint, planted, tasks
from bench.tiny.clips import Pool
from bench.tiny.primers import PRIMERS
from bench.tiny.tokenizer import build, frequent_words, with_vocabulary_of
from bench.world import lexicon as lx

CACHE: Final = Path(".cache/tiny")
WORDS_FROM, AT_LEAST = 8000, 3  # samples that are read for the word list, and how often a word must come


def fresh(folder: Path, family: architecture.Family, seed: int) -> None:
    """tokenizer.json and fresh.safetensors: an untrained model with planted heads."""
    if (folder / "fresh.safetensors").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    each = WORDS_FROM // len(tasks.TASKS)
    found = itertools.chain.from_iterable(itertools.islice(tasks.source(task, seed), each) for task in tasks.TASKS)
    texts = [text for s in found for text in (s.request.text, s.reply)] + [name for name in PRIMERS for _ in range(AT_LEAST)]
    tokenizer = build(frequent_words(texts, AT_LEAST, lx.FIRST, lx.NEXT), lx.FIRST, lx.NEXT)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    model = architecture.build(family, tokenizer, seed)
    planted.plant(model, seed)
    checkpoint.save(folder / "fresh.safetensors", {f"model.{n}": p for n, p in model.named_parameters()}, {"seed": seed})


def see_first(
    folder: Path, family: architecture.Family, cache: Path, *, minutes: float, shards: int, seed: int, clips: int = 32
) -> dict[str, Any]:
    """vision.safetensors: the tower trained alone; returns its held-out accuracy."""
    from bench.tiny import vision

    tokenizer = with_vocabulary_of((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model = architecture.build(family, tokenizer, seed)
    twin = architecture.build(family, tokenizer, seed).bfloat16()
    out = folder / "vision.safetensors"
    pool = Pool(cache / "clips", shards)
    return vision.train(model, twin, pool, out, tokens=family.tokens, minutes=minutes, seed=seed, clips=clips)


def export(folder: Path, family: architecture.Family, source: Path, target: Path, card: str) -> None:
    """The averaged weights of `source` as a model folder."""
    from bench.tiny.train import averaged

    model, encoder, _ = averaged(source, family, folder)
    architecture.export(model, encoder.tokenizer, family, target, card)


def forget(folder: Path) -> None:
    """Deletes a family's stages, not the clips or rows."""
    shutil.rmtree(folder, ignore_errors=True)
