"""Collections: search, growth, damage, kills, encoders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from tests_pipeline import Colours, Words, noise

from models.errors import DataError
from pipeline import build as building
from pipeline import vectors
from pipeline.build import Tools, add, build, remove
from pipeline.collection import Collection
from pipeline.copies import COPY
from pipeline.documents import Document, Notes, read
from pipeline.passages import dump, fuse, parse
from pipeline.safety.variants import TRANSFORMATIONS, made_picture
from pipeline.vectors import Floats, Vectors, write

DOCS = [
    Document("oak", "Oak", "Oaks are trees with acorns. Their wood is hard."),
    Document("lamp", "Desk lamp", "A lamp for desks, red, with a switch.", tags=("light",), attributes={"price": 20}),
    Document("서울", "서울 여행", "서울에서는 경복궁과 남산을 볼 수 있습니다. 강원도는 동쪽에 있습니다."),
]


def test_search_finds_by_word_and_by_vector(tmp_path: Path, words: Words) -> None:
    build(tmp_path, DOCS, Tools(words))
    found = Collection(tmp_path, words).search(["acorn", "강원도 바다", "서울"], 5)
    assert [row[0].document for row in found] == ["oak", "서울", "서울"]
    assert found[0][0].source == tmp_path.name and found[0][0].id == "oak#0"
    assert parse(dump(found[0])) == tuple(found[0])


def test_korean_particles_do_not_hide_a_word(tmp_path: Path, words: Words) -> None:
    build(tmp_path, DOCS, Tools(words))
    collection = Collection(tmp_path, words)
    assert [collection.passage(c).document for c, _ in collection.bm25("경복궁은", 5)] == ["서울"]


def test_k_is_clipped_and_odd_queries_are_harmless(tmp_path: Path, words: Words) -> None:
    build(tmp_path, DOCS[:1], Tools(words))
    collection = Collection(tmp_path, words)
    assert len(collection.search(["oak"], 1000)[0]) == 1
    for query in ("", '"', "oak OR AND NEAR(", "x" * 20_000, "a " * 10_000, "\x00", "🌳"):
        assert len(collection.search([query], 3)[0]) <= 1


def test_an_empty_collection_finds_nothing(tmp_path: Path, words: Words, colours: Colours) -> None:
    card = build(tmp_path, [], Tools(words, colours))
    collection = Collection(tmp_path, words, colours)
    assert (card.documents, collection.search(["x"], 3), collection.similar([noise(1)], 3)) == (0, [[]], [[]])
    assert collection.check() == []


def test_one_passage_a_document_and_titles_count(tmp_path: Path, words: Words) -> None:
    build(tmp_path, [Document("long", "Whales", "whale sea. " * 400), DOCS[0]], Tools(words, size=50, overlap=10))
    found = Collection(tmp_path, words).search(["whale"], 10)[0]
    assert [p.document for p in found].count("long") == 1


def test_add_replaces_and_encodes_only_what_is_new(tmp_path: Path, words: Words) -> None:
    build(tmp_path, DOCS, Tools(words))
    words.encoded = 0
    notes = Notes()
    card = add(tmp_path, [Document("oak", "Oak", "Oaks drop leaves in autumn."), Document("new", "", "a newcomer")], Tools(words), notes)
    assert words.encoded == 2 and card.documents == 4 and notes.counts["documents replaced"] == 1
    collection = Collection(tmp_path, words)
    assert collection.bm25("acorn", 5) == [] and collection.search(["autumn"], 1)[0][0].document == "oak"
    assert collection.check() == []
    assert len(list(tmp_path.glob("gen-*"))) == 1


def test_remove_then_add_keeps_numbers_apart(tmp_path: Path, words: Words) -> None:
    build(tmp_path, DOCS, Tools(words))
    remove(tmp_path, ["서울"])
    add(tmp_path, [Document("last", "", "zebra")], Tools(words))
    collection = Collection(tmp_path, words)
    assert collection.check() == [] and collection.search(["zebra"], 1)[0][0].document == "last"
    with pytest.raises(DataError, match="'no'"):
        remove(tmp_path, ["no"])


def test_duplicate_ids_change_nothing(tmp_path: Path, words: Words) -> None:
    build(tmp_path, DOCS, Tools(words))
    with pytest.raises(DataError, match="'oak'"):
        build(tmp_path, [DOCS[0], DOCS[0]], Tools(words))
    assert Collection(tmp_path, words).card.documents == 3 and not list(tmp_path.glob(".building*"))


def test_empty_documents_are_counted(tmp_path: Path, words: Words) -> None:
    notes = Notes()
    assert build(tmp_path, [Document("a"), Document("b", text=" \n"), Document("c", "only a title")], Tools(words), notes).documents == 1
    assert notes.counts["empty documents left out"] == 2


def test_another_encoder_is_named_with_both_dimensions(tmp_path: Path, words: Words) -> None:
    build(tmp_path, DOCS, Tools(words))
    with pytest.raises(DataError, match=r"words \(64 dimensions.*other \(32 dimensions"):
        Collection(tmp_path, Words(32, "other"))
    with pytest.raises(DataError, match="other"):
        add(tmp_path, [], Tools(Words(64, "other")))


@pytest.mark.parametrize("name", ["card.json", "documents.sqlite", "text.f32", "text.plan", "current"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_damage_is_a_typed_error(tmp_path: Path, words: Words, name: str, damage: str) -> None:
    build(tmp_path, DOCS, Tools(words))
    path = tmp_path / name if name == "current" else next(tmp_path.glob(f"gen-*/{name}"))
    path.unlink() if damage == "gone" else path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError):
        Collection(tmp_path, words).search(["oak"], 1)


def test_check_finds_a_flipped_byte(tmp_path: Path, words: Words) -> None:
    build(tmp_path, DOCS, Tools(words))
    path = next(tmp_path.glob("gen-*/text.f32"))
    raw = bytearray(path.read_bytes())
    raw[5] ^= 1
    path.write_bytes(raw)
    assert Collection(tmp_path, words).check() == ["text.f32: its sha256 is not the card's"]


def test_similar_pictures_and_what_cannot_be_opened(tmp_path: Path, words: Words, colours: Colours) -> None:
    files = []
    for seed in range(4):
        files.append(tmp_path / f"{seed}.png")
        noise(seed).save(files[-1])
    files[3].write_bytes(b"no picture")
    notes = Notes()
    docs = [Document(f"d{i}", f"title {i}", images=(file,)) for i, file in enumerate(files)]
    card = build(tmp_path / "c", docs, Tools(words, colours), notes)
    assert card.pictures == 3 and notes.counts["pictures that cannot be opened"] == 1
    collection = Collection(tmp_path / "c", words, colours)
    ((best, *rest),) = collection.similar([noise(2).rotate(2)], 10)
    assert best.document == "d2" and best.score > 0.9 and len(rest) == 2
    assert collection.check() == []


def test_copies_are_found_that_the_encoder_takes_for_strangers(tmp_path: Path, words: Words) -> None:
    class Blind(Colours):
        """All pictures alike: whatever is told apart is told by layout."""

        def encode(self, pictures: Sequence[Image.Image]) -> Floats:
            return np.full((len(pictures), 48), 48**-0.5, np.float32) * 0.5

    def docs(seeds: Iterable[int]) -> Iterator[Document]:
        for i in seeds:
            made_picture(i, 96).save(tmp_path / f"{i}.png")
            yield Document(f"d{i}", f"title {i}", images=(tmp_path / f"{i}.png",))

    def best(folder: str) -> list[str]:
        found = Collection(tmp_path / folder, words, Blind()).similar([changed(made_picture(i, 96)) for i in (3, 7)], 3)
        return [row[0].document if row[0].score >= COPY else "" for row in found]

    changed = TRANSFORMATIONS["rotate 12"]
    build(tmp_path / "c", docs(range(6)), Tools(words, Blind()))
    assert best("c") == ["d3", ""]
    add(tmp_path / "c", docs([7]), Tools(words, Blind()))
    assert best("c") == ["d3", "d7"] and Collection(tmp_path / "c").check() == []
    remove(tmp_path / "c", ["d3"])
    card = Collection(tmp_path / "c").card
    assert best("c") == ["", "d7"] and Collection(tmp_path / "c").check() == []
    assert "layout" in card.plans and not any(name.endswith(".part") for name in card.files)
    build(tmp_path / "old", docs(range(6)), Tools(words, Blind(), copies=False))
    add(tmp_path / "old", docs([7]), Tools(words, Blind()))
    assert best("old") == ["", ""] and Collection(tmp_path / "old").check() == [], "a collection of before grows without layouts"


class _Interrupted(Words):
    def encode(self, texts: Sequence[str]) -> Floats:
        raise KeyboardInterrupt


class _Infinite(Words):
    def encode(self, texts: Sequence[str]) -> Floats:
        return np.full((len(texts), self.nature.dimension), np.inf, np.float32)


@pytest.mark.parametrize("standing", [False, True])
@pytest.mark.parametrize("fault", ["line", "twice", "interrupted", "infinite"])
def test_a_first_build_that_fails_leaves_nothing(tmp_path: Path, fault: str, standing: bool) -> None:
    rows = ['{"id": "a", "text": "ash"}', "{broken" if fault == "line" else '{"id": "a"}' if fault == "twice" else '{"id": "b"}']
    (tmp_path / "docs.jsonl").write_text("\n".join(rows) + "\n")
    target = tmp_path / "new" / "below" / "collection"
    if standing:
        target.mkdir(parents=True)
        (target.parent / "mine.txt").write_text("mine")
    encoder = {"interrupted": _Interrupted(), "infinite": _Infinite()}.get(fault, Words())
    with pytest.raises((DataError, KeyboardInterrupt)):
        build(target, read(tmp_path / "docs.jsonl", Notes()), Tools(encoder))
    if standing:
        assert list(target.iterdir()) == [] and (target.parent / "mine.txt").exists(), "what was there stays, and nothing else"
    else:
        assert not (tmp_path / "new").exists(), "folders made for it are left"
    build(target, [Document("b", text="birch")], Tools(Words()))
    with pytest.raises((DataError, KeyboardInterrupt)):
        build(target, read(tmp_path / "docs.jsonl", Notes()), Tools(encoder))
    assert Collection(target).card.documents == 1 and Collection(target).check() == []


def test_a_second_writer_is_refused(tmp_path: Path, words: Words) -> None:
    def docs() -> Iterator[Document]:
        with pytest.raises(DataError, match="another process"):
            build(tmp_path, DOCS, Tools(words))
        yield DOCS[0]

    assert build(tmp_path, docs(), Tools(words)).documents == 1


def test_an_open_reader_survives_the_next_generation(tmp_path: Path, words: Words) -> None:
    build(tmp_path, DOCS, Tools(words))
    old = Collection(tmp_path, words)
    old.search(["oak"], 1)
    build(tmp_path, [], Tools(words))
    assert old.search(["oak"], 1)[0][0].document == "oak"


KILL = """
import sys; sys.path[:0] = [{here!r}, {root!r}]
from pathlib import Path
from tests_pipeline import Words
from pipeline.build import Tools, add
from pipeline.documents import Document
print("ready", flush=True)
for n in range(10_000):
    add(Path({folder!r}), [Document(f"n{{n}}", "", f"number {{n}} " * 50)], Tools(Words()))
