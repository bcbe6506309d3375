"""Injected text in every place where users and sources speak: it stays between its marks, whole and in order, in both prompt sets."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from models.agents import Call
from pipeline.agents import Agents
from pipeline.passages import Passage
from pipeline.tuning.rows import Labelled
from pipeline.tuning.tuner import _Forward, _Work

CORPUS: Sequence[str] = yaml.safe_load((Path(__file__).parent / "injected.yaml").read_text(encoding="utf-8"))
FULL, COMPACT = Agents.load("full"), Agents.load("compact")


def passage(text: str, title: str = "T") -> Passage:
    return Passage("a", "a", "docs", title, text)


class App:
    name, description, examples = "shop", "sells", ()


# where an attacker's text can come in → the call that carries it
PLACES: dict[str, Callable[[Agents, str], Call[object]]] = {
    "a passage": lambda a, x: a.answer("q", "i", "d", [passage(x), passage("fine")], [], ()),
    "a title": lambda a, x: a.answer("q", "i", "d", [passage("fine", x)], [], ()),
    "the question": lambda a, x: a.answer(x, "i", "d", [passage("fine")], [], ()),
    "the intent": lambda a, x: a.answer("q", x, "d", [passage("fine")], [], ()),
    "the picture's words": lambda a, x: a.answer("q", "i", x, [passage("fine")], [], ()),
    "the history": lambda a, x: a.answer("q", "i", "d", [passage("fine")], [("user", x)], ()),
    "what was found": lambda a, x: a.refine("q", "d", [("T", x), (x, "fine")], []),
    "found, for queries": lambda a, x: a.queries("i", [("T", x)], [("user", x)]),
    "the intent, for an application": lambda a, x: a.select(App(), x),
    "the intent, for the detector": lambda a, x: a.detect(x, x),
}


def outside(agents: Agents, text: str) -> str:
    """The prompt without what stands between marks; fails on a mark that has no partner."""
    if agents is FULL:
        rest = re.sub(r"<<<(\w+) ([0-9a-f]{10})\n.*?\n\2 \1>>>", "", text, flags=re.S)
        assert not re.search(r"<<<\w+ [0-9a-f]{10}\n|\n[0-9a-f]{10} \w+>>>", rest), "a mark without its partner"
        return rest
    depth, kept = 0, ""
    for character in text:
        depth += (character == "«") - (character == "»")
        assert depth in (0, 1), "marks inside marks"
        kept += character if not depth else ""
    assert depth == 0
    return kept


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("agents", [FULL, COMPACT], ids=["full", "compact"])
def test_nothing_injected_leaves_its_marks(agents: Agents, place: str) -> None:
    for text in CORPUS:
        sent = PLACES[place](agents, text).request
        assert "CANARY" not in outside(agents, sent.text), f"{text!r} in {place}"
        assert not re.search(r"<\|\w+\|>|</?s>", sent.text), "a chat token of a known family"
        calm = PLACES[place](agents, "fine").request
        assert "CANARY" not in calm.text and outside(agents, sent.text).split() == outside(agents, calm.text).split()


@given(st.text(), st.sampled_from(list(PLACES)), st.sampled_from(["full", "compact"]))
def test_no_text_at_all_leaves_its_marks(text: str, place: str, prompts: str) -> None:
    agents = FULL if prompts == "full" else COMPACT
    sent, calm = (PLACES[place](agents, f"x{x}x").request.text for x in (text, "fine"))
    assert outside(agents, sent).split() == outside(agents, calm).split()


def test_samples_shown_to_the_prompt_writer_are_fenced_too() -> None:
    for text in CORPUS:
        work = object.__new__(_Work)
        work.agents = FULL
        shown = work._shown([_Forward(Labelled({"intent": text}, True, "x"), text, 0.0)])
        assert "CANARY" not in outside(FULL, shown)


def test_two_passages_never_share_a_code() -> None:
    text = FULL.numbered([passage("same", "A"), passage("same", "B"), passage("other", "A")])
    codes = re.findall(r"<<<source ([0-9a-f]{10})", text)
    assert len(codes) == len(set(codes)) == 3
