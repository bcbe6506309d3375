"""How much of a run's prompts a perfect prefix cache could serve: a radix tree over the tokenized calls, in their order of sending.

Perfect: it never forgets, takes no time, and knows a call's prompt as soon as the call is sent. What a server computed beyond that
is what its cache, its block size and its evictions cost. Replies are not counted as prefixes. Works on token ids alone; pictures come
as one id per picture, repeated, so that equal pictures are equal prefixes (`models.encode.Encoded.kinds`).

The idea of the tree: Zheng et al., SGLang: Efficient Execution of Structured Language Model Programs (2024), section 3.
Try: python -c "from models.radix import bound; print(bound([[1, 2, 3], [1, 2, 4]]))"
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Bound:
    """What a perfect cache does for these calls.

    Attributes:
        calls, prompt_tokens: how many, all of them.
        served: tokens that need not be computed; at least one token of each call must be, or there would be nothing to predict from.
        each: (calls,) served tokens of each call, in order.
    """

    calls: int
    prompt_tokens: int
    served: int
    each: tuple[int, ...] = field(repr=False)

    @property
    def share(self) -> float:
        """served / prompt_tokens, 0 to 1 (0 without calls)."""
        return self.served / self.prompt_tokens if self.prompt_tokens else 0.0


@dataclass
class _Node:
    edge: np.ndarray
    children: dict[int, _Node]


class Radix:
    """The tree. `add` tells how long a prefix of the new sequence was there before."""

    def __init__(self) -> None:
        self._root = _Node(np.empty(0, dtype=np.int64), {})

    def add(self, tokens: Sequence[int] | np.ndarray) -> int:
        """Inserts (n,) integers; hands out the length of the longest prefix that an earlier sequence shares."""
        row = np.asarray(tokens, dtype=np.int64)
        node, at = self._root, 0
        while at < len(row):
            child = node.children.get(int(row[at]))
            if child is None:
                node.children[int(row[at])] = _Node(row[at:], {})
                return at
            same = _common(child.edge, row[at:])
            at += same
            if same < len(child.edge):
                if at == len(row):
                    return at  # a prefix of what is there: nothing to add
                stem = _Node(child.edge[:same], {int(child.edge[same]): child})
                node.children[int(stem.edge[0])] = stem
                child.edge = child.edge[same:]
                stem.children[int(row[at])] = _Node(row[at:], {})
                return at
            node = child
        return at


def _common(a: np.ndarray, b: np.ndarray) -> int:
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n


def bound(calls: Iterable[Sequence[int] | np.ndarray], block: int = 1) -> Bound:
    """The bound for calls in their order of sending. With `block` > 1 only whole blocks of that many tokens are served, as vLLM does."""
    if block < 1:
        raise ValueError(f"a block of {block} tokens; at least 1")
    tree, each, total = Radix(), [], 0
    for tokens in calls:
        shared = tree.add(tokens)
        total += len(tokens)
        each.append(min(shared, max(0, len(tokens) - 1)) // block * block)
    return Bound(len(each), total, sum(each), tuple(each))
