"""From one layout to the other and back: nothing is lost, and what a layout cannot hold is refused by name."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from kg.arrays import ArrayGraph
from kg.convert import convert
from kg.dataset import Dataset
from kg.load import load
from kg.names import visible
from models.errors import DataError


def picture(path: Path, shade: int = 9) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 2), (shade, shade, shade)).save(path)


def content(d: Dataset) -> tuple[Any, ...]:
    """Everything that a data set says, without numbers of entities and places of files."""
    g = d.graph
    assert isinstance(g, ArrayGraph)
    es = [g.entity(i) for i in range(len(g))]

    def files(*paths: Path | None) -> tuple[bytes | None, ...]:
        return tuple(p.read_bytes() if p else None for p in paths)

    entities = Counter((e.name, e.owner, e.kind, e.caption, e.info, files(*e.images), files(e.video)) for e in es)
    edges = [v for i in range(len(g)) for v in g.neighbours(i)]
    ends = [((es[v.source].name, es[v.source].owner), (es[v.target].name, es[v.target].owner)) for v in edges]
    lines = Counter((a, v.relation, b, v.information, v.condition) for v, (a, b) in zip(edges, ends, strict=True))
    questions = [
        (q.id, q.row, q.text, q.root, q.extra, q.perception, files(*q.images), files(q.video), q.answer, q.routes, q.task)
        for q in d.questions
    ]
    return d.card, entities, lines, questions, [w.code for w in d.findings if w.level == "error"]


ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAME = ANY.map(str.strip).filter(lambda n: bool(visible(n).strip()))
STEP = NAME.filter(lambda n: not set(n) & set(";>"))
ROOT = st.text(st.characters(categories=["L", "N", "P", "Zs"], exclude_characters="/\\;>"), min_size=1, max_size=6).map(str.strip)
ROOTS = st.lists(ROOT.filter(lambda n: bool(n) and not n.startswith(".")), min_size=1, max_size=3, unique=True)
KINDS = ("tree", "part", "stage")


@st.composite
def files(draw: st.DrawFn) -> dict[str, str]:
    """A data set in the plain layout that the MH layout can hold."""
    roots = draw(ROOTS)
    free = NAME.filter(lambda n: n not in roots)
    shared = draw(st.lists(free, max_size=2, unique=True))
    local = draw(st.lists(st.tuples(free.filter(lambda n: n not in shared), st.sampled_from(roots)), max_size=6, unique=True))
    pairs = [(r, "") for r in roots] + [(s, "") for s in shared] + local
    entities = [
        {"id": f"e{i}", "name": n, "owner": o, "kind": "tree" if i < len(roots) else draw(st.sampled_from(KINDS[1:])), "caption": draw(ANY)}
        for i, (n, o) in enumerate(pairs)
    ]
    numbers = st.integers(0, len(pairs) - 1)
    relations = []
    for a, b, relation, information, condition in draw(st.lists(st.tuples(numbers, numbers, NAME, ANY, ANY), max_size=8)):
        if not (pairs[a][1] and pairs[b][1] and pairs[a][1] != pairs[b][1]):
            ends = {"source": f"e{a}", "relation": relation, "target": f"e{b}"}
            relations.append({**ends, "information": information, "condition": condition})
    routes = st.lists(st.lists(STEP, min_size=1, max_size=3), max_size=3)
    rows = draw(st.lists(st.tuples(NAME, ANY, st.sampled_from(roots), ANY, ANY, routes, st.integers(0, 1)), max_size=4))
    questions = [dict(zip(("id", "text", "root", "extra", "answer", "routes", "task"), row, strict=True)) for row in rows]
    kinds = "\n".join(f'{kind} = "a {kind}"' for kind in KINDS)
    card = f'name = "T"\npersona = "x\\u007f"\nroot_kind = "tree"\nphase_kind = "stage"\ntasks = ["a", "b"]\n[kinds]\n{kinds}\n'
    sheets = {"entities": entities, "relations": relations, "questions": questions}
    return {"dataset.toml": card, **{f"{k}.jsonl": "".join(json.dumps(row) + "\n" for row in rows) for k, rows in sheets.items()}}


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(files())
def test_plain_to_mh_and_back_loses_nothing(written: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a").mkdir()
        for file, text in written.items():
            (folder / "a" / file).write_text(text, encoding="utf-8")
        first = content(load(folder / "a"))
        there = convert(folder / "a", "mh", folder / "b")
        assert content(there) == first
        back = convert(folder / "b", "plain-jsonl", folder / "c")
        assert content(back) == first
        assert sorted(p.name for p in folder.iterdir()) == ["a", "b", "c"]


def test_mh_to_csv_and_back_with_media(mh: Any, tmp_path: Path) -> None:
    mh.nodes["Oru"][2] = ("Leap", "Leap", "leap.mp4", 'a "b", c\r\nd', "")
    mh.nodes["Vex"][1] = ("Leap", "one.png", "", "", "\x01")
    mh.questions[0] = ("q1", "clip.mp4", "frames", "?", "Oru", "", "", "Oru>Vex;Oru", "x", 0)
    mh.questions.append(mh.questions[0])
    base = mh.write()
    for i in (10, 9, 2):
        picture(base / "mmkg" / "Oru" / "Knowledge_Images" / "Leap" / f"f{i}.png", i)
        picture(base / "questions_mh" / "q1" / "frames" / f"f{i}.png", i + 1)
    picture(base / "mmkg" / "Vex" / "Knowledge_Images" / "one.png", 77)
    (base / "mmkg" / "Oru" / "Knowledge_Videos").mkdir()
    (base / "mmkg" / "Oru" / "Knowledge_Videos" / "leap.mp4").write_bytes(b"clip")
    (base / "questions_mh" / "q1" / "clip.mp4").write_bytes(b"question clip")
    first = load(base)
    assert len(first.questions[0].images) == 3 and first.questions[0].video and not [f for f in first.findings if f.code == "missing-media"]
    there = convert(base, "plain", tmp_path / "plain")
    back = convert(tmp_path / "plain", "mh", tmp_path / "back")
    assert content(first) == content(there) == content(back)


def test_kinds_and_sharing_that_no_shipped_rule_says_come_back(plain: Callable[..., Path], tmp_path: Path) -> None:
    rows = [
        "O,Oak,tree,",
        "E,Elm,tree,",
        "1,Sap,part,Oak",
        "2,Sap,stage,Elm",
        "3,Sun,part,",
        "4,Fire Element,part,Oak",
        "5,Rest Phase,part,Elm",
    ]
    entities = "\n".join(["id,name,kind,owner", *rows, ""])
    relations = "source,relation,target\nO,has,1\nE,has,2\nE,needs,3\nO,has,4\nE,has,5\n"
    card = (
        'name = "T"\npersona = ""\nroot_kind = "tree"\ntasks = ["leaf"]\n[kinds]\ntree = ""\npart = ""\nstage = ""\n'
        '[[rules]]\nkind = "stage"\nsuffix = " Phase"\n[[rules]]\nkind = "stage"\nsuffix = " Element"\nshared = true\n'
    )
    folder = plain(entities, relations, None, card)
    graph = convert(folder, "mh", tmp_path / "mh").graph
    kinds = {(e.name, e.owner): e.kind for e in (graph.entity(i) for i in range(len(graph)))}
    assert kinds == {
        ("Oak", "Oak"): "tree",
        ("Elm", "Elm"): "tree",
        ("Sap", "Oak"): "part",
        ("Sap", "Elm"): "stage",
        ("Sun", ""): "part",
        ("Fire Element", "Oak"): "part",
        ("Rest Phase", "Elm"): "part",
    }


@pytest.mark.parametrize(
    ("entities", "relations", "questions", "says"),
    [
        ("name,kind\na/b,tree\n", "", "", "'a/b' is no name for a folder"),
        ("name,kind\n..,tree\n", "", "", r"'\.\.' is no name for a folder"),
        ("id,name,kind,owner\n1,Oak,tree,\n2,Elm,tree,\n3,Elm,part,Oak\n", "", "", "'Elm' of 'Oak' has the name of a root"),
        ("id,name,kind,owner\n1,Oak,tree,\n2,Sap,part,Oak\n3,Sap,part,\n", "", "", "'Sap' is shared and also of 'Oak'"),
        ("id,name,kind,owner\n1,Oak,tree,\n2,Elm,tree,\n3,a,part,Oak\n4,b,part,Elm\n", "3,joins,4\n", "", "joins two roots' own entities"),
    ],
)
def test_what_the_mh_layout_cannot_hold_is_refused_before_anything_is_written(
    plain: Callable[..., Path], tmp_path: Path, entities: str, relations: str, questions: str, says: str
) -> None:
    folder = plain(entities, f"source,relation,target\n{relations}", None)
    with pytest.raises(DataError, match=says):
        convert(folder, "mh", tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plain"]


def test_what_csv_cannot_hold_is_refused(plain: Callable[..., Path], tmp_path: Path) -> None:
    question = {"id": "a", "text": "?", "root": "O", "answer": "g", "routes": [["O", "a>b"]], "task": 0}
    entities = '{"name": "O", "kind": "tree"}\n{"name": "a>b", "kind": "part"}\n'
    folder = plain(entities, '{"source": "O", "relation": "has", "target": "a>b"}\n', json.dumps(question), suffix=".jsonl")
    with pytest.raises(DataError, match=r"'a>b' holds '>'.*plain-jsonl"):
        convert(folder, "plain", tmp_path / "out")
    with pytest.raises(DataError, match="the route step 'a>b' holds"):
        convert(folder, "mh", tmp_path / "out")
    assert convert(folder, "plain-jsonl", tmp_path / "out").questions[0].routes == (("O", "a>b"),)


def test_a_folder_that_is_there_is_never_written_into(plain: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    with pytest.raises(DataError, match="is there already"):
        convert(plain(), "mh", tmp_path / "out")
    assert (tmp_path / "out" / "mine.txt").read_text() == "x"


def test_two_layouts_in_one_folder_are_refused(mh: Any) -> None:
    (mh.write() / "entities.csv").write_text("name,kind\n")
    with pytest.raises(DataError, match="keep one layout"):
        load(mh.folder)


def test_an_unknown_target_lists_the_known_ones(plain: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="mh, plain, plain-jsonl"):
        convert(plain(), "rdf", tmp_path / "out")
