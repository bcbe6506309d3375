"""The decoding loop: one prefill, then a token per row and step; finished rows leave the batch. Greedy, sampled, or constrained.

What all rows of a batch begin with goes through the model once, and its keys and values are copied to every row. Written out instead of
`generate`, whose bookkeeping costs a small model more than its arithmetic. Knows no text and no pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from models.groups import shared
from models.hf import Loaded, new_cache

Allowed = Callable[[list[int], torch.Tensor], int]  # (tokens so far, this row's logits) → the next token


@dataclass
class Row:
    """One reply in the making. `choose` replaces the argmax where decoding is sampled or constrained.

    `kinds` are `ids` with a number of its own for each picture's placeholders (`Encoded.kinds`): rows that agree in them agree in pictures.
    """

    index: int
    ids: np.ndarray
    kinds: np.ndarray
    positions: np.ndarray  # (3 or 1, tokens)
    pictures: torch.Tensor | None  # (placeholders, hidden), in order
    limit: int
    choose: Allowed | None = None
    probe: tuple[int, ...] = ()
    out: list[int] = field(default_factory=list)
    probs: tuple[float, ...] = ()
    stopped: bool = False


def decode(loaded: Loaded, rows: Sequence[Row], looping: Callable[[list[int]], bool]) -> Iterator[Row]:
    """Yields each row when it ends: at an end token (`stopped`), at its limit, or in a loop. The end token is not in `out`."""
    with torch.inference_mode():
        cache = new_cache()
        logits, valid, place = _prefill(loaded, rows, cache)
        for row, scores in zip(rows, logits, strict=True):
            if row.probe:
                row.probs = tuple(torch.softmax(scores.float(), -1)[list(row.probe)].tolist())
        live = list(rows)
        step = 0
        while live:
            tokens = _next(live, logits)
            keep: list[int] = []
            for at, (row, token) in enumerate(zip(live, tokens, strict=True)):
                row.stopped = token in loaded.eos
                if not row.stopped:
                    row.out.append(token)
                if row.stopped or len(row.out) >= row.limit or (step % 32 == 31 and looping(row.out)):
                    yield row
                else:
                    keep.append(at)
            if not keep:
                return
            if len(keep) < len(live):
                chosen = torch.tensor(keep, device=loaded.device)
                cache.batch_select_indices(chosen)
                valid, place = valid[chosen], place[:, chosen]
                live = [live[at] for at in keep]
                tokens = [tokens[at] for at in keep]
            place = place + 1
            valid = torch.nn.functional.pad(valid, (0, 1), value=True)
            ids = torch.tensor(tokens, device=loaded.device)[:, None]
            logits = _forward(loaded, loaded.model.get_input_embeddings()(ids), _mask(valid, 1), place[..., None], cache)
            step += 1


def _next(live: Sequence[Row], logits: torch.Tensor) -> list[int]:
    tokens: list[int] = logits.argmax(-1).tolist()
    for at, row in enumerate(live):
        if row.choose is not None:
            tokens[at] = row.choose(row.out, logits[at])
    return tokens


def _prefill(loaded: Loaded, rows: Sequence[Row], cache: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Prompts through the model: (rows, vocabulary) logits, (rows, length) validity, (3 or 1, rows) last positions.

    The common beginning of all rows once, then the rest of each, padded on the left.
    """
    once = shared([row.kinds for row in rows])
    if once:
        _pass(loaded, rows[:1], 0, once, cache)
        cache.batch_repeat_interleave(len(rows))
    return _pass(loaded, rows, once, None, cache)


def _pass(loaded: Loaded, rows: Sequence[Row], begin: int, end: int | None, cache: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens `begin` to `end` of every row through the model; those before are in the cache. As `_prefill`."""
    parts = [row.ids[begin:end] for row in rows]
    length = max(map(len, parts))
    ids = np.zeros((len(rows), length), dtype=np.int64)
    valid = np.zeros((len(rows), begin + length), dtype=bool)
    valid[:, :begin] = True
    place = np.zeros((rows[0].positions.shape[0], len(rows), length), dtype=np.int64)
    for r, (row, part) in enumerate(zip(rows, parts, strict=True)):
        ids[r, length - len(part) :] = part
        valid[r, begin + length - len(part) :] = True
        place[:, r, length - len(part) :] = row.positions[:, begin:end]
    ids_t, valid_t, place_t = (torch.from_numpy(a).to(loaded.device) for a in (ids, valid, place))
    embeds = loaded.model.get_input_embeddings()(ids_t)
    pictures = [tokens for row in rows if (tokens := _shown(loaded, row, begin, end)) is not None]
    if pictures:
        slots = (ids_t == loaded.image_token) & valid_t[:, begin:]
        embeds = embeds.masked_scatter(slots[..., None], torch.cat(pictures).to(embeds.dtype))
    logits = _forward(loaded, embeds, _mask(valid_t, length), place_t, cache)
    return logits, valid_t, place_t[..., -1]


def _shown(loaded: Loaded, row: Row, begin: int, end: int | None) -> torch.Tensor | None:
    """The row's picture tokens whose placeholders stand from `begin` to `end`."""
    if row.pictures is None:
        return None
    slots = row.ids == loaded.image_token
    first = int(slots[:begin].sum())
    return row.pictures[first : first + int(slots[begin:end].sum())]


def _mask(valid: torch.Tensor, queries: int) -> torch.Tensor | None:
    """(rows, 1, queries, keys), True where attended. None when plain causal attention is meant (no padding, no cache)."""
    keys = valid.shape[1]
    if queries == 1:
        return None if bool(valid.all()) else valid[:, None, None, :]
    if queries == keys and bool(valid.all()):
        return None
    causal = torch.ones(queries, keys, dtype=torch.bool, device=valid.device).tril(keys - queries)
    # A padding row attends to itself: no row is empty, no NaN.
    own = torch.eye(queries, dtype=torch.bool, device=valid.device)
    own = torch.nn.functional.pad(own, (keys - queries, 0))
    return (causal & valid[:, None, :])[:, None] | own


def _forward(loaded: Loaded, embeds: torch.Tensor, mask: torch.Tensor | None, place: torch.Tensor, cache: Any) -> torch.Tensor:
    out = loaded.model(
        inputs_embeds=embeds,
        attention_mask=mask,
        position_ids=place if place.shape[0] == 3 else place[0],
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits: torch.Tensor = out.logits[:, -1]
    return logits
