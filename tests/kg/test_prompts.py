"""Prompt sets: declared fields, shapes of replies, special tokens in what users bring."""

from pathlib import Path

import pytest

from kg.agents import HOME, TABLE, Agents, names_pattern
from kg.dataset import Card
from models.errors import ConfigError
from models.prompts import Prompt, escape_special
from models.requests import Picture

CARD = Card("toy", "You know this toy world.", "root", {"phase": "a phase"}, ("I",), phase_kind="phase", subject="toy")


@pytest.mark.parametrize("name", ["full", "compact"])
def test_shipped_sets_are_complete(name: str) -> None:
    agents = Agents.load(CARD, name)
    assert set(agents.rows) == set(TABLE)
    assert {path.stem for path in (HOME / name).glob("*.yaml")} == {*TABLE, "style"}


def test_full_prompts_carry_the_persona_and_compact_ones_do_not() -> None:
    assert Agents.load(CARD, "full").perceive("What?", ()).request.text.startswith(CARD.persona)
    assert CARD.persona not in Agents.load(CARD, "compact").perceive("What?", ()).request.text


def test_no_prompt_names_a_game() -> None:
    for path in HOME.rglob("*.yaml"):
        assert "monster" not in path.read_text(encoding="utf-8").lower(), path


def test_a_folder_replaces_some_files_and_changes_the_digest(tmp_path: Path) -> None:
    (tmp_path / "judge.yaml").write_text("reply: verdict\nfields: [gold, predicted]\nbody: 'Same? {gold} / {predicted}'\n")
    agents = Agents.load(CARD, tmp_path)
    assert agents.judge_answer("q", "a", "b").request.text == "Same? a / b"
    assert agents.perceive("q", ()).request.text == Agents.load(CARD).perceive("q", ()).request.text
    assert agents.digest != Agents.load(CARD).digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("reply: verdict\nbody: '{gold}'\n", "without declaring it"),
        ("reply: verdict\nfields: [gold]\nbody: 'hello'\n", "never uses it"),
        ("reply: verdict\nbody: hello\nsurprise: 1\n", "Extra inputs"),
        ("reply: names\nbody: hello\n", "no shape of the judge's reply"),
        ("body: [unclosed\n", "is not YAML"),
        ("- a list\n", "judge.yaml"),
        ("reply: verdict\nfields: [nonsense]\nbody: '{nonsense}'\n", "nonsense"),
    ],
)
def test_faults_name_the_file(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "judge.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        Agents.load(CARD, tmp_path).judge_answer("q", "a", "b")
    assert said in str(caught.value)


def test_an_unknown_set_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="known sets: compact, full"):
        Agents.load(CARD, "fulll")


def test_special_tokens_in_user_text_cannot_become_slots() -> None:
    for token in ("<|image_pad|>", "<|im_end|>", "<|im_start|>", "<img>", "</img>", "<IMG_CONTEXT>", "<|vision_start|>", "<|endoftext|>"):
        call = Agents.load(CARD, "compact").judge_answer(f"what {token} is", "a", "{gold}")
        assert token not in call.request.text
        assert "predicted : {gold}" in call.request.text  # inserted text is not read for slots again
    assert escape_special("a < b | c > d") == "a < b | c > d"


def test_pictures_stand_where_their_slot_stands(tmp_path: Path) -> None:
    prompt = Prompt(name="p", reply="text", body="before {frames} after", images=("frames",))
    picture = Picture(tmp_path / "x.png", "0" * 64)
    (message,) = prompt.render({"frames": (picture, picture)}).messages
    assert message.parts == ("before ", picture, picture, " after")


def test_key_changes_with_every_byte(tmp_path: Path) -> None:
    agents = Agents.load(CARD, "compact")
    base = agents.perceive("q", (Picture(tmp_path / "x", "1"),)).request
    other = agents.perceive("q", (Picture(tmp_path / "x", "2"),)).request
    moved = agents.perceive("q", (Picture(tmp_path / "y", "1"),)).request
    assert base.key("m") != other.key("m")
    assert base.key("m") == moved.key("m")  # the digest is the picture, not its name
    assert base.key("m") != base.key("n")
    assert base.key("m") != base.with_decoding(max_tokens=7).key("m")


def test_constrained_names_match_their_own_pattern() -> None:
    import re

    options = ["Rush (fast)", "A.B*", "360 Tail Spin", "a|b"]
    pattern = re.compile(names_pattern(options))
    assert pattern.fullmatch("; ".join(options)) and pattern.fullmatch("None")
    assert not pattern.fullmatch("AxBB") and not pattern.fullmatch("")
