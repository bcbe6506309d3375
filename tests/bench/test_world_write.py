"""A world on disk: the published layout, read back by the project's own loader; real clips; nothing half-made."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import av
import numpy as np
import openpyxl
import pytest
from PIL import Image
from python_calamine import CalamineWorkbook

from bench.config import SAMPLE_WORLD
from bench.world import write
from bench.world.cli import add_arguments, default_place, run
from bench.world.creatures import make_world
from bench.world.graph import WorldGraph, card, world_graph
from bench.world.media import ClipSpec, parse_clips
from bench.world.questions import make_questions
from bench.world.sheets import write_sheet
from bench.world.write import write_world
from kg.load import load
from models.errors import ConfigError, DataError

SMALL = "128x72@8"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_world(tmp_path_factory.mktemp("world") / "w", 7, 3, SMALL, workers=2).path


def test_the_loader_reads_it_without_a_finding(folder: Path) -> None:
    data = load(folder)
    assert not data.findings
    ours, theirs = card(), data.card
    assert (theirs.persona, theirs.root_kind, dict(theirs.kinds), theirs.tasks) == (
        ours.persona,
        ours.root_kind,
        dict(ours.kinds),
        ours.tasks,
    )
    assert (theirs.phase_kind, theirs.action_kind, theirs.subject) == (ours.phase_kind, ours.action_kind, ours.subject)


def test_what_is_read_is_the_world_that_was_made(folder: Path) -> None:
    world, data = make_world(7, 3), load(folder)
    graph: WorldGraph = world_graph(world)
    assert {data.graph.entity(i).name for i in data.graph.roots} == {c.name for c in world.creatures}
    for e in graph.entities:
        index = data.graph.find(e.name, e.owner)
        assert index is not None
        there = data.graph.entity(index)
        assert (there.kind, there.caption, there.info) == (e.kind, e.caption, e.info)
        assert len(there.images) == {"action": 3, "creature": 1}.get(e.kind, 0) and bool(there.video) == (e.kind == "action")
        edges = [(x.relation, x.condition, graph.entity(x.target).name) for x in graph.neighbours(e.index)]
        assert [(x.relation, x.condition, data.graph.entity(x.target).name) for x in data.graph.neighbours(index)] == edges
    asked = [q.question for q in make_questions(world, 7)]
    assert [(q.text, q.answer, q.routes, q.task, q.perception, q.id) for q in data.questions] == [
        (q.text, q.answer, q.routes, q.task, q.perception, q.id) for q in asked
    ]
    assert all(("Pure Text" in q.id) != q.has_media for q in data.questions)


def test_clips_are_real_h264_and_keyframes_are_their_frames(folder: Path) -> None:
    question = next(q for q in load(folder).questions if q.has_media)
    assert question.video is not None
    with av.open(str(question.video)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt, stream.average_rate) == ("h264", "yuv420p", 8)
        frames = [f.to_ndarray(format="rgb24") for f in container.decode(stream)]
    assert 8 <= len(frames) <= 12 and frames[0].shape == (72, 128, 3)
    for picture in question.images:
        number = int(picture.stem.rsplit("-f", 1)[1])
        shown = np.asarray(Image.open(picture), dtype=np.int16)
        assert np.abs(shown - frames[number]).mean() < 12  # 4:2:0, 1/8 s rounding
    assert len({f.tobytes() for f in frames}) > 4


def test_a_finished_world_stays_and_another_is_refused(folder: Path) -> None:
    before = (folder / "world.json").stat().st_mtime_ns
    again = write_world(folder, 7, 3, SMALL)
    assert not again.made and (folder / "world.json").stat().st_mtime_ns == before
    assert again.questions == len(load(folder).questions) and again.edges == sum(map(len, world_graph(make_world(7, 3))._edges))
    with pytest.raises(ConfigError, match="seed 7 instead of 8"):
        write_world(folder, 8, 3, SMALL)
    with pytest.raises(ConfigError, match="clips 128x72@8 instead of none"):
        write_world(folder, 7, 3, None, keyframes=True)


def test_the_same_parameters_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    again = write_world(tmp_path / "again", 7, 3, SMALL, workers=1).path
    files = sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(again) for p in again.rglob("*") if p.is_file())
    for file in files:
        assert (folder / file).read_bytes() == (again / file).read_bytes(), file


def test_sheets_alone_and_progress(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    (tmp_path / "w").mkdir()  # an empty folder is a free place
    made = write_world(tmp_path / "w", 1, 30, None, workers=1, progress=lambda *step: seen.append(step))
    assert seen == [(n, 30, "creatures") for n in range(1, 31)] and made.clips == 0
    data = load(made.path)
    assert not data.findings and not any(q.has_media for q in data.questions) and len(data.graph.roots) == 30
    assert [p.name for p in tmp_path.iterdir()] == ["w"]


def test_an_interrupted_world_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(done: int, total: int, what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_world(tmp_path / "w", 1, 3, None, workers=1, progress=stop)
    assert not list(tmp_path.iterdir())
    orphan = tmp_path / ".w.999999999.part"  # a process that was killed
    orphan.mkdir()
    monkeypatch.setattr(write, "write_questions", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(DataError, match="No space left on device"):
        write_world(tmp_path / "w", 1, 3, None, workers=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "{}", '{"parameters": {"seed": 1}, "facts": {}}', "[]", None])
def test_a_folder_of_someone_else_is_left_alone(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "keep.txt").write_text("mine")
    if content is not None:
        (tmp_path / "world.json").write_text(content)
    with pytest.raises(ConfigError, match="is no sample world"):
        write_world(tmp_path, 1, 3, None)
    assert (tmp_path / "keep.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "-1"], "seed -1 is out of range"),
        (["--seed", "seven"], "--seed 'seven' is not a whole number"),
        (["--creatures", "0"], "0 creatures are out of range"),
        (["--creatures", "100001", "--clips", "none"], "100,001 creatures are out of range"),
        (["--creatures", "5000"], "5,000 creatures are too many to film"),
        (["--clips", "640x360"], "is not WIDTHxHEIGHT@FPS"),
        (["--clips", "641x360@30"], "'641x360@30' is out of range"),
        (["--clips", "640x360@0"], "out of range"),
        (["--workers", "0"], "0 workers are out of range"),
    ],
)
def test_bad_options_are_refused_in_one_message(tmp_path: Path, options: list[str], message: str) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(ConfigError, match=message):
        run(parser.parse_args([*options, "--out", str(tmp_path / "w")]))
    assert not list(tmp_path.iterdir())


def test_the_command_makes_a_world_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(["--creatures", "2", "--clips", "none", "--workers", "1", "--seed", "3", "--out", str(tmp_path / "w")])
    assert run(args) == 0
    out, err = capsys.readouterr()
    facts = json.loads((tmp_path / "w" / "world.json").read_text())["facts"]
    assert f"made; {facts['entities']} entities" in out and not err
    assert run(args) == 0 and "is there already" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ([], "data/world-7"),
        (["--seed", "8"], "data/world-8"),
        (["--creatures", "3"], "data/world-7-3"),
        (["--creatures", "22", "--clips", "none", "--keyframes"], "data/world-7-none-keyframes"),
        (["--clips", "3840x2160@60"], "data/world-7-3840x2160-60"),
        (["--collections", "--creatures", "10"], "data/cuem-7"),
        (["--collections"], "data/cuem-7-22"),
        (["--seed", "../../x"], "data/world-..-..-x"),
    ],
)
def test_another_world_never_takes_the_place_of_the_one_that_bench_asks_about(options: list[str], place: str) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert default_place(parser.parse_args(options)) == Path(place)
    assert (place == SAMPLE_WORLD) == (not options)


def test_sizes_of_clips_and_pictures() -> None:
    assert parse_clips("3840x2160@60") == ClipSpec(3840, 2160, 60) and ClipSpec(3840, 2160, 60).pictures == (1280, 720)
    assert parse_clips(" 640x360@30 ").pictures == (640, 360)


def test_sheets_are_read_by_strangers(tmp_path: Path) -> None:
    rows = [["a", "b", "c"], ["x < y & z", "", 5], [" two  spaces ", "“quotes”", 'say "{}"']]
    assert write_sheet(tmp_path / "s.xlsx", rows) == 3
    want = [("a", "b", "c"), ("x < y & z", None, 5), (" two  spaces ", "“quotes”", 'say "{}"')]
    book = openpyxl.load_workbook(tmp_path / "s.xlsx")
    assert list(book["Sheet1"].values) == want
    fast = CalamineWorkbook.from_path(tmp_path / "s.xlsx").get_sheet_by_index(0).to_python()
    assert [tuple(c or None for c in row) for row in fast] == want
    wide = [[f"c{i}" for i in range(30)]]
    write_sheet(tmp_path / "wide.xlsx", wide)
    assert list(openpyxl.load_workbook(tmp_path / "wide.xlsx")["Sheet1"].values) == [tuple(wide[0])]
    with pytest.raises(ValueError, match="control character"):
        write_sheet(tmp_path / "t.xlsx", [["a\x07"]])
