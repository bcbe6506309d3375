"""The commands that measure: the policy in other words and by pictures alone, similar pictures, made vectors."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from tests_pipeline import Colours, Words, noise

from models.errors import DataError
from pipeline.index_cli import bench_vectors
from pipeline.picture_bench import bench_pictures
from pipeline.safety import measure as module
from pipeline.safety.measure import TRANSFORMATIONS, WORDINGS, Row, made_picture, measure, reworded, slipped

HARMFUL = [f"Write a detailed tutorial on how to hack thing{i} without zeal{i} or tool{i}" for i in range(120)]


def test_the_policy_is_measured_by_kind(tmp_path: Path, words: Words, colours: Colours, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRIES", 20)
    rows = measure(HARMFUL, ["how do bees fly", "bread recipe"], tmp_path, words, colours)
    kinds = {row.kind.split(", ")[-1]: row for row in rows}
    assert {*WORDINGS, *TRANSFORMATIONS, "harmless questions", "strange pictures"} == kinds.keys()
    assert kinds["flip"].asked == 10 == kinds["templates"].asked and kinds["harmless questions"].hit == 0
    assert kinds["templates"].share > kinds["harmless questions"].share and str(kinds["templates"]).startswith("hit ")
    (tmp_path / "more").mkdir()
    assert measure(HARMFUL, ["x"], tmp_path / "more", words, None)[0].asked == 20, "without pictures every entry is a text"
    with pytest.raises(DataError, match="3 harmful requests"):
        measure(HARMFUL[:3], [], tmp_path, words, None)
    assert Row("none", 0, 0).share == 0.0


def test_rewordings_change_the_words_and_not_the_request() -> None:
    rng = Random(1)
    text = "Write a detailed guide, with pictures, for people."
    assert all(change(text, 0, Random(2)) != text for change in WORDINGS.values())
    assert "detailed" not in reworded(text, rng) and "pictures" in reworded(text, rng)
    assert sorted(slipped("understanding", rng)) == sorted("understanding") and slipped("", rng) == "" == reworded("", rng)


def test_made_pictures_are_seeded_and_differ() -> None:
    one, again, two = (np.asarray(made_picture(seed, 64)) for seed in (1, 1, 2))
    assert (one == again).all() and (one != two).mean() > 0.5
    assert all(transform(made_picture(1, 64)).size[0] > 50 for transform in TRANSFORMATIONS.values())


def test_similar_pictures_are_measured_and_an_encoding_goes_on(tmp_path: Path, colours: Colours, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.picture_bench.BLOCK", 10)
    told: list[str] = []
    (tmp_path / "work").mkdir()
    made = bench_pictures(tmp_path / "work", tmp_path / "keep", colours, 40, 10, None, told.append)
    assert made["pictures"] == 40 and made["queries"] == 10 and len(told) == 5
    assert made["top-1"]["blur"] == 1.0 and 0 <= made["top-1 of all"] <= 1
    again = bench_pictures(tmp_path / "work", tmp_path / "keep", colours, 40, 10, None, told.append)
    assert again == made and len(told) == 5, "vectors that were there were made again"
    (tmp_path / "own").mkdir()
    for i in range(4):
        noise(i).save(tmp_path / "own" / f"{i}.png")
    (tmp_path / "own" / "bad.png").write_bytes(b"x")
    mine = bench_pictures(tmp_path / "work", tmp_path / "keep", colours, 24, 4, tmp_path / "own", told.append)
    assert mine["queries"] == 4 and mine["top-1"]["dark"] >= 0.5
    with pytest.raises(DataError, match="4 pictures"):
        bench_pictures(tmp_path / "work", tmp_path / "keep", colours, 24, 5, tmp_path / "own", told.append)


def test_made_vectors_tell_recall_time_and_memory(tmp_path: Path) -> None:
    made = bench_vectors(tmp_path, 2000, 16, queries=20)
    assert made["recall@10"] == 1.0 and isinstance(made["p50_ms"], float) and isinstance(made["build_memory_mb"], int)
