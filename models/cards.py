"""Model cards: the facts of cards.toml as typed rows. Knows no folder and no GPU; what a folder's config.json says wins over a card.

Try: python -c "from models.cards import card_named; print(card_named('Qwen2.5-VL-7B-Instruct'))"
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from models.errors import ConfigError


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Language(_Row):
    """A language model's shape. `parameters` counts embeddings once when they are tied."""

    model_type: str
    heads: int
    kv_heads: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    parameters: float


class Vision(_Row):
    layers: int
    hidden: int
    heads: int
    parameters: float


class Budget(_Row):
    """How many tokens a picture takes: see the two kinds in cards.toml."""

    kind: Literal["grid", "tiles"]
    multiple: int = 28
    min_pixels: int = 0
    max_pixels: int = 0
    side: int = 448
    max_tiles: int = 12
    tokens_per_tile: int = 256

    def most_tokens(self, max_pixels: int | None = None, max_tiles: int | None = None) -> int:
        """The most tokens that one picture can take, start and end marks included, under a lowered budget if one is given.

        Qwen2.5-VL at its published budget: 12,845,056 pixels, 16,384 tokens. InternVL: 12 tiles and a thumbnail, 3,328 tokens.
        """
        if self.kind == "grid":
            return (max_pixels or self.max_pixels) // self.multiple**2 + 2
        tiles = max_tiles or self.max_tiles
        return (tiles + (1 if tiles > 1 else 0)) * self.tokens_per_tile + 2


class Card(_Row):
    """One published model. `forms`: "native" loads with the library's own code, "opengvlab" brings local code of its own."""

    name: str
    family: str
    language: Language
    vision: Vision
    budget: Budget
    context: int
    forms: tuple[Literal["native", "opengvlab"], ...]
    licence: str
    transformers: str

    @property
    def parameters(self) -> float:
        return self.language.parameters + self.vision.parameters

    def config(self, form: Literal["native", "opengvlab"] = "native") -> dict[str, object]:
        """The fields of this model's config.json that planning reads, laid out as that form lays them out (InternVL: one level down)."""
        text = self.language
        language: dict[str, object] = {
            "model_type": text.model_type,
            "num_attention_heads": text.heads,
            "num_key_value_heads": text.kv_heads,
            "num_hidden_layers": text.layers,
            "hidden_size": text.hidden,
            "intermediate_size": text.intermediate,
            "vocab_size": text.vocabulary,
            "max_position_embeddings": self.context,
        }
        tower = self.vision
        if self.family == "qwen2.5-vl":
            eyes = {"depth": tower.layers, "hidden_size": tower.hidden, "num_heads": tower.heads}
            head = {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl"}
            return {**language, **head, "vision_config": eyes}
        eyes = {"num_hidden_layers": tower.layers, "hidden_size": tower.hidden, "num_attention_heads": tower.heads}
        if form == "native":
            head = {"architectures": ["InternVLForConditionalGeneration"], "model_type": "internvl"}
            return {**head, "text_config": language, "vision_config": eyes}
        head = {"architectures": ["InternVLChatModel"], "model_type": "internvl_chat"}
        return {
            **head,
            "llm_config": language,
            "vision_config": eyes,
            "auto_map": {"AutoModel": "modeling_internvl_chat.InternVLChatModel"},
        }


@lru_cache(maxsize=1)
def cards() -> dict[str, Card]:
    """Every card, by name."""
    with Path(__file__).with_name("cards.toml").open("rb") as file:
        table = tomllib.load(file)
    found = {}
    for row in table["card"]:
        parts = {kind: table[kind][row[kind]] for kind in ("language", "vision", "budget")}
        found[row["name"]] = Card.model_validate({**row, **parts})
    return found


def card_named(name: str) -> Card:
    """The card of this name (``-hf``, an owner's prefix and capitals are ignored). Raises ConfigError naming those that exist."""
    wanted = name.rsplit("/", 1)[-1].removesuffix("-hf").casefold()
    for card in cards().values():
        if card.name.casefold() == wanted or card.name.removesuffix("-Instruct").casefold() == wanted:
            return card
    raise ConfigError(f"no model card {name!r}", remedy=f"one of: {', '.join(cards())}; or give the model's folder")
