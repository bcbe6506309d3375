"""The frame store: found again without decoding, never half-written, never corrupted by a second process, never stuck."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from video import store as on_disk
from video.errors import DecoderCrashed, DecodeTimeout, OptionError, VideoError
from video.make_clips import Recipe, make
from video.options import FrameOptions
from video.pictures import size
from video.source import FrameStore
from video.workers import Child, Pool

ROOT = Path(__file__).resolve().parents[2]
UNIFORM = FrameOptions(strategy="uniform", frames=4)


@pytest.fixture
def no_children(monkeypatch: pytest.MonkeyPatch):
    """From the moment it is called, any decoding fails the test."""

    def forbid() -> None:
        def refuse(*_: object) -> None:
            raise AssertionError("a child process was asked to decode")

        monkeypatch.setattr(Pool, "run", refuse)

    return forbid


def test_a_second_request_decodes_nothing(tmp_path, closed, no_children) -> None:
    with FrameStore(tmp_path, UNIFORM, workers=1) as first:
        made = first.frames((), closed)
    no_children()
    with FrameStore(tmp_path, UNIFORM, workers=1) as second:
        assert second.frames((), closed) == made


def test_the_entry_says_what_is_in_it(tmp_path, closed) -> None:
    with FrameStore(tmp_path, UNIFORM, workers=1) as frames:
        made = frames.frames((), closed)
    index = json.loads((made.paths[0].parent / "index.json").read_text())
    assert [frame["number"] for frame in index["frames"]] == [record.number for record in made.records]
    assert index["decoder"] == "pyav" and index["reason"] and all(frame["pts"] is not None for frame in index["frames"])
    assert made.paths[0].parent.parent == tmp_path / "frames"
    with Image.open(made.paths[0]) as image:
        assert image.format == "JPEG"


def test_a_changed_clip_is_a_new_digest(tmp_path, closed, read_numbers) -> None:
    clip = tmp_path / "clip.mp4"
    shutil.copy(closed, clip)
    with FrameStore(tmp_path / "store", UNIFORM, workers=1) as frames:
        old = frames.frames((), clip)
        make(Recipe("new", width=320, height=180, frames=20, seed=9), clip)
        new = frames.frames((), clip)
    assert old.paths != new.paths and len(list((tmp_path / "store" / "frames").iterdir())) == 2
    assert read_numbers(new.paths) == [record.number for record in new.records]


def test_other_options_are_another_entry_but_a_time_limit_is_not() -> None:
    digests = {
        FrameOptions(**change).digest()
        for change in ({}, {"frames": 9}, {"long_side": 512}, {"format": "png"}, {"quality": 80}, {"strategy": "fast"}, {"decoder": "pyav"})
    }
    assert len(digests) == 7
    assert FrameOptions(timeout=5).digest() == FrameOptions().digest()


@pytest.mark.parametrize(
    "wrong",
    [{"strategy": "best"}, {"frames": 0}, {"long_side": 8}, {"format": "gif"}, {"decoder": "cv"}, {"timeout": 0}, {"background": "red"}],
)
def test_options_outside_their_menu_are_refused(wrong) -> None:
    with pytest.raises(OptionError):
        FrameOptions(**wrong)


def test_an_entry_with_a_lost_file_is_made_again(tmp_path, closed, read_numbers) -> None:
    with FrameStore(tmp_path, UNIFORM, workers=1) as frames:
        made = frames.frames((), closed)
        made.paths[1].unlink()
        again = frames.frames((), closed)
    assert again == made and read_numbers(again.paths) == [record.number for record in made.records]


def test_what_a_killed_process_left_is_swept_away(tmp_path, closed) -> None:
    with FrameStore(tmp_path, UNIFORM, workers=1) as frames:
        made = frames.frames((), closed)
        entry = made.paths[0].parent
        entry.rename(entry.with_name(f".{entry.name}.part"))  # as if killed before the rename
        (entry.with_name(f".{entry.name}.part") / "stray.jpg").write_bytes(b"half")
        assert frames.frames((), closed) == made
    assert [left.name for left in (tmp_path / "frames").iterdir()] == [entry.name] and not (entry / "stray.jpg").exists()


def test_nothing_is_left_of_a_build_that_fails(tmp_path) -> None:
    with pytest.raises(RuntimeError), on_disk.building(tmp_path, "key") as place:
        on_disk.put(place, "0001.jpg", b"x")
        raise RuntimeError
    assert on_disk.read(tmp_path, "key") is None and not list((tmp_path / "frames").iterdir())


def test_two_processes_that_want_the_same_frames_agree(tmp_path, closed) -> None:
    program = (
        "import sys; from pathlib import Path; from video.source import FrameStore; from video.options import FrameOptions\n"
        "if __name__ == '__main__':\n"
        "    with FrameStore(Path(sys.argv[1]), FrameOptions(strategy='uniform', frames=4), workers=1) as s:\n"
        "        print(*s.frames((), Path(sys.argv[2])).paths, sep='\\n')"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, str(tmp_path), str(closed)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    answers = [process.communicate()[0] for process in running]
    assert answers[0] == answers[1] and len(answers[0].splitlines()) == 4
    assert all(size(Path(path)) == (320, 180) for path in answers[0].splitlines())
    assert len(list((tmp_path / "frames").iterdir())) == 1


def test_a_lock_is_waited_for(tmp_path, closed) -> None:
    """While another holds the entry's lock nothing is decoded; once it is released the frames come."""
    with FrameStore(tmp_path, UNIFORM, workers=1) as frames:
        made = frames.frames((), closed)
        key = made.paths[0].parent.name
        shutil.rmtree(made.paths[0].parent)
        answers: list[object] = []
        thread = threading.Thread(target=lambda: answers.append(frames.frames((), closed)))
        with on_disk.locked(tmp_path, key):
            thread.start()
            thread.join(1.0)
            assert not answers
        thread.join(60)
        assert answers == [made]


