"""Readers and chunks: what comes in strange is mended and counted, or refused with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import DataError
from pipeline.documents import Notes, chunks, read, strip_html
from pipeline.evqa_kb import stream_object


def test_jsonl_known_keys_are_fields_and_the_rest_attributes(jsonl: Callable[..., Path]) -> None:
    path = jsonl(
        {"id": 7, "title": "Lamp", "text": "a lamp", "tags": ["light"], "price": 12.5, "attributes": {"colour": "red"}, "brand": None}
    )
    (document,) = read(path, Notes())
    assert (document.id, document.tags, dict(document.attributes)) == ("7", ("light",), {"price": 12.5, "colour": "red"})


@pytest.mark.parametrize(
    "row", [[], {"title": "x"}, {"id": ""}, {"id": True}, {"id": "a", "text": 3}, {"id": "a", "tags": "x"}, {"id": "a", "deep": {"x": 1}}]
)
def test_a_wrong_row_is_named_with_its_line(jsonl: Callable[..., Path], row: object) -> None:
    with pytest.raises(DataError, match=r"docs\.jsonl:2"):
        list(read(jsonl({"id": "good"}, row), Notes()))


def test_broken_utf8_and_missing_pictures_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_bytes(b'{"id": "a", "text": "caf\xe9 au lait", "images": ["no.png"]}\n\n')
    notes = Notes()
    (document,) = read(path, notes)
    assert document.text == "caf\ufffd au lait" and document.images == ()
    assert dict(notes.counts) == {"broken UTF-8 replaced": 1, "missing pictures": 1}


def test_a_lone_surrogate_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text('{"id": "a", "text": "x \\ud800 y"}')
    (document,) = read(path, Notes())
    document.text.encode()


def test_a_picture_outside_the_folder_is_refused(jsonl: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="leads out"):
        list(read(jsonl({"id": "a", "images": ["../secret.png"]}), Notes()))


def test_folder_pairs_texts_with_pictures(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Heading\nbody")
    (tmp_path / "a.png").write_bytes(b"x")
    (tmp_path / "only.jpg").write_bytes(b"x")
    (tmp_path / "page.html").write_text("<html><script>bad()</script><p>Hello &amp; bye</p>")
    (tmp_path / "table.csv").write_text("1")
    notes = Notes()
    found = {d.id: d for d in read(tmp_path, notes)}
    assert set(found) == {"a.md", "only.jpg", "page.html"}
    assert found["a.md"].title == "Heading" and len(found["a.md"].images) == 1
    assert found["page.html"].text == "Hello & bye"
    assert notes.counts["files of another kind left out"] == 1


@pytest.mark.parametrize("name", ["none.jsonl", "x.pdf"])
def test_unknown_inputs(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.pdf").write_bytes(b"")
    with pytest.raises(DataError):
        read(tmp_path / name, Notes())


def test_html_that_never_closes() -> None:
    assert strip_html("<p>a<script>b") == "a"


@given(st.text(), st.integers(2, 40), st.integers(0, 30))
def test_chunks_cover_every_word_and_move_on(text: str, size: int, overlap: int) -> None:
    overlap = min(overlap, size - 1)
    spans = chunks(text, size, overlap)
    covered = {i for start, end in spans for i in range(start, end)}
    assert all(i in covered or not (c.isalnum()) for i, c in enumerate(text))
    assert [s for s, _ in spans] == sorted({s for s, _ in spans})


def test_ten_megabytes_are_cut_and_neighbours_share_words() -> None:
    text = "word " * 2_000_000
    spans = chunks(text)
    assert len(spans) == pytest.approx(2_000_000 / 150, rel=0.01)
    assert spans[1][0] < spans[0][1]
    assert chunks("") == [] and chunks(" .. ") == []


def test_chunk_overlap_must_fit() -> None:
    with pytest.raises(DataError):
        chunks("x", 5, 5)


ARTICLE = {
    "title": "Oak",
    "section_titles": ["", "Use"],
    "section_texts": ['A tree. {"}', "Wood."],
    "image_reference_descriptions": ["An oak"],
}


def test_knowledge_base_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.evqa_kb._BLOCK", 7)
    path = tmp_path / "kb.json"
    path.write_text(
        json.dumps({f"https://w/{i}": {**ARTICLE, "title": f"Oäk {i}"} for i in range(5)}, ensure_ascii=False), encoding="utf-8"
    )
    found = list(read(path, notes := Notes()))
    assert [d.title for d in found] == [f"Oäk {i}" for i in range(5)] and not notes.counts
    assert found[0].text == 'A tree. {"}\n\nUse\nWood.\n\nAn oak'


@given(st.dictionaries(st.text(), st.recursive(st.integers() | st.text(), st.lists, max_leaves=5), max_size=5), st.integers(1, 30))
def test_stream_equals_json(tmp_path_factory: pytest.TempPathFactory, value: dict[str, object], block: int) -> None:
    path = tmp_path_factory.mktemp("kb") / "kb.json"
    path.write_text(json.dumps(value))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.evqa_kb._BLOCK", block)
        assert dict(stream_object(path, Notes())) == value


@pytest.mark.parametrize("text", ["", "[]", '{"a": {"section_texts": ["x"]', '{"a" 1}', '{"a": {"title": "x"}}', '{"a": 1 "b": 2}'])
def test_a_cut_knowledge_base_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kb.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"kb\.json"):
        list(read(path, Notes()))
