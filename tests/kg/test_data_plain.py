"""The plain layout, its card, and everything that can be wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kg.card import builtin_card, parse_card
from kg.load import load
from models.errors import DataError

Write = Callable[..., Path]


def test_a_small_graph_in_csv(plain: Write) -> None:
    d = load(plain())
    assert [d.graph.entity(i).name for i in range(len(d.graph))] == ["Oak", "Leaf"]
    assert d.graph.entity(0).owner == "Oak" and d.graph.entity(1).owner == "Oak"
    assert d.questions[0].routes == (("Oak", "Leaf"),) and d.questions[0].task == 0
    assert d.card.tasks == ("leaf", "bark") and d.card.phase_kind == "" and not d.findings


def test_the_same_in_jsonl(plain: Write) -> None:
    def lines(*rows: dict[str, object]) -> str:
        return "".join(json.dumps(row) + "\n" for row in rows)

    entities = lines({"name": "Oak", "kind": "tree"}, {"id": "l1", "name": "Leaf", "kind": "part", "owner": "Oak", "info": "a\nb"})
    questions = lines({"id": "a", "text": "?", "root": "Oak", "answer": "g", "routes": [["Oak", "Leaf"], ["Oak"]], "task": 1})
    relations = lines({"source": "Oak", "relation": "has", "target": "l1", "condition": "in spring"})
    d = load(plain(entities, "\n" + relations, questions, suffix=".jsonl"))
    assert d.questions[0].routes == (("Oak", "Leaf"), ("Oak",)) and d.questions[0].task == 1
    assert d.graph.neighbours(0)[0].condition == "in spring" and d.graph.entity(1).info == "a\nb"


def test_homonyms_under_two_owners_need_ids_and_stay_two(plain: Write) -> None:
    rows = "{}name,kind,owner\n{}Oak,tree,\n{}Elm,tree,\n{}Leaf,part,Oak\n{}Leaf,part,Elm\n"
    with pytest.raises(DataError, match=r"entities\.csv:5: 'Leaf' is there already; give both rows an id"):
        load(plain(rows.format("", "", "", "", "")))
    graph = load(plain(rows.format("id,", "o,", "e,", "1,", "2,"), "source,relation,target\no,has,1\ne,has,2\n")).graph
    assert graph.find("Leaf", "Oak") != graph.find("Leaf", "Elm")


def test_large_cells_are_read(plain: Write) -> None:
    long = "y" * 400_000
    d = load(plain(entities=f'name,kind,caption\nOak,tree,"{long}"\nLeaf,part,"1,2\r\n3"\n'))
    assert d.graph.entity(0).caption == long and d.graph.entity(1).caption == "1,2\r\n3"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"entities": "name\nOak\n"}, r"entities\.csv:1: lacks kind"),
        ({"entities": "name,kind,color\nOak,tree,red\n"}, r"'color' unknown or twice; known columns: id, name"),
        ({"entities": "name,kind,kind\nOak,tree,tree\n"}, "'kind' unknown or twice"),
        ({"entities": "name,kind\nOak,tree,x\n"}, r"entities\.csv:2: 3 cells instead of 2"),
        ({"entities": 'name,kind\n"Oak,tree\n'}, "cannot be read"),
        ({"entities": "name,kind\n"}, "the sheet holds no row"),
        ({"entities": ""}, "lacks name, kind"),
        ({"entities": "name,kind\nOak,bush\n"}, "kind 'bush'; dataset.toml has tree, part"),
        ({"entities": "name,kind\n,tree\n"}, "name is empty"),
        ({"entities": "name,kind\nLeaf,part\n", "relations": "source,relation,target\n"}, "no entity is of the root kind 'tree'"),
        ({"entities": "name,kind,owner\nOak,tree,\nLeaf,part,Elm\n"}, r"entities\.csv:3: owner 'Elm' is no root"),
        ({"entities": "name,kind,owner\nOak,tree,Elm\nLeaf,part,\n"}, "the root 'Oak' cannot belong to 'Elm'"),
        ({"entities": "id,name,kind\n1,Oak,tree\n1,Leaf,part\n"}, "the id '1' is taken"),
        ({"entities": "id,name,kind\n1,Oak,tree\n2,Leaf,part\n3,Leaf,part\n"}, "'Leaf' is shared twice"),
        (
            {"relations": "source,relation,target\nOak,has,leaf\n"},
            r"relations\.csv:2: target 'leaf' is no entity's id \(did you mean 'Leaf'",
        ),
        ({"relations": "source,relation,target\nOak,,Leaf\n"}, "relation is empty"),
        ({"relations": None}, "neither relations.csv nor relations.jsonl"),
        ({"questions": "id,text,root,answer,routes,task\na,?,Elm,x,Elm,leaf\n"}, r"questions\.csv:2: .*'Elm', which is no root"),
        ({"questions": "id,text,root,answer,routes,task\na,?,Oak,x,Oak,2\n"}, "task '2'; allowed: 0 to 1, or leaf, bark"),
        ({"questions": "id,text,root,answer,routes,task\na,?,Oak,x,Oak,²\n"}, "task '²'"),
        ({"questions": "id,text,root,answer,routes,task\na,?,Oak,x,Oak," + "9" * 5000 + "\n"}, "task '9{80}'; allowed"),
        ({"card": None}, "has no dataset.toml"),
        ({"card": "name = 3"}, r"root_kind: Field required.*known keys: name, persona"),
        ({"card": "name = "}, "is not TOML"),
    ],
)
def test_each_mistake_in_one_message(plain: Write, files: dict[str, str | None], says: str) -> None:
    with pytest.raises(DataError, match=says):
        load(plain(**files))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"name": 3, "kind": "tree"}', "name should be text in quotes, found 3"),
        ('{"name": null, "kind": "tree"}', "found null"),
        ('["Oak"]', "should be an object"),
        ('{"name": "Oak"', "is no JSON"),
        ('{"name": "\\ud800", "kind": "tree"}', "surrogate"),
        ('{"name": "Oak", "kind": "tree", "colour": "red"}', "'colour' unknown"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_each_mistake_in_a_jsonl_line_names_the_line(plain: Write, line: str, says: str) -> None:
    entities = '{"name": "Oak", "kind": "tree"}\n{"name": "Leaf", "kind": "part"}\n' + line + "\n"
    folder = plain(entities, '{"source": "Oak", "relation": "has", "target": "Leaf"}\n', None, suffix=".jsonl")
    with pytest.raises(DataError, match=r"entities\.jsonl:3: .*" + says):
        load(folder)


def test_routes_that_are_no_lists_of_names(plain: Write) -> None:
    question = {"id": "a", "text": "?", "root": "Oak", "answer": "g", "routes": ["Oak", "Leaf"], "task": 1}
    folder = plain('{"name": "Oak", "kind": "tree"}\n', "\n", json.dumps(question), suffix=".jsonl")
    with pytest.raises(DataError, match="routes should be a list of lists"):
        load(folder)


def test_two_sheets_for_one_thing(plain: Write) -> None:
    folder = plain()
    (folder / "entities.jsonl").write_text('{"name": "Oak", "kind": "tree"}\n')
    with pytest.raises(DataError, match=r"entities\.csv and entities\.jsonl are both there"):
        load(folder)


def test_text_that_is_not_utf8(plain: Write) -> None:
    folder = plain()
    (folder / "entities.csv").write_bytes("name,kind\nOak,tree\nCaf\xe9,part\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"entities\.csv: is not UTF-8"):
        load(folder)


def test_a_byte_order_mark_is_no_part_of_a_name(plain: Write) -> None:
    folder = plain()
    (folder / "entities.csv").write_text((folder / "entities.csv").read_text(), encoding="utf-8-sig")
    assert load(folder).graph.find("Oak") == 0


def test_rules_of_the_shipped_card() -> None:
    card = builtin_card("mh")[0]
    kinds = {
        "Calm Phase": "phase",
        "Fire Element": "element",
        "Fire Element Weapon": "weapon",
        "Pierce Pod": "prop",
        "Leap": "action",
    }
    assert {name: card.kind_of(name, "Oru", {"has attack action of"}) for name in kinds} == kinds
    assert card.kind_of("Ice Patch", "Oru", {"generates", "Causes"}) == "effect"
    assert card.kind_of("Ice Patch", "Oru", {"generates", "has attack action of"}) == "action"
    assert card.kind_of("Leap", "Oru", ()) == "action"
    assert [name for name in kinds if card.is_shared(name)] == ["Fire Element", "Fire Element Weapon", "Pierce Pod"]


BASE = 'name = "a"\npersona = "b"\nroot_kind = "r"\ntasks = ["t"]\n{}\n[kinds]\nr = "root"\n{}'


@pytest.mark.parametrize(
    ("top", "end", "says"),
    [
        ('color = "red"', "", "color: Extra inputs are not permitted"),
        ('phase_kind = "p"', "", "phase_kind = 'p' is not one of the kinds r"),
        ("", '[[rules]]\nkind = "x"', "a rule names the kind 'x'"),
        ("", '[[rules]]\nkind = "r"\nshared = true', "a shared rule states a suffix or names"),
        ("", '[[rules]]\nkind = "r"\nprefix = "x"', "prefix: Extra inputs"),
    ],
)
def test_a_card_with_a_mistake_says_which_key(top: str, end: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        parse_card(BASE.format(top, end), "dataset.toml")


def test_the_sound_card_that_these_are_made_from_is_accepted() -> None:
    assert parse_card(BASE.format("", ""), "dataset.toml").card().kinds == {"r": "root"}


def test_a_card_in_the_mh_layout_borrows_the_shipped_rules_for_its_kinds(mh: object) -> None:
    folder: Path = mh.write()  # type: ignore[attr-defined]
    kinds = "\n".join(f'{kind} = "x"' for kind in ("beast", "action", "element"))
    card = f'name = "a"\npersona = "b"\nroot_kind = "beast"\ntasks = ["t", "u"]\n[kinds]\n{kinds}\n'
    (folder / "dataset.toml").write_text(card)
    graph = load(folder).graph
    phase = graph.find("Calm Phase", "Oru")
    assert phase is not None and graph.entity(phase).kind == "action" and graph.entity(graph.roots[0]).kind == "beast"


def test_a_rule_that_fits_nothing_leaves_no_entity_without_a_kind_in_silence(mh: object) -> None:
    folder: Path = mh.write()  # type: ignore[attr-defined]
    rule = '[[rules]]\nkind = "action"\nnames = ["Leap"]\n'
    (folder / "dataset.toml").write_text(f'name="a"\npersona="b"\nroot_kind="m"\ntasks=["t","u"]\n[kinds]\nm=""\naction=""\n{rule}')
    with pytest.raises(DataError, match="no rule of the card fits the entity 'Calm Phase' of 'Oru'"):
        load(folder)
