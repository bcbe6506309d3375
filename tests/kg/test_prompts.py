"""Prompt sets: declared fields, shapes of replies, special tokens in what users bring."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from kg.agents import CONSTANT, HOME, SIGHTED, SLOTS, TABLE, Agents, Scene, names_pattern
from kg.dataset import Card
from kg.graph import Edge, Entity, Walk
from models.agents import Call
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
        ("reply: verdict\nfields: [nonsense]\nbody: '{nonsense}'\n", "nothing fills {nonsense}"),
        ("reply: verdict\nfields: [memory]\nbody: '{memory}'\n", "it has question, gold, predicted, persona"),
        ("reply: verdict\nimages: [frames]\nbody: '{frames}'\n", "nothing fills {frames} for the judge; it has none"),
        ("reply: verdict\nbody: " + "[" * 3000, "judge.yaml: is not YAML"),
        (b"\xff\xfe\x00", "judge.yaml: is not YAML"),
    ],
)
def test_faults_name_the_file(tmp_path: Path, text: str | bytes, said: str) -> None:
    (tmp_path / "judge.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        Agents.load(CARD, tmp_path)
    assert said in str(caught.value) and "judge.yaml" in str(caught.value)


@pytest.mark.parametrize(("agent", "row"), list(TABLE.items()))
def test_every_slot_of_the_table_can_be_used_and_no_other(tmp_path: Path, agent: str, row: tuple[str, tuple[str, ...]]) -> None:
    texts, pictures = [*SLOTS[agent], *CONSTANT], ["frames"] if agent in SIGHTED else []
    body = " ".join(f"{{{slot}}}" for slot in texts + pictures)
    (tmp_path / f"{agent}.yaml").write_text(json.dumps({"reply": row[1][0], "fields": texts, "images": pictures, "body": body}))
    Agents.load(CARD, tmp_path)
    for swapped in ({"fields": texts + pictures, "images": []}, {"fields": texts[1:], "images": [*pictures, texts[0]]}):
        if pictures or swapped["images"]:
            (tmp_path / f"{agent}.yaml").write_text(json.dumps({"reply": row[1][0], "body": body, **swapped}))
            with pytest.raises(ConfigError, match=f"nothing fills .* for the {agent}"):
                Agents.load(CARD, tmp_path)


@pytest.mark.parametrize(
    ("key", "text"),
    [("start", "{nmae}"), ("start", "{name"), ("step", "{name.__class__}"), ("info", "{info!r}"), ("walk", "{walk:>99}"), ("start", "{}")],
)
def test_a_style_that_nothing_fills_is_refused(tmp_path: Path, key: str, text: str) -> None:
    style = yaml.safe_load((HOME / "full" / "style.yaml").read_text())
    (tmp_path / "style.yaml").write_text(json.dumps({**style, key: text}))
    with pytest.raises(ConfigError, match=rf"style\.yaml: {key}: "):
        Agents.load(CARD, tmp_path)
    (tmp_path / "style.yaml").write_text(json.dumps({**style, key: "{{so}}", "nothing": "{as it stands}"}))
    Agents.load(CARD, tmp_path)


@pytest.mark.parametrize("name", ["judge", "style"])
def test_a_broken_link_is_no_file_that_was_left_out(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.yaml").symlink_to("nowhere")
    with pytest.raises(ConfigError, match=f"{name}.yaml: cannot be read"):
        Agents.load(CARD, tmp_path)


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


def test_the_calls_of_one_way_extend_one_another() -> None:
    """The prompts of a parent's expansion, a child's validation, the child's expansion and the answer begin alike, up to what is new."""
    card = Card("toy", "You know this toy world.", "root", {"root": "a root", "act": "an act"}, ("I",), action_kind="act", subject="toy")
    entities = [Entity(0, "Oru", "Oru", "root", info="It is old."), Entity(1, "Leap", "Oru", "act", caption="It jumps up.")]
    graph: Any = SimpleNamespace(entity=entities.__getitem__)
    agents, scene = Agents.load(card, "full"), Scene("What now?", "It crouches.")
    start, step = Walk((0,)), Walk((0, 1), (Edge(0, "does", 1),))

    def told(entity: Entity) -> str:
        return entity.caption

    def text(call: Call[Any]) -> str:
        return call.request.text

    first = text(agents.validate(scene, graph, start, told, (), round=0, constrained=False))
    opened = text(agents.expand(scene, graph, start, [Edge(0, "does", 1)], told, round=1, constrained=False))
    judged = text(agents.validate(scene, graph, step, told, (), round=1, constrained=False))
    onward = text(agents.expand(scene, graph, step, [Edge(0, "does", 1)], told, round=2, constrained=False))
    answered = text(agents.summarize("What now?", "It crouches.", agents.style.knowledge(graph, [step], told), ()))
    root = opened.index("It is old.") + len("It is old.")
    assert first[:root] == opened[:root] == judged[:root]
    end = judged.index("It jumps up.") + len("It jumps up.")
    assert judged[:end] == onward[:end] == answered[:end]
    assert "It jumps up." not in opened and judged.count("It jumps up.") == 1


def test_an_entity_is_not_described_where_its_pictures_are_shown(tmp_path: Path) -> None:
    entities = [Entity(0, "Oru", "Oru", "root"), Entity(1, "Leap", "Oru", "act", caption="It jumps up.")]
    graph: Any = SimpleNamespace(entity=entities.__getitem__)
    call = Agents.load(CARD, "full").validate(
        Scene("What?", ""), graph, Walk((0, 1), (Edge(0, "does", 1),)), lambda e: e.caption, (Picture(tmp_path / "x", "1"),), round=1,
        constrained=False,
    )  # fmt: skip
    assert call.stage == "validator_online" and "jumps" not in call.request.text
