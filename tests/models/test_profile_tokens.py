"""Text and picture tokens of a profile, and what a perfect prefix cache could have served of each pass."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from models import profile_report
from models.agents import Call, Episode, ask, changed
from models.errors import CallFailed, ConfigError
from models.metrics import block_in
from models.profile import Level, one_level, rows
from models.profile_cli import concurrencies
from models.profile_tokens import image_tokens, prefixes, requests_of, tokens_of
from models.requests import Completion, Picture, Request, user


class Stub:
    name, digest, slots = "stub", "stub", 4
    can_constrain = frozenset[str]()

    def check(self, work: object) -> None: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def complete(self, request: Request) -> Completion:
        return Completion("ok", "stop", len(letters([request])[0]), 1, 4, 0.01)


def letters(requests: Sequence[Request]) -> list[np.ndarray]:
    """A token a letter; a picture is eight tokens of its own number."""
    found = []
    for request in requests:
        row: list[int] = []
        for part in request.messages[0].parts:
            row += [ord(letter) for letter in part] if isinstance(part, str) else [-1 - int(part.digest[:4], 16)] * 8
        found.append(np.array(row, dtype=np.int64))
    return found


def question(picture: Picture) -> Episode[int]:
    yield from ask([Call("agent", "look", user(picture, "what is this"), str)])
    yield from ask([Call("agent", "look", user(picture, "what is this thing"), str, 1)])
    yield from ask([Call("agent", "answer", user("what is this"), str, 2)])
    return 0


@pytest.fixture
def level(tmp_path: Path) -> Level:
    (tmp_path / "p.bin").write_bytes(b"picture")
    picture = Picture.of(tmp_path / "p.bin")
    return one_level(lambda salt: [("q", question(picture))], lambda slots: {"agent": Stub()}, 2, tmp_path / "out")


def test_tokens_are_split_into_text_and_pictures(level: Level) -> None:
    tokens = tokens_of([level, level], letters)
    assert len(tokens) == 3 and {len(row) for row in tokens.values()} == {20, 26, 12}
    images = image_tokens(tokens)
    by_round = {row.round: row for row in rows([level], images)}
    assert [by_round[i].image_tokens for i in range(3)] == [8, 8, 0]
    assert by_round[1].prompt_tokens == 26 and by_round[1].queue and all(wait >= 0 for wait in by_round[1].queue)
    assert all(row.image_tokens is None for row in rows([level]))
    text = profile_report.table([level], profile_report.Beside(prefixes([level], tokens, 8), images))
    assert "blocks of" in text and "image" in text and "queue" in text


def test_bounds_are_in_the_order_of_sending(level: Level) -> None:
    (one,) = prefixes([level], tokens_of([level], letters), 8)
    assert (one.calls, one.prompt, one.perfect, one.blocks) == (3, 58, 20, 16)  # the second extends the first; text alone shares nothing
    assert one.served == 12 and one.reached == 0.75
    assert one.perfect <= one.prompt


def test_calls_that_cannot_be_tokenized_leave_no_bound(level: Level) -> None:
    tokens = tokens_of([level], lambda requests: [np.empty(0, dtype=np.int64) for _ in requests])
    assert tokens == {} and prefixes([level], tokens, 16) == []
    assert len(requests_of(level)) == 3
    assert profile_report.table([level], profile_report.Beside()).count("blocks of") == 0


def test_the_block_is_read_from_the_metrics() -> None:
    assert block_in('# x\nvllm:cache_config_info{a="b",block_size="128",engine="0"} 1.0\n') == 128
    assert block_in("vllm:num_requests_running 3\n") is None


def test_doublings_reach_every_question_and_lists_are_read() -> None:
    assert concurrencies(None, 5) == [1, 2, 4, 8] and concurrencies(None, 1) == [1]
    assert concurrencies("4,1", 5) == [1, 4]
    with pytest.raises(ConfigError, match="numbers with commas"):
        concurrencies("0", 5)


def test_an_episode_with_changed_requests_is_the_same_episode() -> None:
    def inner() -> Episode[str]:
        try:
            yield [Call("agent", "a", user("one"), str)]
        except CallFailed as error:
            return error.reason
        (reply,) = yield [Call("agent", "a", user("two"), str)]
        return str(reply)

    episode = changed(inner(), lambda request: user(request.text.upper()))
    assert [call.request.text for call in next(episode)] == ["ONE"]
    assert [call.request.text for call in episode.send(["x"])] == ["TWO"]
    with pytest.raises(StopIteration) as end:
        episode.send(["y"])
    assert end.value.value == "y"
    episode = changed(inner(), lambda request: request)
    next(episode)
    with pytest.raises(StopIteration) as end:
        episode.throw(CallFailed("gone"))
    assert end.value.value == "gone"