"""


def test_killed_at_any_time_it_is_old_or_new(tmp_path: Path, words: Words) -> None:
    build(tmp_path, DOCS, Tools(words))
    here, root = str(Path(__file__).parent), str(Path(__file__).parents[2])
    code = KILL.format(here=here, root=root, folder=str(tmp_path))
    for moment in (0.02, 0.05, 0.11):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        time.sleep(moment)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        collection = Collection(tmp_path, words)
        assert collection.check() == [] and collection.card.documents >= 3
    assert add(tmp_path, [], Tools(words)).documents >= 3 and not list(tmp_path.glob(".building*"))


def test_failure_before_the_name_is_switched_leaves_the_old(tmp_path: Path, words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path, DOCS, Tools(words))

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(building, "sync_all", full)
    with pytest.raises(OSError):
        add(tmp_path, [Document("x", "", "x")], Tools(words))
    assert Collection(tmp_path, words).card.documents == 3


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.text(max_size=30)), max_size=12))
def test_any_history_of_edits_equals_a_fresh_build(tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[str, str]]) -> None:
    words, folder = Words(), tmp_path_factory.mktemp("grown")
    build(folder, [], Tools(words))
    state: dict[str, str] = {}
    for id_, text in edits:
        if id_ in state and text.strip() == state[id_].strip():
            remove(folder, [id_])
            del state[id_]
            continue
        add(folder, [Document(id_, text=text)], Tools(words))
        state.pop(id_, None)
        if text.strip():
            state[id_] = text
    grown = Collection(folder, words)
    assert grown.check() == [] and grown.card.documents == len(state)


def test_exact_search_by_blocks_is_exact_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_BLOCK", 64)
    raw = np.random.default_rng(3).standard_normal((1000, 8)).astype(np.float32)
    write(tmp_path, "flat", 8, [(3 * np.arange(1000, dtype=np.int64), raw)])
    made = Vectors(tmp_path, "flat")
    for count, k in ((1000, 10), (65, 10), (5, 10)):
        exact = [[i for i, _ in row] for row in Vectors.search(made, raw[:20], 1000)]
        found = vectors._flat_in_blocks(made.raw[:count], made.ids[:count], raw[:20], k).tolist()
        assert found == [[i for i in row if i < 3 * count][:k] for row in exact]


def test_vectors_flat_and_ivf_agree(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    raw = rng.standard_normal((3000, 16)).astype(np.float32)
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    ids = np.arange(3000, dtype=np.int64) * 7
    assert write(tmp_path, "flat", 16, [(ids, raw)]).kind == "flat"
    plan = write(tmp_path, "ivf", 16, [(ids, raw)], flat_limit=1000)
    assert plan.kind == "ivf" and plan.recall >= 0.97 and "lists" in plan.reason
    exact, near = Vectors(tmp_path, "flat").search(raw[:50], 10), Vectors(tmp_path, "ivf").search(raw[:50], 10)
    assert all(row[0][0] == ids[i] for i, row in enumerate(exact))
    assert np.mean([len({a for a, _ in x} & {b for b, _ in y}) / 10 for x, y in zip(exact, near, strict=True)]) > 0.9
    (tmp_path / "ivf.ivf").write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"ivf\.ivf"):
        Vectors(tmp_path, "ivf")


def test_wrong_vectors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="finite"):
        write(tmp_path, "x", 2, [(np.zeros(1, np.int64), np.full((1, 2), np.nan, np.float32))])
    write(tmp_path, "x", 2, [(np.zeros(1, np.int64), np.ones((1, 2), np.float32))])
    with pytest.raises(DataError, match="3 dimensions"):
        Vectors(tmp_path, "x").search(np.ones((1, 3), np.float32), 1)


def test_fusion_is_that_of_cormack() -> None:
    assert fuse([["a", "b"], ["b", "c"]]) == [("b", 1 / 62 + 1 / 61), ("a", 1 / 61), ("c", 1 / 62)]
