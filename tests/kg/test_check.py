"""The linter and the command line: what is found, how it is told, and with which exit code."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from kg.__main__ import main
from kg.arrays import ArrayGraph
from kg.build import GraphBuilder
from kg.check import check, reachable
from kg.findings import Findings, counts

ROOT = Path(__file__).parents[2]
BENCH = Path(os.environ.get("MH_BENCH") or ROOT.parent / "shared" / "mh_bench")
CLIPS = Path(os.environ.get("CLIPS") or ROOT.parent / "shared" / "clips")


@pytest.mark.skipif(not BENCH.is_dir(), reason="MH_BENCH is not there")
def test_the_real_data_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(BENCH)]) == 0
    out = capsys.readouterr().out
    assert "142 questions; 0 errors, 191 warnings; 190 pictures or clips are missing" in out
    assert out.count("missing-media") == 6  # five and how many more
    assert main(["check", str(BENCH), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["questions"] == 142 and told["counts"] == {"warning duplicate-id": 1, "warning missing-media": 190}
    assert len(told["findings"]) == 191


def test_every_finding_is_documented() -> None:
    code = r'(?:error|warn)\)?\(\s*f?"([a-z{}-]+)"'
    root = Path(__file__).parents[2]
    found = {match for file in (root / "kg").glob("*.py") for match in re.findall(code, file.read_text())}
    found = found - {"no-{field}"} | {"no-text", "no-answer", "no-routes"}
    text = (root / "docs" / "data.md").read_text()
    assert len(found) > 40 and not [name for name in found if f"`{name}`" not in text]


def test_a_sound_data_set_has_no_findings(mh: Any) -> None:
    assert check(mh.write()).findings == ()


@pytest.mark.parametrize("other", ["calm phase", "Calm  Phase", "Ｃalm Phase", "CalmPhase", "Calm\u00a0Phase"])
def test_names_that_look_alike_are_told_apart_and_told(mh: Any, other: str) -> None:
    mh.nodes["Oru"].append((other, "", "", "", ""))
    mh.relations["Oru"].append(("Oru", "has attack phase of", "", "", other))
    d = check(mh.write())
    (finding,) = d.findings
    assert finding.code == "homonym" and repr(other) in finding.message and "'Calm Phase' (of Oru)" in finding.message
    assert d.graph.find(other, "Oru") != d.graph.find("Calm Phase", "Oru")


def test_composed_and_decomposed_letters_are_homonyms(mh: Any) -> None:
    mh.nodes["Vex"] += [("Caf\xe9", "", "", "", ""), ("Cafe\u0301", "", "", "", "")]
    mh.relations["Vex"] += [("Vex", "has attack action of", "", "", n) for n in ("Caf\xe9", "Cafe\u0301")]
    assert [f.code for f in check(mh.write()).findings] == ["homonym"]


@pytest.mark.parametrize("other", ["Calm\u200b Phase", "\u202eCalm Phase", "Calm Pha\u00adse", "calm\nphase", "Calm Phase\x07"])
def test_characters_that_are_not_seen_are_told(mh: Any, other: str) -> None:
    mh.nodes["Oru"].append((other, "", "", "", ""))
    mh.relations["Oru"].append(("Oru", "has attack phase of", "", "", other))
    d = check(mh.write())
    assert {f.code for f in d.findings} == {"homonym", "unseen-characters"} and all(repr(other) in f.message for f in d.findings)
    assert d.graph.find(other, "Oru") != d.graph.find("Calm Phase", "Oru")


@pytest.mark.parametrize("blank", ["\u200b", "\u202e \u2066", "\x01"])
def test_a_name_of_which_nothing_is_seen_is_empty(mh: Any, blank: str) -> None:
    mh.nodes["Oru"].append((blank, "", "", "", ""))
    assert [(f.level, f.code, f.row) for f in check(mh.write()).findings] == [("error", "empty-name", 7)]


def test_letters_of_every_direction_are_plain_names(mh: Any) -> None:
    for name in ("\u05e9\u05dc\u05d5\u05dd", "\u9ed2\u9f8d", "\U0001f409"):
        mh.nodes["Oru"].append((name, "", "", "", ""))
        mh.relations["Oru"].append(("Oru", "has attack phase of", "", "", name))
    assert check(mh.write()).findings == ()


def test_relations_that_look_alike_are_told(mh: Any) -> None:
    mh.relations["Vex"][0] = ("Vex", "Has attack action of", "", "", "Leap")
    (finding,) = check(mh.write()).findings
    assert finding.code == "homonym" and "relations" in finding.message


def test_the_same_name_under_two_roots_is_no_finding(mh: Any) -> None:
    assert "homonym" not in {f.code for f in check(mh.write()).findings}


def test_unreachable_entities_and_names_like_missing_are_told(mh: Any) -> None:
    mh.nodes["Vex"] += [("NA", "", "", "", ""), ("Island", "", "", "", "")]
    mh.relations["Vex"] += [("Vex", "has attack action of", "", "", "NA"), ("Island", "continues with", "", "", "Leap")]
    found = counts(check(mh.write()).findings)
    assert found == {("warning", "unreachable"): 1, ("warning", "name-like-missing"): 1}


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_reachability_equals_a_plain_walk(n: int, pairs: list[tuple[int, int]]) -> None:
    builder = GraphBuilder(Path("/d"), Findings(Path("/d")))
    for i in range(n):
        builder.add(str(i), str(i), "root" if i == 0 else "part")
    edges = [(a % n, b % n) for a, b in pairs]
    for a, b in edges:
        builder.edge(a, "r", b)
    seen = {0}
    while new := {b for a, b in edges if a in seen} - seen:
        seen |= new
    assert set(np.flatnonzero(reachable(builder.finish("root"))).tolist()) == seen


def test_media_that_cannot_be_read_are_warnings(mh: Any) -> None:
    mh.nodes["Oru"][2] = ("Leap", "leap", "leap.mp4", "", "")
    mh.questions[0] = ("q1", "", "text.txt", "?", "Oru", "", "", "Oru", "x", 0)
    base = mh.write()
    images = base / "mmkg" / "Oru" / "Knowledge_Images" / "leap"
    images.mkdir(parents=True)
    Image.effect_noise((64, 64), 50).save(images / "good.png")
    whole = (images / "good.png").read_bytes()
    (images / "cut.png").write_bytes(whole[: len(whole) // 2])
    (images / "empty.jpg").write_bytes(b"")
    (base / "mmkg" / "Oru" / "Knowledge_Videos").mkdir()
    (base / "mmkg" / "Oru" / "Knowledge_Videos" / "leap.mp4").write_bytes(b"no clip")
    (base / "questions_mh" / "q1").mkdir()
    (base / "questions_mh" / "q1" / "text.txt").write_text("x")
    bad = [f for f in check(base).findings if f.code == "unreadable-media"]
    assert sorted(Path(f.file).name for f in bad) == ["cut.png", "empty.jpg", "leap.mp4", "text.txt"]
    assert all(f.level == "warning" for f in bad)
    assert not check(base, media=False).findings


@pytest.mark.skipif(not CLIPS.is_dir(), reason="CLIPS is not there")
def test_a_sound_clip_is_no_finding(mh: Any) -> None:
    clip = CLIPS / "good.mp4"
    mh.nodes["Oru"][2] = ("Leap", "", "leap.mp4", "", "")
    videos = mh.write() / "mmkg" / "Oru" / "Knowledge_Videos"
    videos.mkdir()
    (videos / "leap.mp4").write_bytes(clip.read_bytes())
    assert check(mh.folder).findings == ()


def test_errors_in_the_data_are_exit_code_one_and_all_are_listed(mh: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mh.relations["Vex"] += [("Vex", "has", "", "", "ghost"), ("phantom", "has", "", "", "Leap")]
    mh.questions.append(("q3", "", "", "?", "Nobody", "", "", "", "x", 9))
    assert main(["check", str(mh.write())]) == 1
    out = capsys.readouterr().out
    assert "error dangling-edge mmkg/Vex/Relations.xlsx:4" in out and ":5: 'phantom'" in out and "bad-number" in out and "3 errors" in out


@pytest.mark.parametrize(
    "argv",
    [
        ["check", "nowhere"],
        ["show", "nowhere", "x"],
        ["convert", "nowhere", "--to", "mh", "--out", "o"],
        ["compile", "nowhere"],
        ["chek"],
        [],
    ],
)
def test_what_the_reader_can_mend_is_exit_code_two_in_one_message(
    argv: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert err and "Traceback" not in err and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argv", [["check", ".", "--jso"], ["convert", ".", "--to", "rdf", "--out", "x"], ["check"]])
def test_a_misspelt_option_is_an_error(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2


def test_show_prints_an_entity_and_its_neighbours(mh: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(mh.write())
    assert main(["show", folder, "Leap", "--owner", "Oru"]) == 0
    assert capsys.readouterr().out.split("\n")[:3] == [
        "Leap   (action of Oru)",
        "  caption: Oru jumps.",
        "  continues with attack action of → Spark [fast]",
    ]
    assert main(["show", folder, "Leap"]) == 0 and capsys.readouterr().out.count("Leap   (action of") == 2
    assert main(["show", folder]) == 0 and capsys.readouterr().out == "Oru\nVex\n"
    assert main(["show", folder, "Leep"]) == 2 and "near: Leap" in capsys.readouterr().err


def test_compile_and_convert_by_command_line(mh: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = str(mh.write()), tmp_path / "x.kgc"
    assert main(["compile", folder, "--out", str(tmp_path / "x.bin")]) == 2
    assert main(["compile", folder, "--out", str(out)]) == 0 and out.is_file()
    assert main(["show", str(out), "Spark"]) == 0 and "Spark   (action of Oru)" in capsys.readouterr().out
    assert main(["convert", folder, "--to", "plain", "--out", str(tmp_path / "plain")]) == 0
    assert main(["check", str(tmp_path / "plain")]) == 0


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("check", "show", "convert", "compile"))


def test_check_of_a_plain_graph_without_questions(plain: Callable[..., Path]) -> None:
    d = check(plain(questions=None))
    assert [f.code for f in d.findings] == ["no-questions"] and isinstance(d.graph, ArrayGraph)
