"""Which prompts share a forward pass: those that begin alike and are of like length, so that little is computed twice or for padding.

Prompts are put in the order of their tokens, where siblings stand side by side, and in that of their lengths; the one that can be cut into
cheaper batches counts. Knows no model. Try: python -m pytest tests/models/test_groups.py
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

PASS = 256  # what a batch costs besides its prompts, in prompt tokens: some thirty steps that read all weights for a token a row
SHARED = 32  # a shorter common beginning is not worth a pass of its own


def common(a: np.ndarray, b: np.ndarray) -> int:
    """Length of the longest common prefix."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


def shared(prompts: Sequence[np.ndarray]) -> int:
    """Tokens at the beginning that are computed once for all of these; 0 where that does not pay. Each keeps a token of its own."""
    if len(prompts) < 2:
        return 0
    first, last = min(prompts, key=lambda p: p.tolist()), max(prompts, key=lambda p: p.tolist())
    length = min(common(first, last), min(map(len, prompts)) - 1)
    return length if length >= SHARED else 0


def groups(prompts: Sequence[np.ndarray], rows: int, tokens: int) -> list[list[int]]:
    """Positions of `prompts`, each once, cut into batches; the largest batch first, so that one that does not fit fails early.

    Args:
        prompts: token ids; pictures carry numbers of their own (`Encoded.kinds`).
        rows: prompts of a batch, at most. tokens: their tokens, padding included, at most; a longer prompt is a batch of its own.
    """
    places = range(len(prompts))
    orders = (sorted(places, key=lambda i: (prompts[i].tolist(), i)), sorted(places, key=lambda i: (-len(prompts[i]), i)))
    _, cut = min((_cut([prompts[i] for i in order], order, rows, tokens) for order in orders), key=lambda found: found[0])
    return sorted(cut, key=lambda group: (-max(len(prompts[i]) for i in group) * len(group), group))


def _cut(prompts: Sequence[np.ndarray], names: Sequence[int], rows: int, tokens: int) -> tuple[int, list[list[int]]]:
    """The cheapest cut of prompts that stay in this order, and its cost in prompt tokens."""
    alike = [common(a, b) for a, b in pairwise(prompts)]  # the common prefix of many is the least of their neighbours', in any order
    best, begin = [0], [0]  # of the first n prompts: the least cost, and where its last batch begins
    for end in range(1, len(prompts) + 1):
        found = (1 << 62, 0)
        widest, least, prefix = 0, 1 << 62, 1 << 62
        for start in range(end - 1, max(-1, end - 1 - rows), -1):
            count, length = end - start, len(prompts[start])
            widest, least = max(widest, length), min(least, length)
            prefix = min(prefix, alike[start]) if count > 1 else prefix
            if count > 1 and widest * count > tokens:
                break
            once = min(prefix, least - 1) if count > 1 else 0
            once = once if once >= SHARED else 0
            found = min(found, (best[start] + PASS + once + count * (widest - once), start))
        best.append(found[0])
        begin.append(found[1])
    cut: list[list[int]] = []
    end = len(prompts)
    while end:
        cut.append(sorted(names[begin[end] : end]))
        end = begin[end]
    return best[-1], cut
