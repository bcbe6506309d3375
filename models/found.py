"""The model folders that lie on this machine: looked for under given folders, held against the model cards. Reads headers, no weights.

Try: python -m models list --in /models
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.cards import Card, cards
from models.errors import ModelError
from models.shape import Shape, read_config, read_shape, shape_of
from models.weights import look

DEPTH = 6  # levels below a given folder; a hub's cache has its models on the third
_FACTS = ("heads", "kv_heads", "layers", "hidden", "intermediate", "vision_layers", "vision_hidden")


@dataclass(frozen=True)
class Found:
    """One model folder.

    Attributes:
        shape: None where it is no language model that a planner could spread.
        cards: the names of the cards that it may be.
        faults: what is wrong with its files.
    """

    folder: Path
    name: str
    shape: Shape | None
    shards: tuple[str, ...]
    cards: tuple[str, ...]
    faults: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Bytes of weights that can be read."""
        return self.shape.weight_bytes if self.shape is not None else 0


def search(places: Sequence[Path]) -> list[Found]:
    """Every folder with a config.json and weights (or an index of them) under `places`, each once, links followed. Raises ModelError
    when a place is not there."""
    found: dict[Path, Found] = {}
    for place in places:
        if not place.is_dir():
            raise ModelError("no such folder", where=str(place), remedy="give a folder that holds model folders")
        for folder in _folders(place, DEPTH, set()):
            found.setdefault(folder.resolve(), _look(folder))
    return sorted(found.values(), key=lambda one: (one.name.casefold(), str(one.folder)))


def _folders(place: Path, depth: int, seen: set[Path]) -> Iterator[Path]:
    real = place.resolve()
    if real in seen:  # a link that leads back
        return
    seen.add(real)
    try:
        with os.scandir(place) as entries:
            names = {entry.name: entry.is_dir() for entry in entries}
    except OSError:
        return
    if "config.json" in names and any(name.endswith((".safetensors", ".safetensors.index.json", ".bin", ".gguf")) for name in names):
        yield place
        return
    for name in sorted(names):
        if names[name] and depth and not name.startswith("."):
            yield from _folders(place / name, depth - 1, seen)


def _look(folder: Path) -> Found:
    try:
        read_config(folder)
    except ModelError as error:
        return Found(folder, name_of(folder), None, (), (), (f"config.json {error.what}",))
    try:
        shape, weights = read_shape(folder)
    except ModelError:  # an encoder, a classifier: no language model
        weights = look(folder)
        return Found(folder, name_of(folder), None, weights.shards, (), weights.faults)
    return Found(folder, name_of(folder), shape, weights.shards, fitting(shape, name_of(folder)), weights.faults)


def name_of(folder: Path) -> str:
    """The model's name by its folder: the folder's own, or in a hub's cache the repository's (models--OWNER--NAME/snapshots/…)."""
    for part in reversed(folder.absolute().parts):
        if part.startswith("models--") and part.count("--") >= 2:
            return part.split("--", 2)[2]
    return folder.absolute().name


def fitting(shape: Shape, name: str = "") -> tuple[str, ...]:
    """The cards that have this shape; the one of this name alone where it is among them (families share shapes)."""
    fit = [card for card in cards().values() if any(_same(shape, card, form) for form in card.forms)]
    named = [card for card in fit if card.name.casefold() == name.removesuffix("-hf").casefold()]
    return tuple(card.name for card in named or fit)


def _same(shape: Shape, card: Card, form: str) -> bool:
    known = shape_of(card.config("opengvlab" if form == "opengvlab" else "native"), 0)
    return shape.architecture == known.architecture and all(getattr(shape, fact) == getattr(known, fact) for fact in _FACTS)
