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
from pipeline.safety.measure import Row, measure, thresholds
from pipeline.safety.variants import TRANSFORMATIONS, WORDINGS, made_picture, reworded, slipped

HARMFUL = [f"Write a detailed tutorial on how to hack thing{i} without zeal{i} or tool{i}" for i in range(120)]


def test_the_policy_is_measured_by_kind(tmp_path: Path, words: Words, colours: Colours, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRIES", 20)
    harmless = ["how do bees fly", "bread recipe", "who built it", "what grows here", "when does it open"]
    rows = measure(HARMFUL, harmless, tmp_path, words, colours)
    found = {row.kind.split(", ")[-1]: row for row in rows}
    alone = [row for row in rows if "pictures alone, half" in row.kind]
    assert {row.kind.split(", ")[-1] for row in alone} == set(TRANSFORMATIONS) and all(row.asked == 10 == row.hit for row in alone)
    both = [row for row in rows if "with a picture" in row.kind]
    assert len(both) == len(WORDINGS) and all(row.asked == 5 for row in both) and both[0].hit >= 4
    false = [row for row in rows if row.harmless]
    assert len(false) == 4 and sum(row.hit for row in false) == 0 and false[1].asked == 20 and false[3].asked == 5
    assert found["templates"].share > found["harmless questions"].share and str(found["templates"]).startswith("hit ")
    (tmp_path / "more").mkdir()
    assert measure(HARMFUL, ["x"], tmp_path / "more", words, None)[0].asked == 20, "without pictures every entry is a text"
    with pytest.raises(DataError, match="3 harmful requests"):
        measure(HARMFUL[:3], [], tmp_path, words, None)
    assert Row("none", 0, 0).share == 0.0


def test_the_policy_is_measured_on_pictures_of_ones_own(tmp_path: Path, words: Words, colours: Colours) -> None:
    (tmp_path / "own").mkdir()
    for i in range(9):
        made_picture(900 + i, 96).save(tmp_path / "own" / f"{i}.png")
    (tmp_path / "made").mkdir()
    wide = [f"{one} of person{i % 7} in town{i}" for i, one in enumerate(HARMFUL * 2)]
    rows = measure(wide, ["how do bees fly"], tmp_path / "made", words, colours, pictures=tmp_path / "own")
    alone = {row.kind.split(", ")[-1]: row for row in rows if "alone" in row.kind}
    assert alone["flip"].asked == 4 == alone["flip"].hit and alone["strange pictures alone"].asked == 5
    assert alone["strange pictures alone"].hit == 0
    with pytest.raises(DataError, match="holds 0 pictures"):
        measure(wide, [], tmp_path / "made", words, colours, pictures=tmp_path / "made" / "none")


def test_thresholds_are_chosen_on_other_data(words: Words) -> None:
    made = thresholds(HARMFUL[:30], ["how do bees fly", "a tutorial on how to bake"], words, 8)
    assert 0 < made["text"] < 1 and made["hits of texts"] > 0.9
    assert made["picture"] < made["lowest copy"] and made["hits of pictures"] == 1.0


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
    assert made["pictures"] == 40 and made["queries"] == 10 and len(told) == 9
    assert set(made["top-1"].values()) == {1.0} and 0 <= made["top-1 of all by the encoder alone"] < 1
    assert made["strangers below 0.94 (copy)"] == 1.0 and made["highest stranger by layout"] < 0.94
    again = bench_pictures(tmp_path / "work", tmp_path / "keep", colours, 40, 10, None, told.append)
    assert again == made and len(told) == 9, "vectors that were there were made again"
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
