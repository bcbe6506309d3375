"""Batches by what prompts share: each prompt once, within the limits, and never dearer than batches of one; the same replies as alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from models import decode as decoding
from models import groups as grouping
from models.groups import PASS, SHARED, common, groups, shared
from models.hf_engine import TransformersEngine
from models.requests import Completion, Message, Picture, Request

TINY = Path(__file__).parents[2] / "models" / "tiny-qwen2.5-vl"
PROMPTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 80), st.lists(st.integers(0, 5), min_size=1, max_size=60)).map(
        lambda made: np.array([made[0]] * made[1] + made[2])
    ),
    max_size=40,
)


def cost(prompts: list[np.ndarray], cut: list[list[int]]) -> int:
    found = 0
    for group in cut:
        once = shared([prompts[i] for i in group])
        found += PASS + once + len(group) * (max(len(prompts[i]) for i in group) - once)
    return found


@settings(deadline=None, max_examples=120)
@given(PROMPTS, st.integers(1, 8), st.integers(50, 2000))
def test_every_prompt_is_in_one_batch_within_the_limits(prompts: list[np.ndarray], rows: int, tokens: int) -> None:
    cut = groups(prompts, rows, tokens)
    assert sorted(i for group in cut for i in group) == list(range(len(prompts)))
    for group in cut:
        assert len(group) <= rows
        assert len(group) == 1 or max(len(prompts[i]) for i in group) * len(group) <= tokens
    assert cost(prompts, cut) <= cost(prompts, [[i] for i in range(len(prompts))])
    assert cut == groups(prompts, rows, tokens)


@settings(deadline=None, max_examples=120)
@given(PROMPTS)
def test_what_is_shared_is_shared_and_leaves_each_a_token(prompts: list[np.ndarray]) -> None:
    length = shared(prompts)
    assert length == 0 or length >= SHARED
    for prompt in prompts if length else ():
        assert len(prompt) > length and common(prompts[0], prompt) >= length


def test_siblings_stand_together() -> None:
    families = [np.array([family] * 200 + [9, k, k + 1]) for k in range(4) for family in (1, 2, 3)]
    assert sorted(map(sorted, groups(families, 4, 10_000))) == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    """In float32, so that only a mistake can change a reply: in bfloat16 other batch shapes round otherwise, and a near tie may tip."""
    made = TransformersEngine(TINY, batch=16)
    made.loaded.model.model.language_model.float()
    made.loaded.model.lm_head.float()
    return made


def ask(engine: TransformersEngine, requests: list[Request]) -> list[str]:
    replies: dict[int, Any] = dict(engine.complete_batch(requests))
    assert all(isinstance(reply, Completion) for reply in replies.values()), replies
    return [replies[i].text for i in range(len(requests))]


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> list[Request]:
    """Siblings that share a long beginning, with a shared picture in it, with one of their own behind it, and without any."""
    folder = tmp_path_factory.mktemp("pictures")
    pictures = []
    for i in range(3):
        path = folder / f"{i}.png"
        noise = np.random.default_rng(i).integers(0, 255, (84, 84 + 28 * i, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path)
        pictures.append(Picture.of(path))
    words = "Vorga of the hills does: it leaps left, it strikes with fire, it turns to the right and waits. " * 4
    ends = ["What is it?", "What does it do next, and why is it so?", "Where?", "Which of these: fire, water, ice? Answer with one."]
    made = [Request((Message("user", (words, end)),)) for end in ends]
    made += [Request((Message("user", (pictures[0], words, end)),)) for end in ends]
    made += [Request((Message("user", (words, pictures[i % 3], pictures[0], end)),)) for i, end in enumerate(ends)]
    return [request.with_decoding(max_tokens=24) for request in made]


def test_a_shared_beginning_computed_once_changes_no_reply(
    engine: TransformersEngine, requests: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, in batches without sharing, and in batches with it; the passes over a shared beginning are counted."""
    passes: list[int] = []
    real = decoding._pass

    def counted(loaded: Any, rows: Any, begin: int, end: int | None, cache: Any) -> Any:
        if end is not None:
            passes.append(end)
        return real(loaded, rows, begin, end, cache)

    monkeypatch.setattr(decoding, "_pass", counted)
    together = ask(engine, requests)
    assert passes and min(passes) >= SHARED
    passes.clear()
    with monkeypatch.context() as without:
        without.setattr(grouping, "SHARED", 10**9)
        assert ask(engine, requests) == together
    assert not passes
    assert [ask(engine, [request])[0] for request in requests] == together
    assert len(set(together)) > 1
