"""A latency profile that can be trusted: the same calls at rising concurrency, the cache's state declared, every call kept.

One level = one concurrency, one repetition, a journal of its own. Concurrency c means c questions under way and at most c calls in
flight, so that 1 is the reference's way: one call after another. Knows engines and episodes, not what they are about.

Try: python -m models profile --replay RUN --model FOLDER --gpus 1
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from models.agents import Episode
from models.drivers import Limits, Outcome, run
from models.engines import Engine
from models.errors import CallFailed
from models.journal import Journal, Record, Use
from models.metrics import Watch, Watched
from models.requests import Completion

Cache = Literal["cold", "warm"]
Episodes = Callable[[str], Iterable[tuple[str, Episode[Any]]]]
"""A salt (empty for none) → fresh episodes; the salt goes to the front of every prompt (models.replay.salted)."""
Engines = Callable[[int], Mapping[str, Engine]]
"""Calls in flight → role to engine, made anew."""
DOUBLINGS = tuple(2**i for i in range(11))
FLAT = 1.05  # a doubling that gains less than this much throughput ends the sweep


@dataclass(frozen=True)
class Level:
    """One measured pass. `records` are the calls that went out (shared and repeated ones once), failures among them; `pictures`: a
    call's key → pictures it held (of calls that came back); `path`: the pass's journal, where its requests stand."""

    concurrency: int
    repetition: int
    cache: str
    begun: float
    seconds: float
    records: tuple[Record, ...]
    uses: tuple[Use, ...]
    pictures: Mapping[str, int]
    outcomes: Mapping[str, Outcome[Any]]
    watched: Watched
    path: Path | None = None

    @property
    def completions(self) -> list[tuple[Record, Completion]]:
        return [(record, record.result) for record in self.records if isinstance(record.result, Completion)]

    @property
    def calls_per_second(self) -> float:
        return len(self.completions) / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Output tokens; 0 where the engine does not count them."""
        return sum(reply.output_tokens or 0 for _, reply in self.completions) / self.seconds if self.seconds else 0.0


def one_level(
    episodes: Episodes, engines: Engines, concurrency: int, folder: Path, *, repetition: int = 0, cache: str = "", salt: str = "",
    watch: Callable[[], Watch] | None = None, live: int | None = None,
) -> Level:  # fmt: skip
    """Runs all episodes once, `live` questions under way (as many as calls, if not given). The journal stays in `folder` as evidence."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"level-{concurrency}-{repetition}.sqlite"
    for old in folder.glob(path.name + "*"):
        old.unlink()
    with Journal(path) as journal:
        watcher = watch() if watch is not None else Watch(())
        with watcher as watched:
            begun, clock = time.time(), time.perf_counter()
            outcomes = run(episodes(salt), engines(concurrency), journal, limits=Limits(live=live or concurrency))
            seconds = time.perf_counter() - clock
        records = (*journal.calls(), *journal.failures())
        uses = tuple(journal.uses())
        pictures = {record.key: _pictures(journal.request(record.key)) for record in journal.calls()}
    return Level(concurrency, repetition, cache, begun, seconds, records, uses, pictures, outcomes, watched, path)


def _pictures(described: dict[str, Any] | None) -> int:
    return sum(isinstance(part, dict) for _, parts in (described or {"messages": []})["messages"] for part in parts)


def sweep(
    episodes: Episodes,
    engines: Engines,
    folder: Path,
    *,
    concurrencies: Sequence[int] = DOUBLINGS,
    repetitions: int = 3,
    cache: Cache = "cold",
    reset: Callable[[], bool] | None = None,
    watch: Callable[[], Watch] | None = None,
    tell: Callable[[Level], None] | None = None,
    warm_up: bool = True,
) -> list[Level]:
    """Levels of rising concurrency, until a doubling no longer pays (median of the repetitions, 5 %).

    `cache="cold"`: before each pass the caches are emptied by `reset`, and where that is None or hands out False a fresh salt goes to
    the front of every prompt. `cache="warm"`: the prompts are unsalted and an unmeasured pass goes before. Either way an unmeasured
    pass under another salt comes first, so that compilation and lazy loading are not measured.
    """
    levels: list[Level] = []
    if warm_up:
        one_level(episodes, engines, max(concurrencies), folder / "warm-up", salt=secrets.token_hex(4))
    if cache == "warm":
        one_level(episodes, engines, max(concurrencies), folder / "warm-up")
    best = 0.0
    for concurrency in concurrencies:
        passes = []
        for repetition in range(repetitions):
            salt, state = "", "warm: the same prompts were sent before"
            if cache == "cold":
                emptied = reset is not None and reset()
                salt = "" if emptied else secrets.token_hex(4)
                state = (
                    "cold: caches emptied before each pass"
                    if emptied
                    else "cold: a fresh prefix salt for each pass (pictures may be in the media cache)"
                )
            level = one_level(
                episodes, engines, concurrency, folder, repetition=repetition, cache=state, salt=salt, watch=watch
            )  # fmt: skip
            passes.append(level)
            if tell is not None:
                tell(level)
        levels += passes
        rate = quantile([level.calls_per_second for level in passes], 0.5)
        if rate < best * FLAT:
            break
        best = max(best, rate)
    return levels


@dataclass(frozen=True)
class Row:
    """Figures of the calls of one role, stage and round at one concurrency, all repetitions together.

    Seconds as the client saw them. `image_tokens` are those of `prompt_tokens` that pictures take, None where they were not counted.
    `queue`: from asking to sending, for want of a slot. `first_token` and `inter_token` are empty where replies were not streamed.
    Every triple is p50, p90, p99.
    """

    concurrency: int
    role: str
    stage: str
    round: int
    calls: int
    failed: int
    pictures: float
    prompt_tokens: float
    image_tokens: float | None
    cached_share: float | None
    output_tokens: float
    queue: tuple[float, ...]
    total: tuple[float, ...]
    first_token: tuple[float, ...]
    inter_token: tuple[float, ...]


@dataclass(frozen=True)
class Questions:
    """Figures per question at one concurrency. `critical` is the sum over rounds of each round's slowest call: what a question cannot
    do without; `stretch` is wall over critical. `mean ± sd` triples stand beside the paper's Table 18."""

    concurrency: int
    questions: int
    failed: int
    wall: tuple[float, ...]
    calls: tuple[float, ...]
    critical: tuple[float, ...]
    stretch: float
    seconds_mean_sd: tuple[float, float]
    calls_mean_sd: tuple[float, float]
    call_seconds_mean_sd: tuple[float, float]


