"""Requests → token ids with the chat template, pictures expanded to their placeholders; and the words of constraints as ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.errors import CallFailed
from models.hf import Loaded, Size, tokens_of
from models.requests import Request


@dataclass(frozen=True)
class Encoded:
    """One request as the model reads it.

    Attributes:
        ids: (tokens,) int64, each picture's placeholder repeated for its tokens.
        sizes: per picture, in order.
        kinds: (tokens,) int64: `ids`, but placeholders carry a number of their picture, so that equal prefixes compare equal.
    """

    ids: np.ndarray
    sizes: tuple[Size, ...]
    kinds: np.ndarray


def render(loaded: Loaded, request: Request) -> str:
    """The prompt as text. Raises CallFailed("template") when the chat template refuses the turns."""
    turns: list[dict[str, Any]] = []
    for message in request.messages:
        if not message.pictures:
            turns.append({"role": message.role, "content": message.text})
        else:
            content = [{"type": "text", "text": part} if isinstance(part, str) else {"type": "image"} for part in message.parts]
            turns.append({"role": message.role, "content": content})
    try:
        return str(loaded.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # jinja2's own errors, and whatever a template's raise_exception says
        raise CallFailed("template", str(error)) from None


def encode(loaded: Loaded, requests: Sequence[Request], sizes: dict[str, Size]) -> list[Encoded | CallFailed]:
    """All requests at once (the tokenizer works in batches). `sizes`: picture digest → size, for every usable picture."""
    if not requests:
        return []
    texts: list[str] = []
    failed: dict[int, CallFailed] = {}
    for i, request in enumerate(requests):
        try:
            texts.append(render(loaded, request))
        except CallFailed as error:
            texts.append("")
            failed[i] = error
    rows = loaded.tokenizer(texts, add_special_tokens=False)["input_ids"]
    return [failed.get(i) or _expand(loaded, row, request, sizes) for i, (row, request) in enumerate(zip(rows, requests, strict=True))]


def _expand(loaded: Loaded, row: list[int], request: Request, sizes: dict[str, Size]) -> Encoded | CallFailed:
    ids = np.asarray(row, dtype=np.int64)
    if loaded.image_token is None:
        return Encoded(ids, (), ids)
    slots = np.flatnonzero(ids == loaded.image_token)
    if len(slots) != len(request.pictures):
        return CallFailed("special-token", f"the text holds {len(slots)} picture slots for {len(request.pictures)} pictures: escape it")
    if not len(slots):
        return Encoded(ids, (), ids)
    pieces, kinds, at = [], [], 0
    found = tuple(sizes[picture.digest] for picture in request.pictures)
    for slot, picture, size in zip(slots, request.pictures, found, strict=True):
        before, pads = ids[at:slot], np.full(tokens_of(loaded, size), loaded.image_token)
        marks = np.full(len(pads), -1 - int(picture.digest[:12], 16))
        around = _brackets(loaded)
        pieces += [before, around[0], pads, around[1]]
        kinds += [before, around[0], marks, around[1]]
        at = int(slot) + 1
    return Encoded(np.concatenate([*pieces, ids[at:]]), found, np.concatenate([*kinds, ids[at:]]))


def _brackets(loaded: Loaded) -> tuple[np.ndarray, np.ndarray]:
    """InternVL's processor puts <img> … </img> around a picture's tokens; Qwen's template writes its own brackets."""
    if loaded.family != "internvl-hf":
        return np.empty(0, np.int64), np.empty(0, np.int64)
    start, end = loaded.tokenizer.convert_tokens_to_ids(["<img>", "</img>"])
    return np.array([start]), np.array([end])


def word_ids(loaded: Loaded, words: Sequence[str]) -> list[list[int]]:
    """Token ids of each word as a reply would begin with it."""
    return [list(loaded.tokenizer(word, add_special_tokens=False)["input_ids"]) for word in words]
