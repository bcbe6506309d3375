"""The command line as a user meets it, and the rule that a heavy library is known to few files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from video.pictures import read, size

ROOT = Path(__file__).resolve().parents[2]


def test_frames_and_index_appear_in_the_folder(run_video, closed, tmp_path, read_numbers) -> None:
    done = run_video(closed, "--frames", "3", "--strategy", "content", "--long-side", "160", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    paths = sorted((tmp_path / "out").glob("*.jpg"))
    assert read_numbers(paths) == [frame["number"] for frame in index["frames"]] and len(paths) == 3
    assert size(paths[0]) == (160, 90) and "decoder pyav" in done.stderr


def test_several_clips_one_of_them_bad(run_video, closed, bad_clips, tmp_path) -> None:
    done = run_video(closed, bad_clips["text.mp4"], "--strategy", "uniform", "--frames", "2", "--out", tmp_path / "out")
    assert done.returncode == 2 and "text.mp4" in done.stderr and "Traceback" not in done.stderr
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == [closed.name]


def test_mistakes_end_with_code_2_and_leave_nothing(run_video, closed, tmp_path) -> None:
    wrong = run_video(closed, "--strategy", "best", "--out", tmp_path / "out")
    assert wrong.returncode == 2 and "choose one of: human, equal" in wrong.stderr
    absent = run_video(tmp_path / "absent.mp4", "--out", tmp_path / "out")
    assert absent.returncode == 2 and "absent.mp4" in absent.stderr
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept.txt").write_text("mine")
    taken = run_video(closed, "--out", tmp_path / "full")
    assert taken.returncode == 2 and [entry.name for entry in (tmp_path / "full").iterdir()] == ["kept.txt"]
    assert not (tmp_path / "out").exists()


def test_a_folder_of_pictures(run_video, tmp_path) -> None:
    folder = tmp_path / "chosen"
    folder.mkdir()
    for number in (10, 9, 2):
        Image.fromarray(np.full((60, 80, 3), number * 20, np.uint8)).save(folder / f"f{number}.png")
    done = run_video(folder, "--format", "png", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    shades = [int(read(path, 1024, (0, 0, 0))[0, 0, 0]) for path in sorted((tmp_path / "out").glob("*.png"))]
    assert shades == [40, 180, 200]


def test_index_tells_what_is_wrong(run_video, bad_clips, clips) -> None:
    assert "truncated: the header promises 150" in run_video("index", bad_clips["truncated.mp4"]).stdout
    assert "open" in run_video("index", clips["hevc_open.mp4"][1]).stdout


def test_the_benchmark_runs_on_small_clips(run_video, tmp_path) -> None:
    small = ["--size", "320x180", "--frames", "130", "--short", "40", "--repeats", "1", "--seeds", "1"]
    done = run_video("bench", *small, "--clips", tmp_path / "c")
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout.splitlines()[-1])
    wrong = [value for what, value in values.items() if what.startswith(("wrong", "missing"))]
    assert wrong == [0, 0] and any("second request" in what for what in values)
    shutil.rmtree(tmp_path / "c")


def test_codec_libraries_are_known_to_few_files() -> None:
    def files_with(library: str) -> set[str]:
        pattern = re.compile(rf"^\s*(import|from) {library}\b", re.MULTILINE)
        rooms = ("models", "video", "kg", "pipeline", "bench")
        return {str(path.relative_to(ROOT)) for room in rooms for path in (ROOT / room).rglob("*.py") if pattern.search(path.read_text())}

    assert files_with("decord") == {"video/decord_reader.py"}
    assert files_with("cv2") == {"video/bench_steps.py"}
    assert files_with("av") <= {"video/pyav.py", "video/encode.py", "video/make_clips.py"}


def test_the_room_imports_no_other_room() -> None:
    for path in (ROOT / "video").glob("*.py"):
        assert not re.search(r"^\s*(import|from) (models|kg|pipeline|bench)\b", path.read_text(), re.MULTILINE), path
