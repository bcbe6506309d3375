"""The ratios that need a real server: batching against one call after another, the client against a bare loop, the prefix cache, agreement.

One recorded run is the work of all rows: its calls are sent again at other concurrencies, nothing decided anew, the caches emptied before
each pass. Try: python -m bench speed --rows served --gpu 1 --set served_on=cpu --limit 16
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.config import ROLES, RunConfig
from bench.predict import Job
from bench.preflight import check, check_engines, chosen
from bench.profile.cli import ready
from bench.profile.target import Target, opened
from bench.rows import settings_suite
from bench.run import open_data
from bench.speed.measures import Figure
from bench.stats import paired
from bench.workshop import CACHE, Workshop
from kg.dataset import Question
from models.errors import ConfigError
from models.journal import Journal
from models.metrics import Watch, block_in
from models.openai_server import fire
from models.profile import Level, one_level
from models.profile_tokens import prefixes, tokens_of
from models.replay import Recorded, episodes, recorded
from models.tokenized import tokenized
from models.wire import body_of

SLOTS = 64
HELD = 32  # tokens of a reply that is held
BUSY = 4 * SLOTS  # questions under way of the ceiling row: more than there are slots, as a run has


def measured(config: RunConfig) -> Iterator[Figure]:
    """The rows, as they are measured. Raises ConfigError without a server."""
    if not config.gpu and not config.endpoint:
        raise ConfigError("these rows need a server", remedy="--gpu 1 --set served_on=cpu, or --endpoint URL --model NAME")
    (row,) = settings_suite(config)
    dataset = open_data(config)
    questions = chosen(dataset, config.tasks, config.limit)
    check([row], dataset, questions)
    with tempfile.TemporaryDirectory(prefix="speed-") as name, opened(config, CACHE / "frames", Path(name)) as target:
        workshop = Workshop(dataset, CACHE, factory=lambda backend, options: target.engine(SLOTS, {}))
        with closing(workshop):
            check_engines([row], {"agent": target.engine(SLOTS, {})}, [workshop.agents(config)])
            first = _record(target, ready(row, questions, workshop, Path(name)), workshop, config, Path(name))
        yield from rows(target, first, {Job(row, q).key: q for q in questions}, Path(name))


def _record(target: Target, samples: Any, workshop: Workshop, config: RunConfig, folder: Path) -> Recorded:
    """A run of the setting, which is also the warm-up: its calls, to be sent again."""
    from bench.profile.cli import made

    (row,) = settings_suite(config)
    level = one_level(made(row, samples, workshop), _roles(target), SLOTS, folder / "first")
    assert level.path is not None
    with Journal(level.path, writable=False) as journal:
        return recorded(journal)


def rows(target: Target, work: Recorded, questions: Mapping[str, Question], folder: Path) -> Iterator[Figure]:
    """Every row of one server (or its replicas), from these recorded calls."""
    replicas = len(target.served.urls)
    together, alone = _pass(target, work, SLOTS, folder), _pass(target, work, 1, folder)
    note = f"{work.calls} calls of {len(work.steps)} questions; {together.seconds:.1f} s and {alone.seconds:.1f} s; {together.cache}"
    yield Figure(f"{SLOTS} questions in flight ÷ one call after another", alone.seconds / together.seconds, 2.5, True, note=note)
    yield from _agreement(together, alone, questions)
    yield from _cached(target, together, replicas)
    busy = _pass(target, work, SLOTS, folder, live=BUSY)
    _reset(target)
    seconds = _bare(target, work)
    note = f"{len(busy.completions) / busy.seconds:.1f} calls/s and {len(busy.completions) / seconds:.1f}"
    yield Figure(f"against a bare loop with {SLOTS} in flight", seconds / busy.seconds, 0.95, True, note=note)
    held = {"ignore_eos": True}
    fixed = Recorded({name: [[_held(call) for call in step] for step in steps] for name, steps in work.steps.items()}, work.lost)
    together, alone = _pass(target, fixed, SLOTS, folder, extra=held), _pass(target, fixed, 1, folder, extra=held)
    what = f"the same with replies held at {HELD} tokens"
    yield Figure(what, alone.seconds / together.seconds, 6.0, True, note=f"{together.seconds:.1f} s and {alone.seconds:.1f} s")


def _held(call: Any) -> Any:
    return replace(call, request=call.request.with_decoding(max_tokens=HELD, choices=None, pattern=None))


def _roles(target: Target, extra: Mapping[str, Any] | None = None) -> Any:
    return lambda slots: dict.fromkeys(ROLES, target.engine(slots, extra or {}))


def _reset(target: Target) -> bool:
    return target.served.reset is not None and target.served.reset()


def _pass(
    target: Target, work: Recorded, slots: int, folder: Path, *, live: int | None = None, extra: Mapping[str, Any] | None = None
) -> Level:
    """The recorded calls once, from cold caches."""
    state = "caches emptied" if _reset(target) else "caches as they were: the server does not let them be emptied"
    place = folder / f"{slots}-{live}-{bool(extra)}"
    return one_level(lambda salt: episodes(work), _roles(target, extra), slots, place, cache=state, live=live)


def _bare(target: Target, work: Recorded) -> float:
    """Seconds that a loop takes which only sends the same bytes and reads the answers."""
    distinct = {call.request.key(""): call.request for steps in work.steps.values() for step in steps for call in step}
    served = target.served
    sent = [body_of(request, served.name, file_urls=served.files, word_ids={}, stream=True) for request in distinct.values()]
    shares = [sent[i :: len(served.urls)] for i in range(len(served.urls))]

    async def all_of_them() -> list[list[int]]:
        each = max(1, SLOTS // len(served.urls))
        return await asyncio.gather(*[fire(url, share, each, key=served.key) for url, share in zip(served.urls, shares, strict=True)])

    begun = time.perf_counter()
    asyncio.run(all_of_them())
    return time.perf_counter() - begun


def _cached(target: Target, level: Level, replicas: int) -> Iterator[Figure]:
    """Prefix tokens that the server's cache had, of those that whole blocks allow."""
    served = target.served
    tokens = tokens_of([level], lambda wanted: tokenized(served.urls[0], served.key, served.name, wanted, file_urls=served.files))
    block = next((b for b in map(block_in, Watch(served.urls, served.key).texts()) if b), 16)
    what = f"prefix tokens cached ÷ what a perfect cache serves, {replicas} replica{'s' * (replicas > 1)}"
    target_share = 0.90 if replicas == 1 else 0.85
    for one in prefixes([level], tokens, block):
        said = f"blocks of {block}; served {one.served or 0:,}, possible {one.blocks:,} (token by token {one.perfect:,}) of {one.prompt:,}"
        yield Figure(what, one.reached, target_share, True, "", said)
        return
    yield Figure(what, None, target_share, True, "", "the server does not tokenize")


def _agreement(together: Level, alone: Level, questions: Mapping[str, Question]) -> Iterator[Figure]:
    """Replies that are the same word for word, and the answers' accuracy by exact words, paired."""
    batched, single = ({record.key: reply.text for record, reply in level.completions} for level in (together, alone))
    both = batched.keys() & single.keys()
    same = sum(batched[key] == single[key] for key in both) / max(1, len(both))
    yield Figure("replies that are the same batched and alone, word for word", same, unit="", note=f"{len(both)} calls, greedy")
    right = [_right(level, texts, questions) for level, texts in ((together, batched), (alone, single))]
    test = paired(*right)
    note = f"{test.n} questions; difference {test.difference}, p = {test.p}"
    yield Figure("accuracy batched − alone, exact words", test.difference.mean, unit="", note=note)


def _right(level: Level, texts: Mapping[str, str], questions: Mapping[str, Question]) -> dict[str, float]:
    """Question → 1 where its last reply is the gold answer, white space and case aside."""
    last = {use.sample: texts.get(use.key, "") for use in level.uses}  # uses stand in the order of steps
    return {name: float(_folded(text) == _folded(questions[name].answer)) for name, text in last.items() if name in questions}


def _folded(text: str) -> str:
    return "".join(text.split()).casefold()
