"""A larger vocabulary for a trained state: new words behind the old ones, so that every old token keeps its id and its weights.

New rows of the embedding (which is the output layer too) begin as a fresh model's do, in the weights and in their average; the
optimizer has seen nothing of them. Reads one folder of stages and writes another.

    python -m bench train-tiny --stage grow --as qwen2.5-vl-cuem && python -m bench train-tiny --stage joint --as qwen2.5-vl-cuem
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer
from torch import Tensor

from bench.tiny import architecture, checkpoint, tasks
from bench.tiny.optimizer import Optimizer
from bench.tiny.tokenizer import with_vocabulary_of, words_of
from bench.world import lexicon as lx
from models.errors import ConfigError

SAMPLES, AT_LEAST = 1500, 3  # of each task that are read for new words, and how often a word must come
SPARE: Final = (
    *["please", "show", "tell", "find", "me", "my", "picture", "photo", "image", "who", "why", "source", "sources"],
    *map(str, range(10, 100)),
)
PLANTED: Final = 3  # planted.py scales fresh embeddings so
EMBEDDING: Final = "embed_tokens.weight"


def new_words(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """Frequent words and marks that the tokenizer does not have whole, sorted; made-up names are left to their syllables."""
    name = re.compile(f"(?:{'|'.join(lx.FIRST)})(?:{'|'.join(lx.NEXT)})+")
    counts = Counter(word for text in texts for word in words_of(text))
    counts.update(dict.fromkeys(SPARE, AT_LEAST))
    known = tokenizer.get_vocab()
    return sorted(word for word, n in counts.items() if n >= AT_LEAST and word not in known and not name.fullmatch(word))


def with_words(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """The same tokenizer with these words behind its last one."""
    told = json.loads(tokenizer.to_str())
    vocabulary: dict[str, int] = told["model"]["vocab"]
    for word in words:
        if word not in vocabulary:
            vocabulary[word] = len(vocabulary)
    return with_vocabulary_of(json.dumps(told, ensure_ascii=False))


def read_texts(seed: int) -> Iterable[str]:
    """Prompts and replies of every task."""
    for task in tasks.TASKS:
        for sample in itertools.islice(tasks.source(task, seed), SAMPLES):
            yield sample.request.text
            yield sample.reply


def grow(source: Path, target: Path, family: architecture.Family, seed: int = 9, words: Sequence[str] | None = None) -> int:
    """tokenizer.json and joint.safetensors of `source` with more words, in `target`; returns how many were added.

    Raises: ConfigError when `target` holds a state already, ModelError when `source` holds none.
    """
    if target.absolute() == source.absolute() or (target / "joint.safetensors").exists():
        raise ConfigError(f"{target} holds a training state already", remedy="give another name with --as, or delete that folder")
    tensors, facts = checkpoint.load(source / "joint.safetensors")
    old = with_vocabulary_of((source / "tokenizer.json").read_text(encoding="utf-8"))
    new = with_words(old, new_words(old, read_texts(seed)) if words is None else words)
    grown = grown_tensors(tensors, family, old, new, seed)
    target.mkdir(parents=True, exist_ok=True)
    (target / "tokenizer.json").write_text(new.to_str(pretty=True), encoding="utf-8")
    checkpoint.save(target / "joint.safetensors", grown, facts)
    return int(new.get_vocab_size() - old.get_vocab_size())


def grown_tensors(
    tensors: dict[str, Tensor], family: architecture.Family, old: Tokenizer, new: Tokenizer, seed: int
) -> dict[str, Tensor]:  # fmt: skip
    """A training state's tensors with the rows of the new words."""
    before, after = architecture.build(family, old, seed), architecture.build(family, new, seed)
    fresh = next(p for name, p in after.named_parameters() if name.endswith(EMBEDDING)).detach() * PLANTED
    kept = old.get_vocab_size()
    places = _optimizer_places(before)
    out = dict(tensors)
    for key, value in tensors.items():
        if key.endswith(EMBEDDING):
            out[key] = torch.cat((value[:kept], fresh[kept:].to(value.dtype)))
        elif key.rpartition(".")[0] in places and value.ndim == 2:
            rows = torch.zeros((len(fresh), value.shape[1]), dtype=value.dtype)
            rows[:kept] = value[:kept]
            out[key] = rows
    return out


def _optimizer_places(model: Any) -> set[str]:
    """Where the optimizer keeps what it knows of the embedding: ``optimizer.adam.N``."""
    named = list(model.named_parameters())
    embedding = next(p for name, p in named if name.endswith(EMBEDDING))
    rest = Optimizer(named, 1.0).rest
    return {f"optimizer.adam.{i}" for i, p in enumerate(rest) if p is embedding}
