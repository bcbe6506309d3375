"""Constrained and sampled decoding, token by token: one of several choices (a trie of token ids), a regular expression, or top-p.

As vLLM does it: at each step the most probable token among those that keep the constraint satisfiable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import regex  # type: ignore[import-untyped]
import torch

from models.errors import CallFailed

Trie = dict[int, "Trie"]
_SCAN = 2000  # candidates of a pattern tried before giving up: the vocabulary's tail cannot be what the model means


def trie_of(sequences: Sequence[Sequence[int]], end: int) -> Trie:
    """A trie in which every sequence is closed by `end`."""
    root: Trie = {}
    for sequence in sequences:
        node = root
        for token in (*sequence, end):
            node = node.setdefault(token, {})
    return root


def one_of(sequences: Sequence[Sequence[int]], end: int, pick: Callable[[torch.Tensor], int]) -> Callable[[list[int], torch.Tensor], int]:
    """Walks the trie; `pick` chooses among the allowed logits."""
    root = trie_of(sequences, end)

    def choose(out: list[int], logits: torch.Tensor) -> int:
        node = root
        for token in out:
            node = node[token]
        allowed = list(node)
        return allowed[0] if len(allowed) == 1 else allowed[pick(logits[allowed])]

    return choose


def matching(pattern: str, tokenizer: Any, ends: Collection[int]) -> Callable[[list[int], torch.Tensor], int]:
    """The most probable token after which the text can still be completed to a full match. Raises CallFailed("bad-pattern")."""
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise CallFailed("bad-pattern", f"{pattern!r}: {error}") from None
    end = min(ends)

    def choose(out: list[int], logits: torch.Tensor) -> int:
        text = tokenizer.decode(out, skip_special_tokens=True)
        whole = compiled.fullmatch(text) is not None
        for token in torch.topk(logits.float(), min(_SCAN, len(logits))).indices.tolist():
            if token in ends:
                if whole:
                    return int(token)
                continue
            longer = tokenizer.decode([*out, token], skip_special_tokens=True)
            if longer != text and compiled.fullmatch(longer, partial=True) is not None:
                return int(token)
        if whole:
            return int(end)
        raise CallFailed("pattern", f"no token continues {text[-80:]!r} towards {pattern!r}")

    return choose


def sampler(temperature: float, top_p: float, seed: int) -> Callable[[torch.Tensor], int]:
    """Draws from logits; the draws depend on the seed and on how many came before, not on the rest of a batch."""
    generator = torch.Generator().manual_seed(seed)

    def pick(logits: torch.Tensor) -> int:
        probs, order = torch.softmax(logits.float().cpu() / temperature, -1).sort(descending=True)
        if top_p < 1:
            probs = probs.where(probs.cumsum(-1) - probs < top_p, 0.0)
        return int(order[torch.multinomial(probs, 1, generator=generator)])

    return pick


def greedy(logits: torch.Tensor) -> int:
    return int(logits.argmax())
