"""A streamed chat answer (server-sent events) → Completion with its first-token time. Knows no network: it reads an iterator of lines."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterable, Mapping
from typing import Any

from models.errors import CallFailed
from models.requests import Completion, Request
from models.wire import finished


async def read_stream(lines: AsyncIterable[bytes], request: Request, begun: float, word_ids: Mapping[str, int]) -> Completion:
    """Raises CallFailed("cut-off") when the stream ends without its end mark, ``bad-json``, ``repetition``, or the server's error."""
    text: list[str] = []
    why: object = None
    usage: object = None
    logprobs: object = None
    first: float | None = None
    ended = False
    async for line in lines:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            ended = True
            break
        try:
            event: Any = json.loads(data)
            if event.get("error"):
                raise CallFailed("server-error", str(event["error"])[:500])
            usage = event.get("usage") or usage
            for choice in event.get("choices") or []:
                piece = choice["delta"].get("content") or ""
                if piece and first is None:
                    first = time.perf_counter() - begun
                text.append(piece)
                logprobs = logprobs or choice.get("logprobs")
                why = choice.get("finish_reason") or why
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CallFailed("bad-json", data[:200].decode("utf-8", "replace")) from None
    if not ended and why is None:
        raise CallFailed("cut-off", f"the stream ended after {len(text)} pieces")
    return finished("".join(text), why, usage, logprobs, request, time.perf_counter() - begun, word_ids, first)
