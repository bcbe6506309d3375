"""Encoders for tests, fast and obeying the same protocols: bags of hashed words, 4 × 4 thumbnails."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from PIL import Image

from models.engines import Workload
from models.errors import CallFailed
from models.requests import Completion, Request
from pipeline.encoders import Nature
from pipeline.text_index import terms
from pipeline.vectors import Floats


class Words:
    """Texts as bags of hashed terms."""

    def __init__(self, dimension: int = 64, name: str = "words") -> None:
        self.nature = Nature(name, f"{name}/{dimension}", dimension)
        self.encoded = 0

    def encode(self, texts: Sequence[str]) -> Floats:
        self.encoded += len(texts)
        out = np.zeros((len(texts), self.nature.dimension), np.float32)
        for row, text in zip(out, texts, strict=True):
            for term in terms(text) or ["?"]:
                row[zlib.crc32(term.encode()) % len(row)] += 1
        return np.asarray(out / np.linalg.norm(out, axis=1, keepdims=True), np.float32) if len(out) else out


class Colours:
    """Pictures as 4 × 4 thumbnails."""

    nature = Nature("colours", "colours/1", 48)

    def encode(self, pictures: Sequence[Image.Image]) -> Floats:
        rows = [np.asarray(p.resize((4, 4)), np.float32).ravel() / 255 - 0.5 for p in pictures]
        out = np.stack(rows) if rows else np.zeros((0, 48), np.float32)
        return np.asarray(out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-6), np.float32)


def noise(seed: int, size: tuple[int, int] = (32, 24)) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST)


class Scripted:
    """A chat model that answers by what its prompt holds: the first rule whose words are all in the text. Keeps what it was asked."""

    name, digest, slots = "scripted", "scripted", 64
    can_constrain: frozenset[str] = frozenset()

    def __init__(self, *rules: tuple[str, str]) -> None:
        self.rules = rules
        self.asked: list[str] = []

    def check(self, work: Workload) -> None: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request.text)
        for words, reply in self.rules:
            if words in request.text:
                return Completion(reply)
        raise CallFailed("unscripted", request.text[:80])
