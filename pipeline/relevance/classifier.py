"""P(relevant) for (query, passage) pairs: batched by length, a token budget a batch, bf16 where the processor multiplies it fast.

Takes query and passage apart, as they are: a classifier is not a chat model. Knows no index.
Try: python -m pipeline relevance score "how do wings stall" "stall of swept wings" "cake recipes"
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from models.errors import ModelError
from pipeline.encoders import digest_of, minilm_folder
from pipeline.relevance import electra


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of tokens padded to one length, and where they stood in the caller's list."""

    rows: list[int]
    ids: torch.Tensor
    types: torch.Tensor
    lengths: torch.Tensor


class RelevanceClassifier:
    """An ELECTRA folder, an adapter merged into it, and the tokenizer beside it.

    Args:
        base: a folder in ELECTRA's or BERT's layout; None is the embedded all-MiniLM-L6-v2.
        adapter: a .safetensors that `python -m pipeline relevance export` wrote; None for none.
        max_tokens: of a pair; see `Pairs` for what is cut.
        budget: tokens in one batch, padding included.
        dtype: "float32", "bfloat16", or "auto": bfloat16 where the processor has instructions for it.

    Raises ModelError when a file cannot be used or the adapter belongs to another base.
    """

    def __init__(
        self,
        base: Path | None = None,
        adapter: Path | None = None,
        *,
        max_tokens: int = 256,
        budget: int = 8192,
        dtype: str = "auto",
        device: str = "cpu",
    ) -> None:
        self.base = base or minilm_folder()
        self.network = electra.load(self.base)
        self.max_tokens = min(max_tokens, self.network.sizes.max_position_embeddings)
        self.adapter, self.budget, self.device = adapter, budget, device
        self.card: dict[str, Any] = {}
        if adapter is not None:
            tensors, self.card = read_adapter(adapter)
            if self.card.get("base_digest") not in (None, digest_of(self.base)):
                what = f"was trained on a base of digest {self.card['base_digest'][:12]}, the base here has {digest_of(self.base)[:12]}"
                raise ModelError(what, where=str(adapter), remedy="use its own base, or train again")
            electra.merge(self.network, tensors)
        self.dtype = _dtype(dtype, device)
        self.network.to(device=device, dtype=self.dtype).eval()

    @cached_property
    def digest(self) -> str:
        parts = [digest_of(self.base), self.adapter.read_bytes().hex() if self.adapter else "", str(self.max_tokens), str(self.dtype)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @cached_property
    def tokenizer(self) -> Pairs:
        return Pairs.of(self.base, self.max_tokens)

    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """P(relevant), 0 to 1, for each (query, passage), in the order given."""
        return torch.sigmoid(self.logits(pairs)).tolist()

    def logits(self, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
        """Logits, float32, shape (len(pairs),)."""
        out = torch.zeros(len(pairs))
        with torch.inference_mode():
            for batch in batches(self.tokenizer, pairs, self.budget):
                tensors = (t.to(self.device) for t in (batch.ids, batch.types, batch.lengths))
                out[batch.rows] = self.network(*tensors).float().cpu()
        return out

    def rank(self, query: str, passages: Sequence[str]) -> list[tuple[int, float]]:
        """(position, P(relevant)), best first; equal scores keep their order."""
        scores = self.scores([(query, passage) for passage in passages])
        return sorted(enumerate(scores), key=lambda pair: -pair[1])


def _dtype(name: str, device: str) -> torch.dtype:
    if name == "auto":
        fast = device != "cpu" or torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
        return torch.bfloat16 if fast else torch.float32
    if name not in ("float32", "bfloat16"):
        raise ModelError(f"dtype {name!r}", remedy="use float32, bfloat16 or auto")
    return torch.float32 if name == "float32" else torch.bfloat16


@dataclass(frozen=True, slots=True)
class Pairs:
    """The tokenizer of a folder, making ``[CLS] query [SEP] passage [SEP]`` of at most `max_tokens`: the passage is cut first, the query
    only beyond half of the room. Texts are cut by characters before, since tokenizers keep all that they cut off."""

    tokenizer: Tokenizer
    max_tokens: int
    start: int
    end: int

    @staticmethod
    def of(folder: Path, max_tokens: int) -> Pairs:
        """Raises ModelError when the folder lacks a fast tokenizer or its two special tokens."""
        path = folder / "tokenizer.json"
        if not path.exists():
            raise ModelError("there is no tokenizer.json", where=str(folder), remedy="give a folder with a fast tokenizer")
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        start, end = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
        if start is None or end is None:
            raise ModelError("its tokenizer lacks [CLS] or [SEP]", where=str(folder), remedy="give an ELECTRA or BERT folder")
        return Pairs(tokenizer, max_tokens, start, end)

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], int]]:
        """(ids, where the passage begins) of each pair; a text that stands in several pairs is read once."""
        most = 20 * self.max_tokens  # characters
        distinct = list(dict.fromkeys(text[:most] for pair in pairs for text in pair))
        found = self.tokenizer.encode_batch(distinct, add_special_tokens=False)
        known = {text: encoding.ids for text, encoding in zip(distinct, found, strict=True)}
        room, out = self.max_tokens - 3, []
        for query, passage in pairs:
            q, p = known[query[:most]], known[passage[:most]]
            q = q[: max(room // 2, room - len(p))]
            p = p[: room - len(q)]
            out.append(([self.start, *q, self.end, *p, self.end], len(q) + 2))
        return out


def batches(tools: Pairs, pairs: Sequence[tuple[str, str]], budget: int) -> Iterator[Batch]:
    """Pairs of like length together, longest first, so that a batch that does not fit fails at once."""
    encoded = tools.encode(pairs)
    order = sorted(range(len(pairs)), key=lambda i: -len(encoded[i][0]))
    at = 0
    while at < len(order):
        longest = len(encoded[order[at]][0])
        rows = order[at : at + max(1, budget // longest)]
        at += len(rows)
        ids = torch.zeros(len(rows), longest, dtype=torch.long)
        types = torch.zeros_like(ids)
        for row, i in enumerate(rows):
            tokens, second = encoded[i]
            ids[row, : len(tokens)] = torch.tensor(tokens)
            types[row, second : len(tokens)] = 1
        yield Batch(rows, ids, types, torch.tensor([len(encoded[i][0]) for i in rows]))


def read_adapter(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """(tensors, card) of an adapter file. Raises ModelError."""
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            return tensors, json.loads((file.metadata() or {}).get("card", "{}"))
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(f"is no adapter: {error}", where=str(path), remedy="`python -m pipeline relevance export` writes one") from None
