"""A client for any OpenAI-compatible server (vLLM, SGLang, llama.cpp …), one or several replicas. A `ServerEngine`.

The only file that imports aiohttp: it costs 0.2 ms of own CPU per call where the openai package costs 4. Retries what is worth it
(dropped connections, 408, 429, 5xx), not what the server has understood and refused. Knows no prompts.
Try: python -m models ping http://127.0.0.1:8000/v1 NAME
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from models.concurrency import Pace
from models.engines import Workload
from models.errors import CallFailed, ModelError
from models.requests import Completion, Request
from models.routing import Router
from models.stream import read_stream
from models.trial import try_out
from models.wire import body_of, completion_of, error_text

_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_ATTEMPTS = 5
_FIRST_PAUSE = 0.25  # doubled each time
_REST = 5.0  # seconds for which a replica that refused a connection is left alone
_LOST = 8  # calls in a row that no replica could be reached for: the run ends, and goes on later


class OpenAIServer:
    """Replicas at `urls` (``http://host:port/v1``) that serve `model`. Raises ModelError for an address that is none.

    Args:
        key: API key, sent as a bearer token; never logged.
        identity: what the model is, for the calls' keys (a weights digest); without one, addresses and model name.
        slots: calls in flight over all replicas; 0 grows them until throughput stops growing (models/concurrency.py).
        timeout: seconds for one call, retries included.
        file_urls: pictures as file:// paths that the server reads itself, else inside the request.
        stream: take replies token by token, for first-token times.
        extra: more keys for every request's body, as the server knows them (``ignore_eos``); part of the digest, for they change replies.
    """

    can_constrain = frozenset({"choices", "pattern", "probe"})

    def __init__(
        self,
        urls: Sequence[str],
        model: str,
        *,
        key: str = "",
        identity: str = "",
        slots: int = 64,
        timeout: float = 600.0,
        file_urls: bool = False,
        stream: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if not urls:
            raise ModelError("no address of a server", remedy="give ENDPOINT=http://host:port/v1")
        for url in urls:
            if not _is_address(url):
                raise ModelError(f"{url!r} is not the address of a server", remedy="give it as http://host:port/v1")
        self.urls = tuple(url.rstrip("/") for url in urls)
        self.name, self.model = model, model
        self.digest = f"openai:{model}@{identity or ','.join(sorted(self.urls))}"
        self.extra = dict(extra or {})
        self.digest += f"+{json.dumps(self.extra, sort_keys=True)}" if self.extra else ""
        self._pace, self._slots = Pace() if not slots else None, slots
        self.timeout, self.file_urls, self.stream = timeout, file_urls, stream
        self._uuids = True
        self.context: int | None = None
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._session: aiohttp.ClientSession | None = None
        self._router = Router(len(self.urls))
        self._load = [0] * len(self.urls)
        self._resting = [0.0] * len(self.urls)
        self._lost = 0
        self._word_ids: dict[str, int] = {}

    @property
    def slots(self) -> int:
        """Calls that may be in flight now."""
        return self._pace.limit if self._pace is not None else self._slots

    def check(self, work: Workload) -> None:
        """Asks every replica whether it is there, serves the model and does what the run will need (some one-token calls)."""
        asyncio.run(self._check(work))

    async def _check(self, work: Workload) -> None:
        await self.open()
        try:
            if self.context is not None and work.max_tokens >= self.context:
                said = f"replies of {work.max_tokens} tokens do not fit the server's context of {self.context}"
                raise ModelError(said, where=self.urls[0], remedy="lower max_tokens or raise --max-model-len")
            # The trial's own pictures lie outside the folder that file:// may name.
            held, self.file_urls = self.file_urls, False
            await try_out(self.complete, work, self.urls[0])
            self.file_urls = held
        finally:
            await self.close()

    async def open(self) -> None:
        """Raises ModelError, naming the URL and the remedy: unreachable, 401, no API there, another model."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=15)
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
                trust_env=False,
            )
        try:
            for url in self.urls:
                await self._probe(url)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # the transports close in the loop's next turn
            self._session = None

    async def _probe(self, url: str) -> None:
        assert self._session is not None
        try:
            async with asyncio.timeout(15), self._session.get(f"{url}/models") as answer:
                status, data = answer.status, await answer.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            said = "does not answer within 15 s" if isinstance(error, TimeoutError) else f"cannot be reached: {error}"
            raise ModelError(said, where=url, remedy="start the server, or correct the address") from None
        if status in (401, 403):
            raise ModelError(f"refuses the API key ({status})", where=url, remedy="set the key that the server was started with")
        if status in _RETRIED:  # the address is right, the server is not well
            remedy = "it asks for patience: try again later" if status == 429 else "see the server's own log, then try again"
            raise ModelError(f"GET /models answers {status}: {error_text(data)}", where=url, remedy=remedy)
        try:
            rows = json.loads(data)["data"]
            served = {row["id"]: row for row in rows}
        except (ValueError, KeyError, TypeError):
            start = " ".join(data[:80].decode("utf-8", "replace").split())
            remedy = "the address of an OpenAI-compatible API usually ends in /v1"
            raise ModelError(f"GET /models answers {status} with {start!r}, not a list of models", where=url, remedy=remedy) from None
        if self.model not in served:
            raise ModelError(f"does not serve {self.model!r}", where=url, remedy=f"it serves: {', '.join(sorted(served)) or 'nothing'}")
        context = served[self.model].get("max_model_len")
        self.context = context if isinstance(context, int) else self.context

    async def complete(self, request: Request) -> Completion:
        """The reply. Raises CallFailed (``timeout``, ``unreachable``, ``cut-off``, ``http-400``, ``html``, ``repetition`` …)."""
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(self.timeout):
                for word in request.decoding.probe:
                    if word not in self._word_ids:
                        self._word_ids[word] = await self._tokenize(word)
                return await self._send(request)
        except TimeoutError:
            raise CallFailed("timeout", f"no reply within {time.perf_counter() - begun:.0f} s") from None

    def _body(self, request: Request) -> bytes:
        return body_of(
            request, self.model, file_urls=self.file_urls, word_ids=self._word_ids, stream=self.stream, uuids=self._uuids, extra=self.extra
        )  # fmt: skip

    async def _send(self, request: Request) -> Completion:
        pause, body, named = _FIRST_PAUSE, self._body(request), self._uuids
        for attempt in range(_ATTEMPTS):
            replica = self._router.pick(request, self._load, self._usable())
            self._load[replica] += 1
            self._began()
            try:
                return await self._once(request, body, replica)
            except CallFailed as error:
                # A server that is strict about the API's keys refuses the pictures' names; it gets them without.
                if not (named and request.pictures and error.reason == "http-400" and "uuid" in error.detail.lower()):
                    raise
                self._uuids = named = False
                body, wait = self._body(request), 0.0
            except _Again as again:
                if self._pace is not None and again.reason in ("http-429", "http-503"):
                    self._pace.refused()
                if attempt == _ATTEMPTS - 1:
                    raise self._given_up(again, self.urls[replica]) from None
                wait = pause * random.uniform(0.5, 1.0) if again.after is None else again.after
            finally:
                self._load[replica] -= 1
                self._ended()
            await asyncio.sleep(wait)
            pause *= 2
        raise AssertionError("unreachable")

    async def _once(self, request: Request, body: bytes, replica: int) -> Completion:
        assert self._session is not None, "open() comes first"
        url = f"{self.urls[replica]}/chat/completions"
        begun = time.perf_counter()
        try:
            async with self._session.post(url, data=body) as answer:
                if answer.status == 200 and self.stream and answer.content_type == "text/event-stream":
                    completion = await read_stream(answer.content, request, begun, self._word_ids)
                    self._lost = 0
                    return completion
                status, data, after = answer.status, await answer.read(), answer.headers.get("Retry-After")
        except CallFailed as error:
            if error.reason == "cut-off":
                raise _Again(error.reason, error.detail) from None
            raise
        except aiohttp.ClientConnectorError as error:
            self._resting[replica] = time.monotonic() + _REST
            raise _Again("unreachable", str(error)) from None
        except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, aiohttp.ClientError, ConnectionError, OSError) as error:
            raise _Again("cut-off", f"{type(error).__name__}: {error}") from None
        self._lost = 0
        if status == 200:
            return completion_of(data, request, time.perf_counter() - begun, self._word_ids)
        raise _refused(status, data, after, self.urls[replica])

    def _began(self) -> None:
        if self._pace is not None:
            self._pace.began()

    def _ended(self) -> None:
        if self._pace is not None:
            self._pace.ended()

    def _usable(self) -> list[int]:
        if len(self.urls) == 1:
            return [0]
        now = time.monotonic()
        return [i for i, until in enumerate(self._resting) if until <= now] or list(range(len(self.urls)))

    def _given_up(self, again: _Again, url: str) -> Exception:
        if again.reason == "unreachable":
            self._lost += 1
            if self._lost >= _LOST:
                remedy = "see the server's log; the same command goes on from here once it runs again"
                return ModelError(f"the server has stopped answering: {again.detail}", where=url, remedy=remedy)
        return CallFailed(again.reason, f"{again.detail} ({_ATTEMPTS} attempts)")

    async def _tokenize(self, word: str) -> int:
        """The id of the word's first token, by the server's own tokenizer."""
        assert self._session is not None
        url = f"{self.urls[0].removesuffix('/v1')}/tokenize"
        body = {"model": self.model, "prompt": word, "add_special_tokens": False}
        try:
            async with self._session.post(url, data=json.dumps(body)) as answer:
                found: Any = json.loads(await answer.read())
                return int(found["tokens"][0])
        except (aiohttp.ClientError, OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise CallFailed("no-tokenizer", f"{url} does not tell token ids, which probabilities need: {error}") from None


async def fire(url: str, bodies: Sequence[bytes], slots: int, *, key: str = "") -> list[int]:
    """Sends these bodies in their order, `slots` at once, and does nothing else: the ceiling that a client is measured against.

    Hands out the HTTP status of each; nothing is parsed and nothing tried again.
    """
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    statuses = [0] * len(bodies)
    todo = iter(enumerate(bodies))

    async def worker(session: aiohttp.ClientSession) -> None:
        for i, body in todo:
            async with session.post(f"{url}/chat/completions", data=body) as answer:
                await answer.read()
                statuses[i] = answer.status

    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout, trust_env=False) as session:
        await asyncio.gather(*[worker(session) for _ in range(min(slots, len(bodies)))])
    return statuses


