"""A profile's prompts as tokens: how many are pictures', and what a perfect prefix cache could have served of each pass.

Works on the requests that stand in the passes' journals, and on whoever can tokenize them. Knows no server.
Try: python -m pytest tests/models/test_profile_tokens.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.journal import Journal, restore
from models.profile import Level
from models.radix import bound
from models.requests import Request

Tokenize = Callable[[Sequence[Request]], list[np.ndarray]]
"""Requests → (tokens,) of each, pictures as negative numbers (models.tokenized); an empty row for one that cannot be tokenized."""


@dataclass(frozen=True)
class Prefix:
    """Prompt tokens of one pass.

    Attributes:
        prompt: all of them. served: those that the server's cache had, as it says itself (None where it does not).
        perfect, blocks: what a radix cache that never forgets could have served in the order of sending, token by token and in whole
            blocks of `block` tokens.
    """

    concurrency: int
    repetition: int
    calls: int
    prompt: int
    perfect: int
    blocks: int
    block: int
    served: int | None

    @property
    def reached(self) -> float | None:
        """What the server's cache served of what blocks allow, 0 to 1."""
        return self.served / self.blocks if self.served is not None and self.blocks else None


def requests_of(level: Level) -> dict[str, Request]:
    """The requests of the calls that came back, by key, from the pass's journal."""
    if level.path is None or not level.path.is_file():
        return {}
    with Journal(level.path, writable=False) as journal:
        found = {record.key: journal.request(record.key) for record, _ in level.completions}
    return {key: restore(described) for key, described in found.items() if described is not None}


def tokens_of(levels: Sequence[Level], tokenize: Tokenize) -> dict[str, np.ndarray]:
    """Key → tokens, each distinct request tokenized once; requests that could not be tokenized are left out."""
    wanted: dict[str, Request] = {}
    for level in levels:
        for key, request in requests_of(level).items():
            wanted.setdefault(key, request)
    rows = tokenize(list(wanted.values()))
    return {key: row for key, row in zip(wanted, rows, strict=True) if len(row)}


def image_tokens(tokens: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Key → how many of the call's tokens stand for pictures."""
    return {key: int((row < 0).sum()) for key, row in tokens.items()}


def prefixes(levels: Sequence[Level], tokens: Mapping[str, np.ndarray], block: int) -> list[Prefix]:
    """One row for each pass all of whose calls were tokenized."""
    found = []
    for level in levels:
        sent = sorted(level.completions, key=lambda pair: pair[0].started)
        if not sent or not all(record.key in tokens for record, _ in sent):
            continue
        rows = [tokens[record.key] for record, _ in sent]
        told = [reply.cached_tokens for _, reply in sent if reply.cached_tokens is not None]
        whole, in_blocks = bound(rows), bound(rows, block)
        served = sum(told) if told else None
        found.append(
            Prefix(level.concurrency, level.repetition, len(sent), whole.prompt_tokens, whole.served, in_blocks.served, block, served)
        )
    return found
