"""Constrained and sampled decoding, token by token: one of several choices (a trie of token ids), a regular expression, or top-p.

As vLLM does it: at each step the most probable token among those that keep the constraint satisfiable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import regex  # type: ignore[import-untyped]
import torch

from models.errors import CallFailed

Trie = dict[int, "Trie"]
_SCAN = 200  # candidates read whole, the most probable first; of the others only those that begin with a character that may come next


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
        for token in _candidates(text, logits.float(), compiled, tokenizer):
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


def _candidates(text: str, logits: torch.Tensor, compiled: Any, tokenizer: Any) -> Iterator[int]:
    """Tokens, the most probable first. A model that would rather say something else has the token that the pattern needs far down its
    list (SmolLM2, having said "No" of "None": beyond the first 2,000), so the whole vocabulary is looked through, by first characters. A
    tokenizer may put a space before a word that stands after others and leave it out where the word stands alone, hence the gap."""
    first = torch.topk(logits, min(_SCAN, len(logits))).indices.tolist()
    yield from first
    allowed = [
        token
        for character, tokens in _by_first_character(tokenizer, len(logits)).items()
        if any(compiled.fullmatch(text + gap + character, partial=True) is not None for gap in ("", " "))
        for token in tokens
    ]
    seen = frozenset(first)
    yield from sorted((token for token in allowed if token not in seen), key=lambda token: -float(logits[token]))


_VOCABULARIES: WeakKeyDictionary[Any, dict[str, list[int]]] = WeakKeyDictionary()


def _by_first_character(tokenizer: Any, size: int) -> dict[str, list[int]]:
    """first character → tokens whose text begins with it; read once a tokenizer. Parts of a character are left out."""
    found = _VOCABULARIES.get(tokenizer)
    if found is None:
        found = {}
        for token, piece in enumerate(tokenizer.batch_decode([[token] for token in range(size)], skip_special_tokens=True)):
            if piece and not piece.startswith("\ufffd"):
                found.setdefault(piece[0], []).append(token)
        _VOCABULARIES[tokenizer] = found
    return found


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
