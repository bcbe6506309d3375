"""The OpenAI chat format: a Request as a JSON body, a JSON answer as a Completion. Pure: no network.

Constraints go the way vLLM takes them (`structured_outputs`, `logprob_token_ids`). Sources: OpenAI's chat completions reference;
vLLM's extra parameters. Knows no URLs.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from models.errors import CallFailed
from models.repetition import loop_in
from models.requests import Completion, Finish, Picture, Request

_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp", b"BM": "image/bmp"}


def body_of(
    request: Request,
    model: str,
    *,
    file_urls: bool,
    word_ids: Mapping[str, int],
    stream: bool = False,
    uuids: bool = True,
    extra: Mapping[str, Any] | None = None,
) -> bytes:
    """The request as JSON bytes. Raises CallFailed("bad-image") when a picture cannot be read.

    `uuids`: name each picture by its pixels' digest, under which vLLM keeps what it has computed of it. `extra`: more keys of the body.
    """
    d = request.decoding
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": m.role, "content": _content(m.parts, file_urls, uuids)} for m in request.messages],
        "max_tokens": d.max_tokens,
        "temperature": d.temperature,
    }
    if d.top_p < 1:
        body["top_p"] = d.top_p
    if d.seed is not None:
        body["seed"] = d.seed
    if d.choices is not None:
        body["structured_outputs"] = {"choice": list(d.choices)}
    elif d.pattern is not None:
        body["structured_outputs"] = {"regex": d.pattern}
    if d.probe:
        # Raw log-probabilities at any rank, and not renormalised under a choice mask: only this parameter gives them.
        body |= {"logprobs": True, "top_logprobs": 20, "logprob_token_ids": sorted({word_ids[word] for word in d.probe})}
        body["return_tokens_as_token_ids"] = True
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if extra:
        body |= extra
    return json.dumps(body, ensure_ascii=True).encode()


def _content(parts: Sequence[str | Picture], file_urls: bool, uuids: bool) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    found: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, str):
            found.append({"type": "text", "text": part})
        else:
            url = _file_url(part.path) if file_urls else _data_url(part)
            shown: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
            found.append(shown | {"uuid": part.digest} if uuids else shown)
    return found


@lru_cache(maxsize=4096)
def _file_url(path: Path) -> str:
    return path.absolute().as_uri()


def _data_url(picture: Picture) -> str:
    try:
        return _encoded(picture.path, picture.digest)
    except OSError as error:
        raise CallFailed("bad-image", f"{picture.path}: {error.strerror}") from None


@lru_cache(maxsize=256)
def _encoded(path: Path, digest: str) -> str:
    data = path.read_bytes()
    kind = next((mime for magic, mime in _TYPES.items() if data.startswith(magic)), None)
    if kind is None:
        raise CallFailed("bad-image", f"{path}: no PNG, JPEG, GIF, WebP or BMP")
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def completion_of(data: bytes, request: Request, seconds: float, word_ids: Mapping[str, int]) -> Completion:
    """The reply in an answer of status 200. Raises CallFailed: ``html``, ``bad-json``, ``bad-reply``, ``repetition``."""
    try:
        answer = json.loads(data)
    except ValueError:
        start = data[:200].decode("utf-8", "replace").strip()
        raise CallFailed("html" if start.startswith("<") else "bad-json", start) from None
    try:
        choice = answer["choices"][0]
        text, why = choice["message"]["content"], choice.get("finish_reason")
    except (KeyError, IndexError, TypeError):
        raise CallFailed("bad-reply", f"no choices[0].message.content in {data[:200].decode('utf-8', 'replace')}") from None
    if text is None:  # a model that ended at once
        text = ""
    if not isinstance(text, str):
        raise CallFailed("bad-reply", f"content is {type(text).__name__}, not text")
    return finished(text, why, answer.get("usage"), choice.get("logprobs"), request, seconds, word_ids)


def finished(
    text: str,
    why: object,
    usage: object,
    logprobs: object,
    request: Request,
    seconds: float,
    word_ids: Mapping[str, int],
    first_token: float | None = None,
) -> Completion:
    """A Completion from the parts of an answer. Raises CallFailed("repetition") for a reply cut off in a loop, ``content-filter``."""
    text = text.encode("utf-8", "replace").decode()  # JSON can hold half a surrogate pair; nothing downstream can
    if why == "content_filter":
        raise CallFailed("content-filter", text[:200])
    if why == "abort":
        raise CallFailed("aborted", "the server gave the call up")
    finish: Finish = "length" if why == "length" else "stop"
    if finish == "length" and loop_in(text):
        raise CallFailed("repetition", f"the reply ends in a loop: …{text[-60:]}")
    counts = usage if isinstance(usage, dict) else {}
    details = counts.get("prompt_tokens_details") or {}
    return Completion(
        text,
        finish,
        _count(counts.get("prompt_tokens")),
        _count(counts.get("completion_tokens")),
        _count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        seconds,
        first_token,
        _probs(request.decoding.probe, logprobs, word_ids),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _probs(words: Sequence[str], logprobs: Any, word_ids: Mapping[str, int]) -> tuple[tuple[str, float], ...]:
    if not words:
        return ()
    try:
        first = logprobs["content"][0]
        known = {row["token"]: float(row["logprob"]) for row in [first, *first["top_logprobs"]]}
        # A server that ignores the two parameters names tokens by their text; then only the top 20 are known.
        texts = {token.strip(): value for token, value in reversed(known.items())}
        return tuple((word, math.exp(known[k] if (k := f"token_id:{word_ids[word]}") in known else texts[word])) for word in words)
    except (KeyError, IndexError, TypeError, ValueError):
        remedy = "the server does not answer logprob_token_ids; use vLLM ≥ 0.32 or the transformers engine"
        raise CallFailed("no-logprobs", remedy) from None


def error_text(data: bytes) -> str:
    """The message in an error answer, whatever its shape, on one line."""
    text = data[:4000].decode("utf-8", "replace")
    try:
        answer = json.loads(text)
        found = answer.get("error", answer)
        text = str(found.get("message") or found.get("detail") or found) if isinstance(found, dict) else str(found)
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:500]
