"""Adapters and merged models as files, each with a card: what it was trained on, how, and what it scored.

Try: python -m pipeline relevance info
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from models.errors import DataError
from pipeline.files import replace
from pipeline.relevance.classifier import RelevanceClassifier
from pipeline.relevance.train import Recipe, Trained

LIMIT = 3_000_000  # bytes of an adapter that may be shipped


def card_of(trained: Trained, recipe: Recipe, base_digest: str, data: Mapping[str, str], scores: Mapping[str, float]) -> dict[str, Any]:
    """`data`: name → sha256 of every file that was trained on."""
    return {
        "base_digest": base_digest,
        "recipe": asdict(recipe),
        "data": dict(data),
        "step": trained.step,
        "best": round(trained.score, 5),
        "scores": dict(scores),
    }


def save_adapter(path: Path, adapter: dict[str, torch.Tensor], card: Mapping[str, Any]) -> int:
    """Write the adapter, whole or not at all; its size in bytes. Raises DataError beyond 3 MB."""
    content = save(adapter, {"card": json.dumps(card, ensure_ascii=False)})
    if len(content) > LIMIT:
        what = f"the adapter takes {len(content)} bytes, {LIMIT} are allowed"
        raise DataError(what, where=str(path), remedy="train with a smaller --rank or a higher --from-layer")
    replace(path, content)
    return len(content)


def export_merged(folder: Path, classifier: RelevanceClassifier) -> None:
    """The merged network in ELECTRA's published layout (float32), loadable by transformers and sentence-transformers."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        if (classifier.base / name).exists():
            shutil.copyfile(classifier.base / name, folder / name)
    config = json.loads((classifier.base / "config.json").read_text(encoding="utf-8"))
    config |= {"model_type": "electra", "architectures": ["ElectraForSequenceClassification"], "num_labels": 1}
    config |= {"embedding_size": classifier.network.sizes.embedding_size, "id2label": {"0": "relevant"}, "label2id": {"relevant": 0}}
    replace(folder / "config.json", json.dumps(config, indent=1).encode())
    tensors = {name: tensor.detach().float().contiguous() for name, tensor in classifier.network.state_dict().items()}
    replace(folder / "model.safetensors", save(tensors, {"format": "pt"}))
