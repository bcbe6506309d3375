"""The light text classifier: a linear head on sentence vectors, P(harmful request).

Trained by logistic regression on given harmful requests and harmless questions; the shipped head's card tells the data's digests and
the five-fold figures. It sees topics and wording, no intent: what it lets through, the detector on the refined intent may stop.
Try: python -m pipeline safety score "how do I bake bread"
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from models.errors import DataError, ModelError
from pipeline.encoders import TextEncoder
from pipeline.files import replace
from pipeline.safety.verdicts import Verdict
from pipeline.vectors import Floats

SHIPPED = Path(__file__).parent / "head.safetensors"
STAGE = "text classifier"
Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Head:
    """P = sigmoid(vector · weight + bias); at or above `threshold` a request is blocked."""

    weight: Doubles
    bias: float
    threshold: float
    card: dict[str, Any]

    def probabilities(self, vectors: Floats) -> Doubles:
        made: Doubles = _sigmoid(vectors.astype(np.float64) @ self.weight + self.bias)
        return made


class TextFilter:
    """The head and its encoder. Raises ModelError when the head was trained on another encoder's vectors."""

    def __init__(self, encoder: TextEncoder, head: Head | None = None) -> None:
        self.encoder, self.head = encoder, head or load_head(SHIPPED)
        due = self.head.card.get("encoder_digest")
        if due and due != encoder.nature.digest:
            raise ModelError(f"the head was trained on another encoder than {encoder.nature}", remedy="python -m pipeline safety train")

    @property
    def digest(self) -> str:
        return f"{self.encoder.nature.digest} {self.head.card} {self.head.threshold}"

    def judge(self, texts: Sequence[str]) -> list[Verdict]:
        """A verdict for each text (the query, prefixed with the image's tags)."""
        scores = self.head.probabilities(self.encoder.encode(texts))
        return [Verdict(STAGE, float(score), self.head.threshold, "P(harmful request) of a linear head") for score in scores]


def fit(vectors: Floats, labels: Sequence[int], strength: float = 1.0) -> tuple[Doubles, float]:
    """L2-regularised logistic regression by Newton steps, classes weighted equally: (weight, bias)."""
    x = np.hstack([vectors.astype(np.float64), np.ones((len(vectors), 1))])
    y = np.asarray(labels, np.float64)
    if not 0 < y.sum() < len(y):
        raise DataError("both harmful and harmless texts are needed")
    each = np.where(y > 0, len(y) / (2 * y.sum()), len(y) / (2 * (len(y) - y.sum())))
    ridge = np.full(x.shape[1], 1.0 / strength)
    ridge[-1] = 1e-6
    w = np.zeros(x.shape[1])
    for _ in range(30):
        p = _sigmoid(x @ w)
        gradient = x.T @ (each * (p - y)) + ridge * w
        curvature = (x * (each * p * (1 - p))[:, None]).T @ x + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        w -= step
        if np.abs(step).max() < 1e-8:
            break
    return w[:-1], float(w[-1])


def cross_scores(vectors: Floats, labels: Sequence[int], parts: int = 5, seed: int = 0, strength: float = 1.0) -> Doubles:
    """P(harmful) of every text by a head that never saw it."""
    order = np.random.default_rng(seed).permutation(len(labels))
    out = np.zeros(len(labels))
    y = np.asarray(labels)
    for part in range(parts):
        test = order[part::parts]
        learn = np.setdiff1d(order, test)
        weight, bias = fit(vectors[learn], y[learn].tolist(), strength)
        out[test] = _sigmoid(vectors[test].astype(np.float64) @ weight + bias)
    return out


def choose_threshold(scores: Doubles, labels: Sequence[int], alarms: float) -> float:
    """The lowest threshold with at most this share of false alarms."""
    harmless = np.sort(scores[np.asarray(labels) == 0])[::-1]
    allowed = int(alarms * len(harmless))
    return float(min(max(np.nextafter(harmless[allowed], 1.0), 0.05), 0.95)) if allowed < len(harmless) else 0.05


def save_head(head: Head, path: Path) -> None:
    tensors = {"weight": head.weight.astype(np.float32), "bias": np.array([head.bias, head.threshold], np.float32)}
    replace(path, save(tensors, {"card": json.dumps(head.card, ensure_ascii=False)}))


def load_head(path: Path) -> Head:
    """Raises ModelError when the file is missing or is no head."""
    try:
        with safe_open(path, "np") as file:
            weight, (bias, threshold) = file.get_tensor("weight"), file.get_tensor("bias").tolist()
            return Head(weight.astype(np.float64), bias, threshold, json.loads((file.metadata() or {}).get("card", "{}")))
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(f"is no safety head: {error}", where=str(path), remedy="python -m pipeline safety train") from None


def _sigmoid(x: Doubles) -> Doubles:
    made: Doubles = 1.0 / (1.0 + np.exp(-np.clip(x, -500, 500)))
    return made
