"""ELECTRA's discriminator with its classification head, in plain torch; the names of its tensors are those of published checkpoints.

BERT checkpoints of equal layout (all-MiniLM-L6-v2) load into it: every key but the pooler's matches. Low-rank adapters (LoRA) are
added for training and merged for use. Knows no tokenizer and no data. Try: python -m pipeline relevance info
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from models.errors import ModelError


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of a config.json."""

    vocab_size: int
    embedding_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float

    @staticmethod
    def of(folder: Path) -> Sizes:
        """Raises ModelError when config.json is missing or tells of another architecture."""
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            if config.get("model_type") not in ("electra", "bert"):
                raise ModelError(f"model_type {config.get('model_type')!r}", where=str(folder), remedy="give an ELECTRA or BERT folder")
            if config.get("hidden_act", "gelu") != "gelu":
                raise ModelError(f"activation {config['hidden_act']!r}", where=str(folder), remedy="only gelu is known")
            config.setdefault("embedding_size", config["hidden_size"])
            return Sizes(**{name: config[name] for name in Sizes.__dataclass_fields__})
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(f"its config.json cannot be used: {error!r}", where=str(folder), remedy="give an ELECTRA folder") from None


class _Attention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.self = nn.ModuleDict({name: nn.Linear(sizes.hidden_size, sizes.hidden_size) for name in ("query", "key", "value")})
        self.output = nn.ModuleDict(
            {"dense": nn.Linear(sizes.hidden_size, sizes.hidden_size), "LayerNorm": nn.LayerNorm(sizes.hidden_size, sizes.layer_norm_eps)}
        )
        self.heads = sizes.num_attention_heads

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (self.self[name](x).view(batch, length, self.heads, -1).transpose(1, 2) for name in ("query", "key", "value"))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        made: Tensor = self.output["LayerNorm"](self.output["dense"](mixed.transpose(1, 2).reshape(batch, length, width)) + x)
        return made


class _Layer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention = _Attention(sizes)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(sizes.hidden_size, sizes.intermediate_size)})
        self.output = nn.ModuleDict(
            {
                "dense": nn.Linear(sizes.intermediate_size, sizes.hidden_size),
                "LayerNorm": nn.LayerNorm(sizes.hidden_size, sizes.layer_norm_eps),
            }
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(x, mask)
        made: Tensor = self.output["LayerNorm"](self.output["dense"](F.gelu(self.intermediate["dense"](x))) + x)
        return made


class _Embeddings(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(sizes.vocab_size, sizes.embedding_size)
        self.position_embeddings = nn.Embedding(sizes.max_position_embeddings, sizes.embedding_size)
        self.token_type_embeddings = nn.Embedding(sizes.type_vocab_size, sizes.embedding_size)
        self.LayerNorm = nn.LayerNorm(sizes.embedding_size, sizes.layer_norm_eps)

    def forward(self, ids: Tensor, types: Tensor) -> Tensor:
        positions = self.position_embeddings.weight[: ids.shape[1]]
        made: Tensor = self.LayerNorm(self.word_embeddings(ids) + self.token_type_embeddings(types) + positions)
        return made


class _Body(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embeddings = _Embeddings(sizes)
        if sizes.embedding_size != sizes.hidden_size:
            self.embeddings_project = nn.Linear(sizes.embedding_size, sizes.hidden_size)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(_Layer(sizes) for _ in range(sizes.num_hidden_layers))})

    def forward(self, ids: Tensor, types: Tensor, lengths: Tensor) -> Tensor:
        mask = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None])[:, None, None, :]
        x: Tensor = self.embeddings(ids, types)
        if hasattr(self, "embeddings_project"):
            x = self.embeddings_project(x)
        for layer in self.encoder["layer"].children():
            x = layer(x, mask)
        return x


class Electra(nn.Module):
    """(ids, types, lengths), each of `batch` rows padded to one length → one logit a row, shape (batch,)."""

    def __init__(self, sizes: Sizes, dropout: float = 0.0) -> None:
        super().__init__()
        self.sizes = sizes
        self.electra = _Body(sizes)
        self.classifier = nn.ModuleDict(
            {"dense": nn.Linear(sizes.hidden_size, sizes.hidden_size), "out_proj": nn.Linear(sizes.hidden_size, 1)}
        )
        self.dropout = dropout

    def forward(self, ids: Tensor, types: Tensor, lengths: Tensor) -> Tensor:
        first = F.dropout(self.electra(ids, types, lengths)[:, 0], self.dropout, self.training)
        hidden = F.dropout(F.gelu(self.classifier["dense"](first)), self.dropout, self.training)
        made: Tensor = self.classifier["out_proj"](hidden)[:, 0]
        return made


