"""Relevance without a trained classifier: cosine of query and passage in the text encoder's space, as a number from 0 to 1.

Stands in where no adapter is shipped or named: a cross-encoder whose head nobody has trained ranks at random.
Try: python -c "from pipeline.encoders import text_encoder; from pipeline.relevance.similarity import Similarity
print(Similarity(text_encoder()).scores([('swept wings', 'stall of a wing'), ('swept wings', 'cake')]))"
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.encoders import TextEncoder


@dataclass(frozen=True)
class Similarity:
    """Scores pairs as pipeline.relevance.classifier does; no probability, only an order."""

    encoder: TextEncoder

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"similarity 1 {self.encoder.nature.digest}".encode()).hexdigest()

    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """(1 + cosine) / 2 of each (query, passage); a text that stands in several pairs is encoded once."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        vectors = dict(zip(texts, self.encoder.encode(texts), strict=True))
        return [(1.0 + float(vectors[query] @ vectors[passage])) / 2 for query, passage in pairs]