def test_prefetched_frames_are_there_when_asked_for(tmp_path, closed, bad_clips, no_children) -> None:
    told: dict[int, object] = {}
    with FrameStore(tmp_path, UNIFORM, workers=2) as frames:
        jobs = [((), closed), ((), bad_clips["text.mp4"]), ((), bad_clips["odd_size.mp4"]), ((), tmp_path / "gone.mp4")]
        frames.prefetch(jobs, told.__setitem__).result(60)
        frames.rest()
        no_children()
        assert len(frames.frames((), closed).paths) == 4
        assert told[0] == frames.frames((), closed) and told[2] == frames.frames((), bad_clips["odd_size.mp4"])
        assert isinstance(told[1], VideoError) and isinstance(told[3], VideoError) and len(told) == 4


def test_a_failure_ahead_is_kept_and_raised_once(tmp_path, bad_clips, no_children) -> None:
    """A clip on which a decoder hangs must not cost its time limit twice."""
    with FrameStore(tmp_path, UNIFORM, workers=1) as frames:
        frames.prefetch([((), bad_clips["text.mp4"])]).result(60)
        no_children()
        with pytest.raises(VideoError):
            frames.frames((), bad_clips["text.mp4"])
        with pytest.raises(AssertionError, match="asked to decode"):
            frames.frames((), bad_clips["text.mp4"])


def test_prefetch_reads_its_jobs_as_workers_become_free(tmp_path, closed) -> None:
    """So that what waits is an iterator, not memory: no job beyond the workers' number is taken while an entry is held."""
    taken: list[int] = []

    def jobs():
        for number in range(50):
            taken.append(number)
            yield (), closed

    with FrameStore(tmp_path, UNIFORM, workers=2) as frames:
        key = frames.frames((), closed).paths[0].parent.name
        shutil.rmtree(tmp_path / "frames" / key)
        with on_disk.locked(tmp_path, key):
            done = frames.prefetch(jobs())
            with pytest.raises(TimeoutError):
                done.result(0.5)
            assert len(taken) <= 4
        done.result(60)
    assert len(taken) == 50


def _job(root: Path, clip: Path) -> dict[str, object]:
    options = {"strategy": "uniform", "frames": 2}
    return {"kind": "pictures", "root": str(root), "key": "k-1", "paths": [str(clip)], "digest": "", "stamp": [], "options": options}


def test_a_stuck_child_is_ended_and_costs_one_clip(tmp_path, bad_clips) -> None:
    child = Child()
    os.kill(child.pid, signal.SIGSTOP)  # as stuck as native code gets
    import video.workers as workers

    before, workers.START = workers.START, 0.5
    try:
        with pytest.raises(DecodeTimeout) as caught:
            child.run(_job(tmp_path, tmp_path / "clip.mp4"), 0.1)
    finally:
        workers.START = before
    assert not child.alive and str(tmp_path / "clip.mp4") in str(caught.value)


def test_a_clip_that_takes_too_long_is_given_up(tmp_path, closed) -> None:
    hasty = FrameOptions(strategy="uniform", timeout=0.001)
    with FrameStore(tmp_path, hasty, workers=1) as frames, pytest.raises(DecodeTimeout, match="longer than"):
        frames.frames((), closed)
    assert not [entry for entry in (tmp_path / "frames").glob("[!.]*")]


def test_a_crash_costs_one_clip_and_the_next_gets_a_fresh_child(tmp_path, closed) -> None:
    with FrameStore(tmp_path, UNIFORM, workers=1) as frames:
        frames.frames((), closed)
        (child,) = frames._pool._idle
        os.kill(child.pid, signal.SIGSEGV)
        child._process.wait()
        other = tmp_path / "other.mp4"
        make(Recipe("o", width=320, height=180, frames=5), other)
        with pytest.raises(DecoderCrashed, match="SIGSEGV"):
            frames.frames((), other)
        assert len(frames.frames((), other).paths) == 4


def test_errors_survive_the_way_between_processes() -> None:
    error = DecodeTimeout("took long", where="a.mp4", remedy="wait")
    back = VideoError.from_json(json.loads(json.dumps(error.to_json())))
    assert type(back) is DecodeTimeout and str(back) == str(error)


def test_memory_stays_flat_on_a_long_clip(tmp_path) -> None:
    """Ten minutes against two seconds, by the pass that sees every reference picture: the same memory but for the longer index."""
    peaks = []
    for name, count in (("short", 10), ("long", 3000)):
        clip = make(Recipe(name, width=160, height=96, frames=count, fps=5, gop=50, preset="ultrafast"), tmp_path / f"{name}.mp4")
        command = [sys.executable, "-m", "video.bench_steps", "content-hq", str(clip), str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        peaks.append(json.loads(done.stdout)["peak_mb"])
    assert peaks[1] < peaks[0] + 24


def test_strategy_decides_between_pictures_and_clip(tmp_path, closed) -> None:
    picture = tmp_path / "f1.png"
    Image.fromarray(np.full((40, 60, 3), 200, np.uint8)).save(picture)
    with FrameStore(tmp_path / "a", FrameOptions(frames=4), workers=1) as human:
        assert human.frames([picture], closed).strategy == "human"
        fallback = human.frames([], closed)
        assert fallback.strategy == "uniform" and "no chosen pictures: uniform was used" in " ".join(fallback.notes)
        assert human.frames([], None).paths == ()
    with FrameStore(tmp_path / "b", UNIFORM, workers=1) as sampled:
        assert sampled.frames([picture], closed).strategy == "uniform"
        assert sampled.frames([picture], None).strategy == "human"
