"""A model's shape as planning needs it, read from its own config.json (and its weights' headers). Loads nothing.

The same field lies at the top level (Qwen2.5-VL as published), under `text_config` (newer files, InternVL -hf) or under `llm_config`
(InternVL as OpenGVLab publishes it). Reading only the top level is how a planner takes InternVL3-78B for a model of one head.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import ModelError
from models.weights import Weights, look

_NESTS = ("text_config", "llm_config", "language_config")


@dataclass(frozen=True)
class Shape:
    """What decides how a model can be spread over GPUs.

    Attributes:
        heads, kv_heads, layers, hidden, head_dim, intermediate, vocabulary: of the language model.
        context: positions that the model was made for.
        vision_layers, vision_hidden: of the tower; 0 without one.
        patches_per_token: patches of the tower that become one token of the language model.
        weight_bytes, vision_bytes: bytes of all tensors, and of the tower and projector among them.
        own_code: the folder brings Python code of its own which the config asks to run.
    """

    architecture: str
    heads: int
    kv_heads: int
    layers: int
    hidden: int
    head_dim: int
    intermediate: int
    vocabulary: int
    context: int
    vision_layers: int
    vision_hidden: int
    weight_bytes: int
    vision_bytes: int
    own_code: bool = False
    quantized: str = ""

    def __post_init__(self) -> None:
        for name in ("heads", "kv_heads", "layers", "hidden", "head_dim", "intermediate", "vocabulary", "context"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name} is {getattr(self, name)}", where="config.json", remedy="a model has at least one")

    def kv_bytes_per_token(self, bytes_per_value: int = 2) -> int:
        """Bytes of keys and values that one token keeps in the cache, over all layers and GPUs."""
        return 2 * self.layers * self.kv_heads * self.head_dim * bytes_per_value

    @property
    def is_internvl(self) -> bool:
        return self.architecture.startswith("InternVL")

    @property
    def is_qwen(self) -> bool:
        return self.architecture.startswith("Qwen2")


def shape_of(config: Mapping[str, Any], weight_bytes: int, vision_bytes: int = 0) -> Shape:
    """The shape that a config.json (as a mapping) describes. Raises ModelError naming every field that is missing."""
    text = next((config[name] for name in _NESTS if isinstance(config.get(name), Mapping)), config)

    def number(*names: str, default: int | None = None) -> int:
        for source in (text, config):
            for name in names:
                value = source.get(name)
                if isinstance(value, int) and not isinstance(value, bool):
                    return value
        if default is None:
            missing.append(names[0])
        return default or 0

    missing: list[str] = []
    heads = number("num_attention_heads", "n_head")
    hidden = number("hidden_size", "n_embd")
    layers = number("num_hidden_layers", "n_layer")
    intermediate, vocabulary = number("intermediate_size"), number("vocab_size")
    if missing:
        raise ModelError(
            f"lacks {', '.join(missing)}", where="config.json", remedy=f"looked at the top level and under {', '.join(_NESTS)}"
        )
    vision = config.get("vision_config") or {}
    layers_seen = next((vision[name] for name in ("depth", "num_hidden_layers") if isinstance(vision.get(name), int)), 0)
    architectures = config.get("architectures") or ["unknown"]
    return Shape(
        architecture=str(architectures[0]),
        heads=heads,
        kv_heads=number("num_key_value_heads", default=heads),
        layers=layers,
        hidden=hidden,
        head_dim=number("head_dim", default=max(1, hidden // max(1, heads))),
        intermediate=intermediate,
        vocabulary=vocabulary,
        context=number("max_position_embeddings", default=4096),
        vision_layers=layers_seen,
        vision_hidden=vision.get("hidden_size", 0) if isinstance(vision.get("hidden_size", 0), int) else 0,
        weight_bytes=weight_bytes,
        vision_bytes=vision_bytes,
        own_code=bool(config.get("auto_map")),
        quantized=str((config.get("quantization_config") or {}).get("quant_method", "")),
    )


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json. Raises ModelError."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelError("no config.json", where=str(folder), remedy="give the folder of a model in Hugging Face layout") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"cannot be read: {error}", where=str(path), remedy="copy the model's folder again") from None
    if not isinstance(config, dict):
        raise ModelError("is not a JSON object", where=str(path), remedy="copy the model's folder again")
    return config


def read_shape(folder: Path | str) -> tuple[Shape, Weights]:
    """Shape and weights of a model folder. Raises ModelError when config.json cannot be used; weights' faults are in Weights."""
    folder = Path(folder)
    weights = look(folder)
    try:
        return shape_of(read_config(folder), weights.bytes, weights.vision_bytes), weights
    except ModelError as error:
        raise ModelError(
            error.what, where=error.where if error.where != "config.json" else str(folder / "config.json"), remedy=error.remedy
        ) from None
