"""Frames are prepared while the model works: a sample waits for its own, not for those of the samples behind it."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.config import RunConfig, validate
from bench.folder import RunFolder
from bench.frames import FrameKey, Showing
from bench.rows import settings_suite
from bench.run import report, run_suite
from kg.frames import Frames, NoFrames
from kg.load import load
from video import store as on_disk
from video.make_clips import Recipe, make
from video.source import FrameStore

PATIENCE = 60  # seconds until a test that would wait for ever is given up
OPTIONS = FrameKey.of(RunConfig()).options


@pytest.fixture
def config(tmp_path: Path, pond: Path, prompts: Path) -> RunConfig:
    options = {"data": str(pond), "model": "oracle", "endpoint": "http://127.0.0.1:9/v1", "prompts": str(prompts)}
    return validate({**options, "runs": str(tmp_path / "runs"), "judge": "exact"})


@pytest.fixture
def oracle(pond: Path, make_oracle: Any, make_scripted: Any) -> Any:
    return make_scripted(make_oracle(load(pond).questions, "fish"))


@pytest.fixture
def held(tmp_path: Path) -> Callable[..., Any]:
    """While the block runs, whoever prepares this picture waits, until `release` is set."""

    @contextmanager
    def hold(picture: Path, root: Path, release: threading.Event) -> Iterator[list[bool]]:
        with FrameStore(tmp_path / "elsewhere", OPTIONS, workers=1) as other:
            key = other.frames([picture], None).paths[0].parent.name
        taken, in_time = threading.Event(), list[bool]()

        def holder() -> None:
            with on_disk.locked(root, key):
                taken.set()
                in_time.append(release.wait(PATIENCE))

        thread = threading.Thread(target=holder)
        thread.start()
        taken.wait()
        yield in_time
        release.set()
        thread.join()

    return hold


def start(config: RunConfig, engine: Any, cache: Path, **changes: Any) -> RunFolder:
    changed = validate({**config.model_dump(), **changes})
    return run_suite("settings", settings_suite(changed), changed, factory=lambda backend, options: engine, cache=cache)


@pytest.mark.parametrize("setting", ["vanilla", "unaided-online"])
def test_the_model_works_while_frames_are_prepared(
    config: RunConfig, oracle: Any, held: Any, pond: Path, tmp_path: Path, setting: str
) -> None:
    """The frames of one question are held back until the model was asked about another: were all prepared first, it never would be."""
    release = threading.Event()
    oracle.before = lambda n: release.set()
    picture = pond / ("bite.png" if setting == "vanilla" else "carp_roll.png")  # shown by q2; of an entity that no question's search sees
    with held(picture, tmp_path / "cache" / "frames", release) as in_time:
        folder = start(config, oracle, tmp_path / "cache", settings=setting)
    assert in_time == [True]
    assert len(folder.records()) == 4 and all(record.ok for record in folder.records().values())
    summary = report(folder)
    assert summary["rows"][0]["cells"]["acc"]["mean"] == (0.0 if setting == "vanilla" else 1.0)


def test_captions_are_asked_for_as_their_frames_come(config: RunConfig, oracle: Any, held: Any, pond: Path, tmp_path: Path) -> None:
    release = threading.Event()
    oracle.before = lambda n: release.set()
    with held(pond / "dart.png", tmp_path / "cache" / "frames", release) as in_time:
        folder = start(config, oracle, tmp_path / "cache", settings="unaided-offline")
    assert in_time == [True] and oracle.calls["captioner"] == 4
    assert "4 of 4 made" in " ".join(report(folder)["notes"])
    (kept,) = (tmp_path / "cache" / "captions").glob("*.json")
    assert len(json.loads(kept.read_text())) == 4


def test_the_order_in_which_frames_come_changes_no_record(config: RunConfig, oracle: Any, held: Any, pond: Path, tmp_path: Path) -> None:
    warm = start(config, oracle, tmp_path / "warm")
    release = threading.Event()
    oracle.before = lambda n: release.set() if n > 1 else None
    oracle.requests.clear()
    with held(pond / "dart.png", tmp_path / "cold" / "frames", release):
        cold = start(config, oracle, tmp_path / "cold", runs=str(tmp_path / "other"))
    same = [{k: (r.answer, r.walks, r.captions, r.rounds, r.calls) for k, r in run.records().items()} for run in (warm, cold)]
    assert same[0] == same[1] and len(same[0]) == 24


def test_a_clip_that_cannot_be_used_costs_its_sample_and_is_told_once(config: RunConfig, oracle: Any, pond: Path, tmp_path: Path) -> None:
    (pond / "bite.png").write_bytes(b"no picture")
    folder = start(config, oracle, tmp_path / "cache", settings="vanilla,unaided-offline,unaided-online")
    lost = {(r.row, r.uid, r.stage) for r in folder.records().values() if not r.ok}
    assert lost == {(row, "0002:q2", "frames") for row in ("vanilla", "unaided-offline", "unaided-online")}
    notes = " ".join(report(folder)["notes"])
    assert "3 of 4 made" in notes and "1 entities of the graph have media that cannot be used (Pike/Bite:" in notes


def test_only_what_may_be_looked_at_is_prepared(config: RunConfig, oracle: Any, pond: Path, tmp_path: Path) -> None:
    start(config, oracle, tmp_path / "cache", settings="unaided-online", limit=2)
    made = list((tmp_path / "cache" / "frames" / "frames").iterdir())
    assert len(made) == 3  # the moves of the asked root, one of which the question shows; nobody looks at the other root's


def test_what_is_looked_up_unfetched_is_made_then(pond: Path, tmp_path: Path) -> None:
    with Frames(tmp_path / "frames", pond) as frames:
        shelf = frames.shelf(OPTIONS, {1: ([pond / "dart.png"], None), 2: ([pond / "gone.png"], None), 3: ([], None)})
        assert shelf.ready(1)  # nobody fetches it, so nobody needs to wait
        assert isinstance(shelf.get(1), tuple) and isinstance(shelf.get(2), NoFrames)
        assert shelf.get(3) == NoFrames("empty", "no pictures and no clip")
        assert sorted(shelf.unusable) == [2, 3]
        with pytest.raises(KeyError):
            shelf.get(4)


def test_closing_ends_what_is_under_way(pond: Path, held: Any, tmp_path: Path) -> None:
    dataset = load(pond)
    config = validate({"data": str(pond), "settings": "vanilla", "model": "m", "endpoint": "http://127.0.0.1:9/v1"})
    release = threading.Event()
    with held(pond / "bite.png", tmp_path / "frames", release) as in_time:
        showing = Showing(dataset, tmp_path / "frames")
        (row,) = settings_suite(config)
        showing.prepare([row], dataset.questions)
        closer = threading.Thread(target=showing.close)
        closer.start()
        closer.join(PATIENCE / 2)
        assert not closer.is_alive() and not in_time
    assert not list((tmp_path / "frames" / "frames").glob(".*"))


def test_clips_are_taken_where_there_are_no_chosen_frames(
    config: RunConfig, pond: Path, tmp_path: Path, make_oracle: Any, make_scripted: Any
) -> None:
    """A question and an entity with a clip each, one more question with a file that is none: that sample alone is lost."""
    make(Recipe("clip", width=160, height=96, frames=12), pond / "clip.mp4")
    (pond / "text.mp4").write_text("no clip")
    for sheet, clips in (("questions", {"q2": ["clip.mp4", "text.mp4"]}), ("entities", {"p3": ["clip.mp4"]})):
        with (pond / f"{sheet}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        at = rows[0].index("images")
        for row in rows:
            row.append("video" if row is rows[0] else "")
            if clips.get(row[0]):
                row[at], row[-1] = "", clips[row[0]].pop(0)
        with (pond / f"{sheet}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
    oracle = make_scripted(make_oracle(load(pond).questions, "fish"))
    folder = start(config, oracle, tmp_path / "cache", settings="unaided-online", max_frames=4)
    records = folder.records()
    lost = {r.uid: (r.stage, r.reason) for r in records.values() if not r.ok}
    assert lost == {"0003:q2": ("frames", "NotAClip")} and len(records) == 4
    shown = {len(r.pictures) for r in oracle.requests if r.text.startswith(("perceiver", "validator_online"))}
    assert shown == {1, 4}  # a chosen picture, a clip's frames
