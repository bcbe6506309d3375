"""One real `vllm serve` on a CPU, started by this project and used by its client: what a server gives."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models import processes
from models.agents import Call, Episode, ask
from models.drivers import run
from models.errors import ModelError
from models.fleet import Fleet
from models.journal import Journal
from models.metrics import Watch
from models.profile import one_level
from models.radix import bound
from models.replay import episodes, recorded
from models.requests import Decoding, Picture, user
from models.tokenized import tokenized

Answer = Good = Callable[..., Any]
PERSONA = "You are a careful observer of creatures. Answer with one name and nothing else. " * 5


def test_it_listens_on_loopback_only_and_asks_for_the_key(fleet: Fleet, answer: Answer, good: Good) -> None:
    ours = {pid for one in processes.servers() if one.owner == os.getpid() for pid in one.pids}
    assert len(ours) >= 3  # watchdog, API server, engine: the mark survives their renaming
    inodes = set()
    for pid in ours:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            target = str(link.readlink()) if link.is_symlink() else ""
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    listening = 0
    for name, loopback in (("tcp", "0100007F"), ("tcp6", "00000000000000000000000001000000")):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                listening += 1
                assert fields[1].split(":")[0] == loopback, line
    assert listening >= 1
    fleet.key, kept = "guess", fleet.key
    try:
        with pytest.raises(ModelError, match="key"):
            answer(fleet, [user("hello")])
    finally:
        fleet.key = kept


def test_a_taken_port_means_another(fleet: Fleet, taken_port: int) -> None:
    assert fleet.servers[0].port not in (0, taken_port) and fleet.servers[0].healthy()


def test_pictures_choice_pattern_and_probabilities(fleet: Fleet, answer: Answer, good: Good, frames: list[Picture]) -> None:
    short = Decoding(max_tokens=8)
    requests = [
        *[user(*frames[:n], "What is it?", decoding=short) for n in (1, 3, 10)],
        user("Is it so?", decoding=Decoding(max_tokens=4, choices=("Yes", "No"))),
        user("A number:", decoding=Decoding(max_tokens=8, pattern="[0-9]{3}")),
        user("Is it so?", decoding=Decoding(max_tokens=1, probe=("Yes", "No"))),
    ]
    one, three, ten, choice, number, probed = map(good, answer(fleet, requests))
    assert one.prompt_tokens is not None and three.prompt_tokens is not None and ten.prompt_tokens is not None
    each = (three.prompt_tokens - one.prompt_tokens) // 2
    assert ten.prompt_tokens - three.prompt_tokens == 7 * each > 0
    # Without white space: the mask knows the vocabulary's own spelling, and the prototype's tokenizer joins its words with spaces.
    assert choice.text.strip() in ("Yes", "No")
    assert len("".join(number.text.split())) == 3 and "".join(number.text.split()).isdigit()
    assert dict(probed.probs).keys() == {"Yes", "No"} and 0 < sum(p for _, p in probed.probs) <= 1.001


def test_batching_and_the_prefix_cache(fleet: Fleet, answer: Answer, good: Good) -> None:
    """Sibling calls share their prefix, and the server says how much of it it had."""
    assert fleet.reset_caches()
    calls = [user(PERSONA, f"Neighbour {i}", decoding=Decoding(max_tokens=4)) for i in range(24)]
    with Watch(fleet.urls, fleet.key) as watched:
        first = good(answer(fleet, calls[:1])[0])
        rest = [good(reply) for reply in answer(fleet, calls[1:])]
    assert first.cached_tokens == 0
    assert all(reply.cached_tokens for reply in rest)
    perfect = bound(tokenized(fleet.urls[0], fleet.key, "tiny", calls), 128)
    assert perfect.prompt_tokens == sum(reply.prompt_tokens or 0 for reply in [first, *rest])
    served = sum(reply.cached_tokens or 0 for reply in rest)
    assert 0.9 * perfect.served <= served <= perfect.served
    assert watched.counters["prefix_hits"] == served
    assert max(sample.gauges.get("running", 0) for sample in watched.samples) > 1 if watched.samples else True


def test_the_media_cache(fleet: Fleet, answer: Answer, good: Good, frames: list[Picture]) -> None:
    assert fleet.reset_caches()
    with Watch(fleet.urls, fleet.key) as watched:
        for k in range(2):
            answer(fleet, [user(*frames[:3], f"What {k}?", decoding=Decoding(max_tokens=2))])
    assert watched.counters["media_queries"] >= 6 and watched.counters["media_hits"] >= 3


def question(i: int, frames: list[Picture]) -> Episode[str]:
    (topic,) = yield from ask([Call("agent", "topic", user(PERSONA, f"Question {i}", decoding=Decoding(max_tokens=6)), str)])
    kinds = [user(*frames[:2], PERSONA, f"Question {i}, {k}", decoding=Decoding(max_tokens=6)) for k in range(3)]
    yield from ask([Call("agent", "expand", request, str, 1) for request in kinds])
    return topic


def test_a_run_and_its_replay(fleet: Fleet, answer: Answer, good: Good, frames: list[Picture], tmp_path: Path) -> None:
    engine = fleet.engine(slots=16, stream=True)
    with Journal(tmp_path / "journal.sqlite") as journal:
        outcomes = run(((f"q{i}", question(i, frames)) for i in range(8)), {"agent": engine}, journal)
        assert all(outcome.ok for outcome in outcomes.values())
        work = recorded(journal)
    level = one_level(
        lambda salt: episodes(work, salt), lambda slots: {"agent": fleet.engine(slots=slots, stream=True)}, 8, tmp_path / "out", salt="x"
    )
    assert len(level.completions) == 32
    assert all(reply.first_token_seconds is not None and reply.first_token_seconds <= reply.seconds for _, reply in level.completions)
