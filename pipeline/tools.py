"""What is slow and no chat model, as engines: searches, similar pictures, relevance, safety screens, applications.

A flow asks for them as it asks for agents, with calls; so they are journalled, timed, and batched over all questions in flight: while
one batch is worked on in a thread, the next one gathers. Query and passages travel as parts of their own and are never glued.
Try: python -m pytest tests/pipeline/test_tools.py
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Protocol

from models.engines import Workload
from models.errors import CallFailed, UserError
from models.requests import Completion, Picture, Request
from pipeline import passages
from pipeline.applications import Application, Intent
from pipeline.collection import Searchable
from pipeline.copies import COPY
from pipeline.images import load
from pipeline.safety.classifiers import ImageScreen, TextScreen
from pipeline.safety.policy import IMAGE_THRESHOLD, Policy
from pipeline.safety.verdicts import Verdict, told

Work = Callable[[Sequence[Request]], Sequence[str]]


class ToolEngine:
    """A server engine around a function over a batch of requests.

    Args:
        digest: tells what the replies depend on besides the request; asked for at every call, so that a live edit is a new call.
        work: replies, one a request. When it raises for a batch, each request is tried alone and only the guilty ones fail.
    """

    can_constrain: frozenset[str] = frozenset()

    def __init__(self, name: str, digest: Callable[[], str], work: Work, slots: int = 256, most: int = 64) -> None:
        self.name, self.slots = name, slots
        self._digest, self._work, self._most = digest, work, most
        self._waiting: list[tuple[Request, asyncio.Future[Completion]]] = []
        self._busy = False
        self._pool: ThreadPoolExecutor | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def digest(self) -> str:
        return self._digest()

    def check(self, work: Workload) -> None:
        """Any work can be done."""

    async def open(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=self.name)

    async def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None

    async def complete(self, request: Request) -> Completion:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        self._waiting.append((request, future))
        if not self._busy:
            self._busy = True
            task = loop.create_task(self._drain())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _drain(self) -> None:
        await asyncio.sleep(0)  # the other calls of this turn join the batch
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                taken, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                live = [(request, future) for request, future in taken if not future.done()]
                begun = time.perf_counter()
                replies = await loop.run_in_executor(self._pool, self._safely, [request for request, _ in live])
                seconds = time.perf_counter() - begun
                for (_, future), reply in zip(live, replies, strict=True):
                    if future.done():
                        continue
                    if isinstance(reply, CallFailed):
                        future.set_exception(reply)
                    else:
                        future.set_result(Completion(reply, seconds=seconds))
        finally:
            self._busy = False

    def _safely(self, requests: Sequence[Request]) -> list[str | CallFailed]:
        try:
            return list(self._work(requests))
        except Exception as error:
            if len(requests) == 1:
                reason = "refused" if isinstance(error, UserError) else type(error).__name__
                return [CallFailed(f"{self.name}-{reason}", str(error))]
            return [reply for request in requests for reply in self._safely([request])]


def texts(request: Request) -> tuple[str, ...]:
    """The text parts of the last message, each for itself."""
    return tuple(part for part in request.messages[-1].parts if isinstance(part, str))


def option(request: Request, name: str, default: int) -> int:
    return int(json.loads(request.messages[0].text).get(name, default)) if request.messages[0].role == "system" else default


def search_engine(collections: Sequence[Searchable]) -> ToolEngine:
    """Parts: queries; system: {"k"}. Reply: for each query, passages of all collections, fused by rank."""

    def work(requests: Sequence[Request]) -> list[str]:
        flat = [query for request in requests for query in texts(request)]
        most = max((option(request, "k", 10) for request in requests), default=10)
        found = [collection.search(flat, most) for collection in collections]
        merged = [_merge([rows[i] for rows in found]) for i in range(len(flat))]
        return _deal(requests, merged)

    return ToolEngine("search", lambda: _digest(c.digest for c in collections), work)


def similar_engine(collections: Sequence[Searchable]) -> ToolEngine:
    """Parts: pictures; system: {"k"}. Reply: for each picture, documents with similar pictures, by cosine."""

    def work(requests: Sequence[Request]) -> list[str]:
        flat = [load(picture.path) for request in requests for picture in request.pictures]
        most = max((option(request, "k", 10) for request in requests), default=10)
        found = [collection.similar(flat, most) for collection in collections]
        merged = [sorted((p for rows in found for p in rows[i]), key=lambda p: -p.score) for i in range(len(flat))]
        return _deal(requests, merged)

    return ToolEngine("similar", lambda: _digest(c.digest for c in collections), work)


def _merge(lists: Sequence[Sequence[passages.Passage]]) -> list[passages.Passage]:
    if len(lists) == 1:
        return list(lists[0])
    known = {p.key: p for row in lists for p in row}
    return [known[key].scored(score) for key, score in passages.fuse([[p.key for p in row] for row in lists])]


def _deal(requests: Sequence[Request], rows: Sequence[Sequence[passages.Passage]]) -> list[str]:
    out, at = [], 0
    for request in requests:
        count = len(request.pictures) or len(texts(request))
        k = option(request, "k", 10)
        out.append("[" + ", ".join(passages.dump(row[:k]) for row in rows[at : at + count]) + "]")
        at += count
    return out


class Scorer(Protocol):
    """What weighs passages: the classifier, or pipeline/relevance/similarity.py."""

    @property
    def digest(self) -> str: ...
    def scores(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]: ...


def relevance_engine(classifier: Scorer) -> ToolEngine:
    """Parts: the query, then passages. Reply: P(relevant) of each passage; all pairs of a batch are scored together."""

    def work(requests: Sequence[Request]) -> list[str]:
        parts = [texts(request) for request in requests]
        scores = iter(classifier.scores([(row[0], passage) for row in parts for passage in row[1:]]))
        return [json.dumps([next(scores) for _ in row[1:]]) for row in parts]

    return ToolEngine("relevance", lambda: classifier.digest, work)


def screen_engine(text: TextScreen | None, policy: Policy | None, image: ImageScreen | None = None) -> ToolEngine:
    """Parts: the query, tags, then pictures. Reply: verdicts, cheapest first, up to the first that blocks.

    The order is the paper's: text classifier, image classifier, instance-wise policy. Pictures come without tags first, and then once
    more with them: the image classifier looks at them the first time only."""

    def one(request: Request) -> str:
        query, *tags = texts(request)
        found: list[Verdict] = []
        pictures = [load(picture.path) for picture in request.pictures] if image is not None or policy is not None else []
        if text is not None and (query or tags):
            found += text.judge([told(query, tags)])
        if image is not None and pictures and not tags and not any(v.blocks for v in found):
            found.append(max(image.judge(pictures), key=lambda verdict: verdict.score))
        if policy is not None and not any(v.blocks for v in found):
            found.append(policy.match(query, tags, pictures))
        return json.dumps([asdict(verdict) for verdict in found], ensure_ascii=False)

    def digest() -> str:
        entries = [*map(str, policy.entries), f"{COPY} {IMAGE_THRESHOLD}"] if policy is not None else []
        return _digest([text.digest if text is not None else "", image.digest if image is not None else "", *entries])

    return ToolEngine("screen", digest, lambda requests: [one(request) for request in requests])


def application_engine(applications: Mapping[str, Application]) -> ToolEngine:
    """Parts: an application's name, the intent's fields as JSON, then pictures. Reply: its passages."""

    def one(request: Request) -> str:
        name, fields = texts(request)
        pictures: tuple[Picture, ...] = request.pictures
        return passages.dump(applications[name].search(Intent.load(fields, pictures)))

    names = _digest(f"{name} {getattr(app, 'digest', '')}" for name, app in applications.items())
    return ToolEngine("application", lambda: names, lambda requests: [one(request) for request in requests])


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
