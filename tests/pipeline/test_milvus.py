"""A collection on Milvus (milvus-lite, a real server in this process): the same searches as on disk, edits, kills, refusals."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests_pipeline import Colours, Words, noise

from models.errors import DataError, ModelError
from pipeline.build import Tools
from pipeline.build import build as build_folder
from pipeline.collection import Collection
from pipeline.documents import Document, Notes
from pipeline.milvus import MilvusCollection, Place, add, build, place_of, remove

installed = importlib.util.find_spec("pymilvus") is not None and importlib.util.find_spec("milvus_lite") is not None
needs_milvus = pytest.mark.skipif(not installed, reason="the extra is not installed: pip install 'untamed[milvus]'")
quiet = pytest.mark.filterwarnings("ignore")  # what the client's own dependencies warn of


@pytest.mark.parametrize(
    "text,due",
    [
        ("milvus:http://10.0.0.5:19530#docs", Place("http://10.0.0.5:19530", "docs")),
        (Path("milvus:http://10.0.0.5:19530#docs"), Place("http://10.0.0.5:19530", "docs")),
        ("milvus:./a b.db#d_1", Place("./a b.db", "d_1")),
        ("docs", None),
        (Path("/x/milvus"), None),
    ],
)
def test_places(text: object, due: Place | None) -> None:
    assert place_of(text) == due


@pytest.mark.parametrize("text", ["milvus:", "milvus:./a.db", "milvus:./a.db#", "milvus:./a.db#1x", "milvus:./a.db#a-b", "milvus:#a"])
def test_a_place_that_is_none(text: str) -> None:
    with pytest.raises(DataError, match="is no place on Milvus"):
        place_of(text)


@pytest.mark.skipif(installed, reason="pymilvus is installed here")
def test_without_the_extra_the_message_names_it() -> None:
    with pytest.raises(ModelError, match=r"untamed\[milvus\]"):
        MilvusCollection(Place("./x.db", "a"))


@pytest.fixture
def documents(tmp_path: Path) -> list[Document]:
    for seed in range(3):
        noise(seed).save(tmp_path / f"{seed}.png")
    return [
        Document(
            "lamp",
            "Desk lamp",
            "A red desk lamp. Its price is 20 euros. " * 20,
            (tmp_path / "0.png",),
            ("light",),
            attributes={"price": 20},
        ),
        Document('oak "x" \\y', "Oak", "Oaks are trees with acorns.", (tmp_path / "1.png", tmp_path / "none.png")),
        Document("서울", "서울 타워", "서울의 타워는 산 위에 있다.", url="u", date="2026-01-01"),
        Document("picture", "", "", (tmp_path / "2.png",)),
        Document("nothing"),
    ]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "lite.db"), "docs")


@pytest.fixture
def tools(words: Words, colours: Colours) -> Tools:
    return Tools(words, colours, size=40, overlap=5)


@pytest.fixture
def opened(place: Place, documents: list[Document], tools: Tools) -> Iterator[Any]:
    notes = Notes()
    build(place, documents, tools, notes)
    assert notes.counts["pictures that cannot be opened"] == 1 == notes.counts["empty documents left out"]
    yield lambda: MilvusCollection(place, tools.text, tools.image)


@needs_milvus
@quiet
def test_the_same_searches_as_on_disk(opened: Any, documents: list[Document], tools: Tools, tmp_path: Path) -> None:
    build_folder(tmp_path / "folder", documents, tools)
    there, here = opened(), Collection(tmp_path / "folder", tools.text, tools.image)
    asked = ["price of a lamp", "acorns", "서울", "lamp " * 3000]
    for mine, theirs in zip(here.search(asked, 3), there.search(asked, 3), strict=True):
        assert [p.document for p in theirs][:1] == [p.document for p in mine][:1]
        assert {p.document for p in theirs} == {p.document for p in mine}
    best = there.search(["red lamp price"], 1)[0][0]
    assert best.attributes == {"price": 20} and best.tags == ("light",) and best.title == "Desk lamp" and best.id.startswith("lamp#")
    assert len(there.search(["?!"], 2)[0]) == 2
    assert there.search(["서울"], 1)[0][0].date == "2026-01-01" and there.search([], 3) == [] and there.search(["x"], 0) == [[]]
    found = there.similar([noise(1), noise(2)], 2)
    assert found[0][0].document == 'oak "x" \\y' and found[0][0].score == pytest.approx(1.0, abs=1e-4) and found[1][0].document == "picture"
    assert found[0][0].text == "Oaks are trees with acorns." and there.check() == []


@needs_milvus
@quiet
def test_add_replaces_and_remove_removes(opened: Any, place: Place, documents: list[Document], tools: Tools) -> None:
    first = opened().digest
    notes = Notes()
    add(place, [replace(documents[0], text="Short now."), Document("new", "New", "A new thing.")], tools, notes)
    made = opened()
    assert notes.counts["documents replaced"] == 1 and made.digest != first and made.card.documents == 5 and made.check() == []
    assert {p.document for p in made.search(["euros"], 9)[0] if "euros" in p.text} == set(), "chunks of the old text are still there"
    remove(place, ['oak "x" \\y', "서울"])
    made = opened()
    assert made.card.documents == 3 and 'oak "x" \\y' not in {p.document for p in made.search(["oak"], 9)[0]} and made.check() == []
    assert made.similar([noise(1)], 9)[0][0].document != 'oak "x" \\y'
    with pytest.raises(DataError, match=r"'gone'.*nothing was removed"):
        remove(place, ["lamp", "gone"])
    assert opened().card.documents == 3


@needs_milvus
@quiet
def test_a_failed_build_leaves_the_old(opened: Any, place: Place, documents: list[Document], tools: Tools) -> None:
    before = opened().digest

    def killed() -> Iterator[Document]:
        yield documents[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(place, killed(), tools, Notes())
    with pytest.raises(DataError, match="two documents are called 'lamp'"):
        build(place, [documents[0], documents[0]], tools, Notes())
    made = opened()
    assert made.digest == before and made.check() == [] and len(made.client.list_collections()) == 3


@needs_milvus
@quiet
def test_another_encoder_is_refused_and_nothing_is_no_collection(opened: Any, place: Place) -> None:
    with pytest.raises(DataError, match="built with the text encoder words"):
        MilvusCollection(place, Words(32, "other"))
    with pytest.raises(DataError, match="is no collection"):
        MilvusCollection(replace(place, name="none"))
    with pytest.raises(DataError, match="without a text encoder"):
        MilvusCollection(place).search(["x"], 1)


@needs_milvus
@quiet
def test_long_documents_and_empty_collections(place: Place, tools: Tools) -> None:
    notes = Notes()
    build(place, [], tools, notes)
    empty = MilvusCollection(place, tools.text, tools.image)
    assert empty.search(["x"], 3) == [[]] and empty.similar([noise(1)], 3) == [[]] and empty.check() == []
    build(place, [Document("long", "L", "x" * 1_000_000), Document("many", "M", "word " * 20_000)], tools, notes)
    assert (
        notes.counts["chunks cut at 60,000 bytes"] == 1 and MilvusCollection(place, tools.text).search(["word"], 1)[0][0].document == "many"
    )
    with pytest.raises(DataError, match="too long"):
        build(place, [Document("x" * 500, "a", "b")], tools, Notes())
