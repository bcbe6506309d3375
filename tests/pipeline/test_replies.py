"""Reply parsers: they never raise, and what they cannot tell is a value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.requests import Completion
from pipeline.fences import Fence
from pipeline.replies import answer, find_object, judged, judgement, queries, refined

FENCES = (Fence(), Fence(open="« ", close=" »"), Fence(open="[[{label}:", close=":{label}]]"))


@pytest.mark.parametrize(
    "reply,intent,query",
    [
        ('```json\n{"intent": "i", "query": "q"}\n```', "i", "q"),
        ('Here you are: {"intent": "i", "query": "q"} Hope it helps {x}', "i", "q"),
        ('{"intent": "what it costs", "query": "lamp pri', "what it costs", "lamp pri"),
        ('{"query": "q"}', "q", "q"),
        ("The user wants the price. You must search lamp price.", "The user wants the price. You must search lamp price.", "lamp price"),
    ],
)
def test_intents(reply: str, intent: str, query: str) -> None:
    found = refined(reply)
    assert (found.intent, found.query, found.unclear) == (intent, query, False)


@pytest.mark.parametrize(
    "reply,value",
    [
        ("true", 1),
        ("True.", 1),
        ('{"need_api": true}', 1),
        ('{"safe_question": fal', None),
        ("**no**", 0),
        ("No, yes would be wrong", None),
        ("", None),
        ("perhaps", None),
        ('{"need_api": "false"}', 0),
    ],
)
def test_judgements(reply: str, value: float | None) -> None:
    assert judgement(reply).probability == value


def test_probabilities_of_the_first_token_count_more_than_the_word() -> None:
    assert judged(Completion("true", probs=(("true", 0.3), ("false", 0.6)))).probability == pytest.approx(1 / 3)
    assert judged(Completion("true", probs=(("x", 0.9),))).probability == 1.0


def test_citations_of_what_was_not_given_are_cut() -> None:
    made = answer(2, "No.")("It is 5 [1, 7] and [3] so [2].")
    assert (made.text, made.cited, made.unknown) == ("It is 5 [1] and so [2].", (1, 2), 2)
    assert answer(0, "The sources do not tell.")("the sources do not tell").not_found


@given(st.text())
def test_no_reply_is_an_exception(text: str) -> None:
    refined(text), judgement(text), answer(3, "no")(text)
    assert len(queries(text).queries) <= 3


@given(st.dictionaries(st.text(), st.recursive(st.booleans() | st.integers() | st.text(), st.lists, max_leaves=4), min_size=1), st.data())
def test_a_cut_object_still_opens(value: dict[str, object], data: st.DataObject) -> None:
    text = json.dumps(value)
    assert find_object(f"so: {text} end") == value
    found = find_object(text[: data.draw(st.integers(1, len(text)))])
    assert found is None or set(found) <= set(value) or len(found) <= len(value)


@pytest.mark.parametrize("fence", FENCES, ids=["coded", "guillemets", "labelled"])
@given(inner=st.lists(st.sampled_from([*"<>«»[]:{} \n", "source", "label", "code", "<<<", ">>>", "x"])).map("".join))
def test_no_text_closes_its_own_fence(fence: Fence, inner: str) -> None:
    once = fence("source", inner)
    head, tail = fence("source", "").split("\n\n") if "{code}" in fence.open else (once[:1], once[-1:])
    for text in (inner, once, inner + once + inner):
        made = fence("source", text)
        close = made.rsplit("\n", 1)[1] if "{code}" in fence.open else fence.close.replace("{label}", "source").strip()
        assert made.count(close) == 1 and made.endswith(close)
        opened = made.split("\n", 1)[0] if "{code}" in fence.open else fence.open.replace("{label}", "source").strip()
        assert made.count(opened) == 1 and made.startswith(opened)
    assert head and tail
