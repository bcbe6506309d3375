"""Local classifiers in transformers' published layout as safety screens: sequence classification for texts, image classification.

P(harmful) is the sum of the harmful labels' probabilities, or the largest of them where the model has a sigmoid for each label.
Knows no flow and no thresholds but its own. Try: python -m pipeline safety score "…" --text-filter FOLDER
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from models import environment
from models.errors import ModelError
from pipeline.encoders import batches, digest_of
from pipeline.safety.classifiers import harmful_labels
from pipeline.safety.verdicts import Verdict

THRESHOLD = 0.5
MAX_TOKENS = 512


class _Classifier:
    """What both kinds share: a folder, its labels, its digest."""

    stage = ""

    def __init__(self, folder: Path, labels: Sequence[str] = (), threshold: float = THRESHOLD, batch: int = 16) -> None:
        if not (folder / "config.json").exists():
            raise ModelError("holds no config.json", where=str(folder), remedy="give a classifier's folder in transformers' layout")
        if not any(folder.glob("*.safetensors")):
            raise ModelError(
                "holds no .safetensors", where=str(folder), remedy="save the weights as safetensors; pickled ones are not read"
            )
        self.folder, self.threshold, self.batch, self._given = folder, threshold, batch, tuple(labels)
        self.harmful = harmful_labels(dict(self.model.config.id2label), self._given, str(folder))

    @property
    def digest(self) -> str:
        return f"{digest_of(self.folder)} {self.harmful} {self.threshold}"

    @cached_property
    def model(self) -> Any:
        environment.apply()
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # a bar for a load of a second
                return self._load().eval()
        except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
            raise ModelError(f"cannot be loaded: {error}".splitlines()[0], where=str(self.folder)) from None

    def _load(self) -> Any:
        raise NotImplementedError

    def _inputs(self, items: Sequence[Any]) -> Any:
        raise NotImplementedError

    def _judge(self, items: Sequence[Any]) -> list[Verdict]:
        import torch

        scores: list[float] = []
        for group in batches(items, self.batch):
            with torch.inference_mode():
                logits = self.model(**self._inputs(group)).logits.float()
            if self.model.config.problem_type == "multi_label_classification":
                scores += torch.sigmoid(logits)[:, self.harmful].max(1).values.tolist()
            else:
                scores += torch.softmax(logits, 1)[:, self.harmful].sum(1).tolist()
        names = ", ".join(self.model.config.id2label[i] for i in self.harmful)
        # a model whose weights are broken must not pass everything
        return [Verdict(self.stage, s if np.isfinite(s) else 1.0, self.threshold, f"P({names}) by {self.folder.name}") for s in scores]


class TextClassifier(_Classifier):
    """Any AutoModelForSequenceClassification folder. Raises ModelError."""

    stage = "text classifier"

    def _load(self) -> Any:
        from transformers import AutoModelForSequenceClassification

        return AutoModelForSequenceClassification.from_pretrained(self.folder, local_files_only=True, use_safetensors=True)

    @cached_property
    def tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder, local_files_only=True)

    def _inputs(self, items: Sequence[Any]) -> Any:
        most = min(MAX_TOKENS, getattr(self.model.config, "max_position_embeddings", MAX_TOKENS) - 2)
        return self.tokenizer([text[: 20 * most] for text in items], padding=True, truncation=True, max_length=most, return_tensors="pt")

    def judge(self, texts: Sequence[str]) -> list[Verdict]:
        return self._judge([text or " " for text in texts])


class ImageClassifier(_Classifier):
    """Any AutoModelForImageClassification folder. Raises ModelError."""

    stage = "image classifier"

    def _load(self) -> Any:
        from transformers import AutoModelForImageClassification

        return AutoModelForImageClassification.from_pretrained(self.folder, local_files_only=True, use_safetensors=True)

    @cached_property
    def processor(self) -> Any:
        from transformers import AutoImageProcessor

        try:
            return AutoImageProcessor.from_pretrained(self.folder, local_files_only=True)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise ModelError(f"its image processor cannot be loaded: {error}".splitlines()[0], where=str(self.folder)) from None

    def _inputs(self, items: Sequence[Any]) -> Any:
        return self.processor(images=[picture.convert("RGB") for picture in items], return_tensors="pt")

    def judge(self, pictures: Sequence[Image.Image]) -> list[Verdict]:
        return self._judge(list(pictures))