# MH-MMKG, Table 18: seconds, calls, seconds a call of one question, mean and standard deviation; calls made one after another.
PAPER = {
    "GPT-4o": ((92.46, 68.93), (7.20, 5.01), (10.92, 9.70)),
    "Gemini 2.0 Flash": ((17.15, 10.92), (11.04, 9.42), (1.12, 0.91)),
    "InternVL2.5, 2 × A6000": ((57.06, 41.78), (9.32, 3.58), (7.33, 6.95)),
}


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile with linear interpolation; 0 for no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def spread(values: Sequence[float]) -> tuple[float, ...]:
    """p50, p90, p99; empty for no values."""
    return tuple(quantile(values, q) for q in (0.5, 0.9, 0.99)) if values else ()


def mean_sd(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation (of the population, as the paper's table reads)."""
    if not values:
        return 0.0, 0.0
    mean = sum(values) / len(values)
    return mean, (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5


def rows(levels: Sequence[Level], images: Mapping[str, int] | None = None) -> list[Row]:
    """One row for each concurrency, role, stage and round. `images`: a call's key → tokens of its pictures, where they were counted."""
    held = {key: count for level in levels for key, count in level.pictures.items()}
    groups: dict[tuple[int, str, str, int], list[Record]] = {}
    for level in levels:
        for record in level.records:
            groups.setdefault((level.concurrency, record.role, record.stage, record.round), []).append(record)
    found = []
    for (concurrency, role, stage, round_), records in sorted(groups.items()):
        replies = [record.result for record in records if isinstance(record.result, Completion)]
        prompt = sum(reply.prompt_tokens or 0 for reply in replies)
        told = [reply for reply in replies if reply.cached_tokens is not None]
        cached = sum(reply.cached_tokens or 0 for reply in told)
        streamed = [reply for reply in replies if reply.first_token_seconds is not None]
        between = [
            (reply.seconds - (reply.first_token_seconds or 0.0)) / (reply.output_tokens - 1)
            for reply in streamed
            if reply.output_tokens is not None and reply.output_tokens > 1
        ]
        count = max(1, len(replies))
        seen = [images[record.key] for record in records if record.key in images] if images else []
        found.append(
            Row(
                concurrency,
                role,
                stage,
                round_,
                len(records),
                sum(isinstance(record.result, CallFailed) for record in records),
                sum(held.get(record.key, 0) for record in records) / len(records),
                prompt / count,
                sum(seen) / len(seen) if seen else None,
                cached / prompt if told and prompt else None,
                sum(reply.output_tokens or 0 for reply in replies) / count,
                spread([record.waited for record in records if isinstance(record.result, Completion)]),
                spread([reply.seconds for reply in replies]),
                spread([reply.first_token_seconds or 0.0 for reply in streamed]),
                spread(between),
            )
        )
    return found


def questions(levels: Sequence[Level]) -> list[Questions]:
    """One row for each concurrency, over the samples that ended well."""
    found = []
    for concurrency in sorted({level.concurrency for level in levels}):
        outcomes = [o for level in levels if level.concurrency == concurrency for o in level.outcomes.values()]
        good = [o for o in outcomes if o.ok]
        walls, critical = [o.seconds for o in good], [o.critical_seconds for o in good]
        each = [
            reply.seconds for level in levels if level.concurrency == concurrency for _, reply in level.completions
        ]  # fmt: skip
        found.append(
            Questions(
                concurrency,
                len(outcomes),
                len(outcomes) - len(good),
                spread(walls),
                spread([float(o.calls) for o in good]),
                spread(critical),
                sum(walls) / sum(critical) if sum(critical) else 0.0,
                mean_sd(walls),
                mean_sd([float(o.calls) for o in good]),
                mean_sd(each),
            )
        )
    return found