class _Again(Exception):
    """Worth another attempt; `after` is what the server asked for, in seconds."""

    def __init__(self, reason: str, detail: str, after: float | None = None) -> None:
        self.reason, self.detail, self.after = reason, detail, after
        super().__init__(reason)


def _refused(status: int, data: bytes, retry_after: str | None, url: str) -> Exception:
    said = error_text(data)
    if status in _RETRIED:
        try:
            after = max(0.0, float(retry_after)) if retry_after else None
        except ValueError:  # a date: the clocks may differ, so our own pauses serve
            after = None
        return _Again(f"http-{status}", said, after)
    if status in (401, 403):
        return ModelError(f"refuses the API key ({status}): {said}", where=url, remedy="set the key that the server was started with")
    if status == 404:
        return ModelError(
            f"answers 404: {said}", where=url, remedy="the model or the address is another by now; ask `python -m models ping`"
        )
    low = said.lower()
    if "context length" in low or "max_model_len" in low or "maximum input length" in low:
        return CallFailed("too-long", said)
    if "image" in low and "at most" in low:
        return CallFailed("too-many-pictures", said)
    if "image" in low and ("load" in low or "identify" in low or "decode" in low or "truncated" in low):
        return CallFailed("bad-image", said)
    return CallFailed(f"http-{status}", said)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
