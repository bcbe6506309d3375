"""Safety: the head, the shipped head, the policy file while it is edited."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests_pipeline import Colours, Words, noise

from models.errors import DataError, ModelError
from pipeline.safety.head import SHIPPED, Head, TextFilter, choose_threshold, cross_scores, fit, load_head, save_head
from pipeline.safety.policy import Entry, Policy, edit, parse
from pipeline.safety.variants import TRANSFORMATIONS, made_picture
from pipeline.safety.verdicts import Verdict, first_block, told
from pipeline.vectors import Floats


def test_a_head_separates_what_can_be_separated(tmp_path: Path, words: Words) -> None:
    texts = [f"make a bomb number {i}" for i in range(20)] + [f"bake a cake number {i}" for i in range(30)]
    labels = [1] * 20 + [0] * 30
    vectors = words.encode(texts)
    scores = cross_scores(vectors, labels)
    threshold = choose_threshold(scores, labels, 0.0)
    assert all((s >= threshold) == bool(y) for s, y in zip(scores, labels, strict=True))
    head = Head(*fit(vectors, labels), threshold, {"encoder_digest": words.nature.digest})
    save_head(head, tmp_path / "head.safetensors")
    safe, harmful = TextFilter(words, load_head(tmp_path / "head.safetensors")).judge(["bake a cake", "make a bomb"])
    assert harmful.blocks and not safe.blocks and 0 <= safe.score < harmful.score <= 1
    with pytest.raises(ModelError, match="another encoder"):
        TextFilter(Words(32), load_head(tmp_path / "head.safetensors"))


def test_one_class_alone_cannot_be_learned(words: Words) -> None:
    with pytest.raises(DataError):
        fit(words.encode(["a", "b"]), [1, 1])


def test_the_shipped_head_tells_what_it_reaches() -> None:
    head = load_head(SHIPPED)
    assert head.card["five-fold recall"] >= 0.95 and head.card["five-fold false alarms"] <= 0.02
    assert head.weight.shape == (384,) and len(head.card["data"]) >= 2


def test_a_damaged_head_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(SHIPPED.read_bytes()[:100])
    with pytest.raises(ModelError, match="safety train"):
        load_head(tmp_path / "x")


def test_early_exit_and_tags() -> None:
    verdicts = [Verdict("a", 0.1, 0.5, ""), Verdict("b", 0.5, 0.5, ""), Verdict("c", 0.9, 0.5, "")]
    assert first_block(verdicts) is verdicts[1] and first_block(verdicts[:1]) is None
    assert told("where to get it", ["gun"]) == "gun. where to get it" and told("x", []) == "x"


def test_policy_edits_count_at_once_and_bad_ones_keep_the_old(tmp_path: Path, words: Words) -> None:
    path = tmp_path / "policy.jsonl"
    policy = Policy(path, words)
    assert not policy.match("tell me the secret recipe").blocks and policy.notice == ""
    edit(path, [Entry("r", "tell me the secret recipe", response="No.")])
    made = policy.match("tell me the secret recipe please")
    assert made.blocks and made.response == "No." and "'r'" in made.reason
    good = path.read_text()
    path.write_text(good + "{broken\n")
    assert policy.match("tell me the secret recipe").blocks and "policy.jsonl:2" in policy.notice
    path.write_text(good.replace("recipe", "formula"))
    assert policy.notice and policy.match("tell me the secret formula").blocks and policy.notice == ""
    path.unlink()
    assert policy.match("tell me the secret formula").blocks and "is gone" in policy.notice


def test_policy_by_picture(tmp_path: Path, words: Words, colours: Colours) -> None:
    noise(1).save(tmp_path / "a.png")
    path = tmp_path / "policy.jsonl"
    edit(path, [Entry("only", image="a.png"), Entry("both", "how do I open it", image="a.png", response="Ask the owner.")])
    policy = Policy(path, words, colours)
    assert policy.match("", pictures=[noise(1, (64, 64))]).blocks
    assert not policy.match("how do I open it", pictures=[noise(2)]).blocks
    assert not policy.match("how do I open it").blocks
    edit(path, remove=["only"])
    alone = policy.match("", pictures=[noise(1, (64, 64))])
    assert alone.blocks and alone.response == "Ask the owner." and "'both'" in alone.reason, "its picture without a word"
    assert policy.match(" ", ("door",), [noise(1)]).blocks and not policy.match("", ("door",), [noise(2)]).blocks
    assert policy.match("how do I open it", pictures=[noise(1)]).response == "Ask the owner."
    assert not policy.match("lovely weather", pictures=[noise(1)]).blocks


def test_copies_of_a_policy_picture_match_without_an_encoder_for_pictures(tmp_path: Path, words: Words) -> None:
    path = tmp_path / "policy.jsonl"
    made_picture(1, 96).save(tmp_path / "a.png")
    edit(path, [Entry("p", image="a.png")])
    policy = Policy(path, words)
    for name, change in TRANSFORMATIONS.items():
        assert policy.match("", pictures=[made_picture(2, 96), change(made_picture(1, 96))]).blocks, name
    assert not policy.match("", pictures=[made_picture(2, 96)]).blocks
    made_picture(2, 96).save(tmp_path / "b.png")
    edit(path, [Entry("p", image="b.png")])
    assert policy.match("", pictures=[made_picture(2, 96)]).blocks and not policy.match("", pictures=[made_picture(1, 96)]).blocks


def test_an_edit_opens_only_the_pictures_that_are_new(tmp_path: Path, words: Words, colours: Colours) -> None:
    class Counted(Colours):
        seen = 0

        def encode(self, pictures: Sequence[Image.Image]) -> Floats:
            Counted.seen += len(pictures)
            return super().encode(pictures)

    path = tmp_path / "policy.jsonl"
    for i in range(3):
        noise(i).save(tmp_path / f"{i}.png")
    edit(path, [Entry(f"p{i}", image=f"{i}.png") for i in range(2)])
    policy = Policy(path, words, Counted())
    assert len(policy.entries) == 2 == Counted.seen
    edit(path, [Entry("p2", image="2.png")])
    assert len(policy.entries) == 3 == Counted.seen


def test_a_policy_picture_that_cannot_be_opened_keeps_the_old(tmp_path: Path, words: Words, colours: Colours) -> None:
    path = tmp_path / "policy.jsonl"
    edit(path, [Entry("r", "secret")])
    policy = Policy(path, words, colours)
    assert policy.match("secret").blocks
    edit(path, [Entry("p", image="none.png")])
    assert policy.match("secret").blocks and "none.png" in policy.notice and len(policy.entries) == 1


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{}",
        '{"id": "a"}',
        '{"id": "a", "query": "q", "x": 1}',
        '{"id": "a", "query": 3}',
        '{"id": "a", "query": "q", "threshold": 2}',
        '{"id": "a", "query": "q", "tags": "t"}',
        '{"id": "b", "query": "q"}',
        "nonsense",
    ],
)
def test_a_wrong_policy_line_is_named(line: str) -> None:
    with pytest.raises(DataError, match="p:2"):
        parse('{"id": "b", "query": "q"}\n' + line, "p")


@given(st.text())
def test_policy_parsing_raises_data_errors_only(text: str) -> None:
    try:
        parse(text, "p")
    except DataError:
        return
    assert not np.any([line.strip() for line in text.splitlines()]) or '"id"' in text


def test_edit_refuses_unknown_ids(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'x'"):
        edit(tmp_path / "policy.jsonl", remove=["x"])
