"""Requests → token ids as the server itself makes them (vLLM's /tokenize, pictures expanded), for exact prefix bounds.

Each picture's placeholders are replaced by a number of that picture, so that equal pictures are equal prefixes and different ones not.
Knows no model. Try: python -m models profile --replay RUN ...
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import numpy as np

from models.errors import CallFailed
from models.requests import Request
from models.wire import body_of


def tokenized(
    url: str, key: str, model: str, requests: Sequence[Request], *, file_urls: bool = False, threads: int = 4
) -> list[np.ndarray]:
    """(tokens,) int64 of each request, in order; a request that the server cannot tokenize is an empty row.

    `url` is the base address (``http://host:port/v1``). A server without /tokenize gives empty rows only.
    """

    def one(request: Request) -> np.ndarray:
        try:
            sent = json.loads(body_of(request.with_decoding(probe=()), model, file_urls=file_urls, word_ids={}))
            body = {"model": model, "messages": sent["messages"], "add_generation_prompt": True}
            headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
            asked = urllib.request.Request(url.removesuffix("/v1") + "/tokenize", json.dumps(body).encode(), headers)
            with urllib.request.urlopen(asked, timeout=120) as answer:
                tokens = [int(token) for token in json.load(answer)["tokens"]]
        except (OSError, ValueError, KeyError, TypeError, CallFailed):
            return np.empty(0, dtype=np.int64)
        return marked(tokens, [picture.digest for picture in request.pictures])

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, requests))


def marked(tokens: Sequence[int], digests: Sequence[str]) -> np.ndarray:
    """The ids with each picture's run of placeholders replaced by a negative number of its own.

    The placeholder is the token whose runs are as many as the pictures and longest in all; where there is none, ids stay as they are.
    """
    row = np.asarray(tokens, dtype=np.int64)
    if not digests:
        return row
    runs: dict[int, list[tuple[int, int]]] = {}
    at = 0
    for token, group in groupby(tokens):
        length = len(list(group))
        runs.setdefault(token, []).append((at, length))
        at += length
    fitting = [spans for spans in runs.values() if len(spans) == len(digests)]
    if not fitting:
        return row
    row = row.copy()
    for (start, length), digest in zip(max(fitting, key=lambda spans: sum(n for _, n in spans)), digests, strict=True):
        row[start : start + length] = -1 - int(digest[:15], 16)
    return row
