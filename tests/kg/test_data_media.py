"""Media of a data set: natural order, missing files, and paths that leave the folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from kg.check import check
from kg.load import load
from kg.media import natural_key
from models.errors import DataError


def picture(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), (9, 9, 9)).save(path)
    return path


def test_frames_come_in_natural_order_and_other_files_stay_out(mh: Any) -> None:
    mh.nodes["Oru"][2] = ("Leap", "Leap", "leap.mp4", "", "")
    base = mh.write() / "mmkg" / "Oru"
    for name in ("f10.png", "f2.png", "f1.PNG", ".hidden.png", "F3.png"):
        picture(base / "Knowledge_Images" / "Leap" / name)
    (base / "Knowledge_Images" / "Leap" / "notes.txt").write_text("x")
    (base / "Knowledge_Videos").mkdir()
    (base / "Knowledge_Videos" / "leap.mp4").write_bytes(b"x")
    d = load(mh.folder)
    leap = d.graph.entity(d.graph.find("Leap", "Oru") or 0)
    assert [p.name for p in leap.images] == ["f1.PNG", "f2.png", "F3.png", "f10.png"]
    assert leap.video is not None and leap.video.is_file() and leap.has_media


@given(st.lists(st.integers(0, 10**6), unique=True), st.sampled_from(["f{}", "Wild {} b", "{}", "a1-f{:06}"]))
def test_numbers_in_names_order_as_numbers(numbers: list[int], pattern: str) -> None:
    names = [pattern.format(n) for n in numbers]
    assert sorted(names, key=natural_key) == [pattern.format(n) for n in sorted(numbers)]


@given(st.lists(st.text(), max_size=6))
def test_the_order_never_depends_on_the_order_of_listing(names: list[str]) -> None:
    assert sorted(names, key=natural_key) == sorted(reversed(names), key=natural_key)


def test_a_question_with_a_picture_file_and_one_with_frames(mh: Any) -> None:
    mh.questions[0] = ("q1", "clip.mp4", "one.png", "?", "Oru", "", "", "Oru", "x", 0)
    mh.questions[1] = ("q2", "", "frames", "?", "Oru", "", "", "Oru", "x", 0)
    base = mh.write() / "questions_mh"
    picture(base / "q1" / "one.png")
    picture(base / "q2" / "frames" / "a.png")
    (base / "q1" / "clip.mp4").write_bytes(b"x")
    d = load(mh.folder)
    assert not d.findings
    assert [p.name for p in d.questions[0].images] == ["one.png"] and d.questions[0].video == base / "q1" / "clip.mp4"
    assert [p.name for p in d.questions[1].images] == ["a.png"] and d.questions[1].video is None


def test_missing_media_are_warnings_and_leave_the_fields_empty(mh: Any) -> None:
    mh.nodes["Oru"][2] = ("Leap", "Leap", "x" * 40_000, "", "")
    mh.questions[0] = ("q1", "gone.mp4", "gone.png", "?", "Oru", "", "", "Oru", "x", 0)
    base = mh.write()
    (base / "mmkg" / "Oru" / "Knowledge_Images" / "Leap").mkdir(parents=True)
    d = load(base)
    assert [f.code for f in d.findings] == ["missing-media"] * 4 and all(f.level == "warning" for f in d.findings)
    assert any("a folder without pictures" in f.message for f in d.findings)
    assert not d.questions[0].has_media


@pytest.mark.parametrize("cell", ["../../../../secret.png", "/etc/hostname", "a/../../../../../b", "a\x00b"])
def test_a_cell_that_leaves_the_folder_is_an_error(mh: Any, cell: str) -> None:
    mh.nodes["Oru"][2] = ("Leap", cell, "", "", "")
    with pytest.raises(DataError, match=r"Oru/Node\.xlsx:4: the picture.*path-outside"):
        load(mh.write())


def test_a_question_id_that_leaves_the_folder_is_an_error(mh: Any) -> None:
    mh.questions[0] = ("../../..", "", "one.png", "?", "Oru", "", "", "Oru", "x", 0)
    with pytest.raises(DataError, match=r"question_list\.xlsx:2: the folder.*path-outside"):
        load(mh.write())


@pytest.mark.parametrize("target", ["outside", "loop"])
def test_a_link_that_leaves_the_folder_is_an_error(mh: Any, tmp_path: Path, target: str) -> None:
    mh.nodes["Oru"][2] = ("Leap", "link.png", "", "", "")
    link = mh.write() / "mmkg" / "Oru" / "Knowledge_Images" / "link.png"
    link.parent.mkdir()
    link.symlink_to(picture(tmp_path / "outside.png") if target == "outside" else link)
    if target == "outside":
        with pytest.raises(DataError, match="path-outside"):
            load(mh.folder)
    else:
        assert load(mh.folder, strict=False).findings


def test_a_sheet_that_is_a_link_to_elsewhere_is_an_error(mh: Any, tmp_path: Path) -> None:
    sheet = mh.write() / "mmkg" / "Vex" / "Node.xlsx"
    sheet.rename(tmp_path / "Node.xlsx")
    sheet.symlink_to(tmp_path / "Node.xlsx")
    with pytest.raises(DataError, match="path-outside"):
        load(mh.folder)


def test_the_folder_itself_may_be_a_link(mh: Any, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(mh.write())
    assert load(link).digest == load(mh.folder).digest


def test_the_digest_sees_sheets_card_and_media(mh: Any) -> None:
    before = load(mh.write()).digest
    assert load(mh.folder).digest == before
    path = picture(mh.folder / "mmkg" / "Oru" / "Knowledge_Images" / "a.png")
    with_media = load(mh.folder).digest
    path.write_bytes(path.read_bytes() + b"x")
    assert len({before, with_media, load(mh.folder).digest}) == 3
    mh.questions[1] = (*mh.questions[1][:8], "another answer", 0)
    after = load(mh.write()).digest
    path.unlink()
    assert load(mh.folder).digest not in (before, after)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def broken(path: Path) -> None:
    path.symlink_to("nowhere")


ODD = pytest.mark.parametrize("make", [pipe, folder, broken])


@ODD
def test_what_is_no_file_among_frames_is_left_out_and_told(mh: Any, make: Callable[[Path], None]) -> None:
    frames = mh.folder / "mmkg" / "Oru" / "Knowledge_Images" / "leap"
    mh.nodes["Oru"][2] = ("Leap", "leap", "", "", "")
    mh.write()
    frames.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(frames / "2.png")
    make(frames / "1.png")
    d = check(mh.folder)  # opens what is left: a pipe would be waited for
    assert [f.code for f in d.findings] == ["missing-media"] and "leap/1.png is no file" in d.findings[0].message
    leap = d.graph.find("Leap", "Oru")
    assert leap is not None and [p.name for p in d.graph.entity(leap).images] == ["2.png"]


@ODD
@pytest.mark.parametrize("name", ["mmkg/Oru/other.xlsx", "questions_mh/other.xlsx", "notes.txt"])
def test_odd_things_beside_the_sheets_do_no_harm(mh: Any, make: Callable[[Path], None], name: str) -> None:
    make(mh.write() / name)
    assert not load(mh.folder).findings


@ODD
@pytest.mark.parametrize("name", ["mmkg/Oru/Node.xlsx", "mmkg/Vex/Relations.xlsx"])
def test_a_sheet_that_is_no_file_is_missing(mh: Any, make: Callable[[Path], None], name: str) -> None:
    (mh.write() / name).unlink()
    make(mh.folder / name)
    assert {"missing-sheet"} <= {f.code for f in check(mh.folder).findings if f.level == "error"}


@ODD
def test_a_card_that_is_no_file_is_not_passed_over(mh: Any, make: Callable[[Path], None]) -> None:
    make(mh.write() / "dataset.toml")
    with pytest.raises(DataError, match=r"dataset\.toml: is no file"):
        load(mh.folder)


def test_a_root_behind_a_broken_link_is_not_passed_over(mh: Any) -> None:
    for name in ("gone", "Zed"):
        (mh.write() / "mmkg" / "Zed").unlink(missing_ok=True)
        (mh.folder / "mmkg" / "Zed").symlink_to(name)  # the second is a loop
        with pytest.raises(DataError, match="mmkg/Zed: is a link that leads nowhere"):
            load(mh.folder)