def load(folder: Path, seed: int = 0) -> Electra:
    """The network of a local folder; a head that the checkpoint lacks is drawn from `seed`. Raises ModelError."""
    sizes = Sizes.of(folder)
    path = folder / "model.safetensors"
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        remedy = "safetensors only; convert a .bin with the tools of its publisher"
        raise ModelError(f"its weights cannot be read: {error}", where=str(path), remedy=remedy) from None
    torch.manual_seed(seed)
    network = Electra(sizes)
    nn.init.normal_(network.classifier["out_proj"].weight, std=0.02)  # type: ignore[arg-type]
    nn.init.zeros_(network.classifier["out_proj"].bias)  # type: ignore[arg-type]
    renamed = {_renamed(name): tensor for name, tensor in tensors.items()}
    kept = {name: tensor for name, tensor in renamed.items() if name in network.state_dict()}
    try:
        missing = network.load_state_dict(kept, strict=False).missing_keys
    except RuntimeError as error:
        raise ModelError(f"its tensors have other shapes: {error}", where=str(path)) from None
    lacking = [name for name in missing if not name.startswith("classifier.")]
    if lacking:
        raise ModelError(f"lacks {', '.join(lacking[:3])} …", where=str(path), remedy="give an ELECTRA or BERT checkpoint")
    return network.eval()


def _renamed(name: str) -> str:
    name = name.removeprefix("bert.").removeprefix("electra.").removeprefix("discriminator.")
    return name if name.startswith("classifier.") else f"electra.{name}"


class LoRA(nn.Module):
    """A frozen linear layer and a low-rank change beside it: W + (alpha / rank) · B A."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.A = nn.Parameter(torch.empty(rank, base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.A, a=5**0.5)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.base(x) + (x @ self.A.T @ self.B.T) * self.scale
        return made


def linears(network: Electra, from_layer: int = 0) -> Iterator[tuple[str, nn.ModuleDict, str]]:
    """(name, owner, key) of every linear layer of the encoder from layer `from_layer` on."""
    for name, module in network.electra.named_modules():
        if isinstance(module, nn.ModuleDict) and name.startswith("encoder.layer.") and int(name.split(".")[2]) >= from_layer:
            for key, child in module.items():
                if isinstance(child, (nn.Linear, LoRA)):
                    yield f"electra.{name}.{key}", module, key


def add_lora(network: Electra, rank: int, alpha: float, from_layer: int = 0) -> list[nn.Parameter]:
    """Freeze the network but for its head, put a LoRA beside every linear layer, and return what is to be trained."""
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    for _, owner, key in list(linears(network, from_layer)):
        base: Any = owner[key]
        owner[key] = LoRA(base, rank, alpha)
    for parameter in network.classifier.parameters():
        parameter.requires_grad_(True)
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def adapter_of(network: Electra) -> dict[str, Tensor]:
    """What training changed: LoRA factors (scaled) and the head, float16."""
    out: dict[str, Tensor] = {}
    for name, owner, key in linears(network):
        layer = owner[key]
        if isinstance(layer, LoRA):
            out[f"{name}.A"] = layer.A.detach().half().contiguous()
            out[f"{name}.B"] = (layer.B.detach() * layer.scale).half().contiguous()
    out |= {f"classifier.{name}": tensor.detach().half().contiguous() for name, tensor in network.classifier.state_dict().items()}
    return out


def merge(network: Electra, adapter: dict[str, Tensor]) -> None:
    """Add an adapter to the weights. Raises ModelError when it belongs to another architecture."""
    owners = {name: (owner, key) for name, owner, key in linears(network)}
    for name in [name.removesuffix(".A") for name in adapter if name.endswith(".A")]:
        a, b = adapter[f"{name}.A"].float(), adapter[f"{name}.B"].float()
        layer: Any = owners[name][0][owners[name][1]] if name in owners else None
        if layer is None or layer.weight.shape != (b.shape[0], a.shape[1]):
            raise ModelError(f"the adapter changes {name}, which the network lacks or holds in another shape", remedy="use its own base")
        with torch.no_grad():
            layer.weight += b @ a
    head = {name.removeprefix("classifier."): tensor.float() for name, tensor in adapter.items() if name.startswith("classifier.")}
    network.classifier.load_state_dict(head)
