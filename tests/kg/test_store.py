"""The graph as arrays, against a plain dictionary, and the compiled file, sound and damaged."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kg.arrays import LAYOUT, ArrayGraph
from kg.build import GraphBuilder
from kg.dataset import Card, Dataset, Finding, Question
from kg.findings import Findings
from kg.graph import Edge, Entity
from kg.load import load
from kg.store import MAGIC, open_compiled, save
from models.errors import DataError

FOLDER = Path("/data")
TEXT = st.text(max_size=8)
CARD = Card("n", "p", "root", {"root": "r", "part": "p"}, ("t",))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[ArrayGraph, list[Entity], list[Edge]]:
    """A graph, and what it should hold."""
    roots = draw(st.lists(TEXT.filter(bool), min_size=1, max_size=4, unique=True))
    parts = draw(st.lists(st.tuples(TEXT.filter(bool), st.sampled_from(["", *roots])), max_size=8, unique=True))
    pairs = [(r, r) for r in roots] + [p for p in parts if p[0] != p[1]]
    builder, entities = GraphBuilder(FOLDER, Findings(FOLDER)), []
    for i, (name, owner) in enumerate(pairs):
        images = tuple(FOLDER / f"p{k}.png" for k in range(draw(st.integers(0, 2))))
        video = draw(st.sampled_from([None, FOLDER / "clip.mp4"]))
        caption, info = draw(TEXT), draw(TEXT)
        kind = "root" if i < len(roots) else "part"
        builder.add(name, owner, kind, images=images, video=video, caption=caption, info=info)
        entities.append(Entity(i, name, owner, kind, images, video, caption, info))
    numbers = st.integers(0, len(pairs) - 1)
    edges = [Edge(*e) for e in draw(st.lists(st.tuples(numbers, TEXT, numbers, TEXT, TEXT), max_size=20))]
    for e in edges:
        builder.edge(e.source, e.relation, e.target, e.information, e.condition)
    return builder.finish("root"), entities, list(dict.fromkeys(edges))


def same(graph: ArrayGraph, entities: list[Entity], edges: list[Edge]) -> None:
    assert [graph.entity(i) for i in range(len(graph))] == entities
    assert [list(graph.neighbours(i)) for i in range(len(graph))] == [[e for e in edges if e.source == i] for i in range(len(graph))]
    assert list(graph.roots) == [e.index for e in entities if e.kind == "root"]


@given(graphs(), TEXT, TEXT)
def test_the_arrays_hold_what_went_in(given_: tuple[ArrayGraph, list[Entity], list[Edge]], name: str, owner: str) -> None:
    graph, entities, edges = given_
    same(graph, entities, edges)
    at = {(e.name, e.owner): e.index for e in entities}
    roots = {e.name: e.index for e in entities if e.kind == "root"}
    asked = [(name, owner), *((e.name, o) for e in entities for o in ("", owner, *roots))]
    for n, o in asked:
        wanted = at.get((n, o), at.get((n, ""), roots.get(n)))
        assert graph.find(n, o) == wanted


@settings(max_examples=25)
@given(graphs(), st.text())
def test_a_compiled_file_comes_back_equal(given_: tuple[ArrayGraph, list[Entity], list[Edge]], text: str) -> None:
    graph, entities, edges = given_
    question = Question("q", 1, text, "r", "", "s", (FOLDER / "a.png",), FOLDER / "c.mp4", "y", (("a", "b"), ("c",)), 0)
    dataset = Dataset(FOLDER, CARD, graph, (question,), "digest", (Finding("warning", "c", text, "f", 3),))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deep" / "x.kgc"
        save(dataset, path)
        back = open_compiled(path)
        assert (back.questions, back.card, back.digest, back.findings) == (dataset.questions, CARD, "digest", dataset.findings)
        assert isinstance(back.graph, ArrayGraph)
        same(back.graph, entities, edges)
        assert [p.name for p in path.parent.iterdir()] == ["x.kgc"]


@pytest.fixture
def compiled(mh: Any, tmp_path: Path) -> Path:
    path = tmp_path / "x.kgc"
    save(load(mh.write()), path)
    return path


def test_load_takes_a_compiled_file(mh: Any, compiled: Path) -> None:
    a, b = load(mh.folder), load(compiled)
    assert a.digest == b.digest and a.questions == b.questions and a.folder == b.folder
    assert [a.graph.entity(i) for i in range(len(a.graph))] == [b.graph.entity(i) for i in range(len(b.graph))]


def test_the_arrays_of_a_compiled_file_are_mapped_and_read_only(compiled: Path) -> None:
    graph = open_compiled(compiled).graph
    assert isinstance(graph, ArrayGraph)
    for name in LAYOUT:
        array = graph.arrays[name]
        assert not len(array) or not array.flags.writeable
        base: Any = array
        while getattr(base, "base", None) is not None and not isinstance(base, np.memmap):
            base = base.base
        assert not len(array) or isinstance(base, np.memmap)


def damage(path: Path, how: str) -> None:
    raw = path.read_bytes()
    line = len(MAGIC) + 65  # magic, the header's digest, the header
    head = raw.index(b"\n", line)
    if how == "cut":
        path.write_bytes(raw[:-100])
    elif how == "a bit":
        path.write_bytes(raw[:-300] + bytes([raw[-300] ^ 1]) + raw[-299:])
    elif how == "another version":
        path.write_bytes(b"untamed-kg 0\n" + raw[len(MAGIC) :])
    elif how == "no header":
        path.write_bytes(MAGIC)
    elif how == "header":
        path.write_bytes(raw[:40] + b"\xff" + raw[41:])
    elif how == "foreign array":
        header = json.loads(raw[line:head])
        header["arrays"]["target"][0] = "f8"
        changed = json.dumps(header).encode().ljust(head - line)
        path.write_bytes(MAGIC + hashlib.sha256(changed).hexdigest().encode() + b"\n" + changed + raw[head:])
    else:
        path.write_bytes(b"")


@pytest.mark.parametrize("place", [0.1, 0.4, 0.7, 0.95])
def test_a_flipped_bit_of_the_header_is_found(compiled: Path, place: float) -> None:
    """One that leaves it good JSON: a letter of an answer, a digit of a count."""
    raw = compiled.read_bytes()
    line, head = len(MAGIC) + 65, raw.index(b"\n", len(MAGIC) + 65)
    at = next(i for i in range(line + int((head - line) * place), head) if raw[i : i + 1].isalnum() and raw[i - 1 : i].isalnum())
    compiled.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
    with pytest.raises(DataError, match=r"header does not have its digest.*compile it again"):
        open_compiled(compiled)


@pytest.mark.parametrize("how", ["cut", "a bit", "another version", "no header", "header", "foreign array", "empty"])
def test_a_damaged_file_says_so_and_what_to_do(compiled: Path, how: str) -> None:
    damage(compiled, how)
    with pytest.raises(DataError, match="compile it again"):
        open_compiled(compiled)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        open_compiled(tmp_path / "x.kgc")


def test_a_disk_that_refuses_leaves_the_old_file_and_no_half(mh: Any, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = compiled.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="No space left"):
        save(load(mh.folder), compiled)
    assert compiled.read_bytes() == before and [p.name for p in compiled.parent.glob(".*")] == []


@pytest.mark.parametrize("index", [-1, 7, 10**9])
def test_numbers_outside_the_graph_are_index_errors(mh: Any, index: int) -> None:
    graph = load(mh.write()).graph
    assert len(graph) == 7
    with pytest.raises(IndexError):
        graph.entity(index)
    with pytest.raises(IndexError):
        graph.neighbours(index)


def test_a_pair_is_added_once() -> None:
    builder = GraphBuilder(FOLDER, Findings(FOLDER))
    builder.add("a", "b", "part")
    with pytest.raises(ValueError, match="twice"):
        builder.add("a", "b", "part")


def test_neighbours_touch_only_their_own_rows() -> None:
    """A hub of 5,000 edges beside a leaf of one: the leaf's neighbours read one edge."""
    builder = GraphBuilder(FOLDER, Findings(FOLDER))
    for i in range(5_001):
        builder.add(f"e{i}", "", "root" if i == 0 else "part")
    for i in range(1, 5_001):
        builder.edge(0, "has", i)
    builder.edge(7, "turns to", 8)
    graph = builder.finish("root")
    read: list[int] = []

    class Counting(ArrayGraph):
        def text(self, number: int) -> str:
            read.append(number)
            return super().text(number)

    assert [e.target for e in Counting(graph.arrays, FOLDER).neighbours(7)] == [8] and len(read) == 3
    assert len(graph.neighbours(0)) == 5_000


def test_the_measuring_command_runs_small() -> None:
    command = [sys.executable, "-m", "kg", "measure", "--entities", "300", "--edges", "900"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert "loaded ArrayGraph(300 entities, 9" in done.stdout or "loaded ArrayGraph(300 entities, 8" in done.stdout
