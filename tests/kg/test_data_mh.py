"""The published layout: what is read, and one clear finding for everything that is wrong with a sheet."""

from __future__ import annotations

import datetime
import os
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from kg.dataset import Dataset
from kg.load import load
from kg.load_mh import QUESTION_HEADER
from kg.routes import RouteProblem, resolve_route, walk_along
from models.errors import DataError

BENCH = Path(os.environ.get("MH_BENCH") or Path(__file__).parents[2].parent / "shared" / "mh_bench")
real = pytest.mark.skipif(not BENCH.is_dir(), reason="MH_BENCH is not there")


def codes(dataset: Dataset) -> Counter[str]:
    return Counter(f"{f.level} {f.code}" for f in dataset.findings)


def only(dataset: Dataset, code: str) -> Any:
    found = [f for f in dataset.findings if f.code == code]
    assert len(found) == 1, [str(f) for f in dataset.findings]
    return found[0]


@real
def test_the_real_questions_load_with_the_warnings_they_deserve() -> None:
    d = load(BENCH)
    assert len(d.questions) == 142 and len({q.uid for q in d.questions}) == 142
    assert len(d.graph.roots) == 12 and len(d.graph) == 131
    assert set(codes(d)) == {"warning missing-media", "warning duplicate-id"}
    assert not any(q.has_media for q in d.questions)
    assert Counter(q.task for q in d.questions) == {1: 58, 4: 25, 2: 20, 0: 14, 5: 13, 3: 12}
    twice = [q for q in d.questions if q.id == "Rathalos_Retreating Fireball"]
    assert len(twice) == 2 and twice[0].answer != twice[1].answer
    routes = [resolve_route(d.graph, route, q.root) for q in d.questions for route in q.routes]
    assert routes and not any(isinstance(r, RouteProblem) for r in routes)


@real
def test_kinds_of_the_real_graph_come_from_the_shipped_card() -> None:
    graph = load(BENCH).graph
    kinds = Counter(graph.entity(i).kind for i in range(len(graph)))
    assert kinds == {"action": 101, "monster": 12, "phase": 12, "element": 5, "prop": 1}


def test_shared_names_are_one_entity_and_homonyms_stay_two(mh: Any) -> None:
    graph = load(mh.write()).graph
    assert graph.find("Fire Element", "Oru") == graph.find("Fire Element", "Vex") == graph.find("Fire Element")
    leaps = [graph.find("Leap", owner) for owner in ("Oru", "Vex")]
    assert None not in leaps and leaps[0] != leaps[1] and graph.find("Leap") is None
    assert [graph.entity(i).caption for i in leaps if i is not None] == ["Oru jumps.", "Vex jumps."]
    assert graph.find("Vex", "Oru") == graph.find("Vex", "Vex") == graph.find("Vex") == graph.roots[1]
    assert graph.find("Spark", "Vex") is None and graph.find("nowhere", "Oru") is None and graph.find("Leap", "nobody") is None


def test_edges_keep_their_texts_and_order(mh: Any) -> None:
    graph = load(mh.write()).graph
    oru = graph.roots[0]
    assert [(e.relation, graph.entity(e.target).name) for e in graph.neighbours(oru)] == [
        ("has attack phase of", "Calm Phase"),
        ("is weaken with", "Fire Element"),
        ("has subspecies of", "Vex"),
    ]
    phase, leap = graph.find("Calm Phase", "Oru"), graph.find("Leap", "Oru")
    assert phase is not None and leap is not None
    assert graph.neighbours(phase)[0].condition == "is angry" and graph.neighbours(leap)[0].information == "fast"


def test_a_root_inside_a_route_switches_the_owner(mh: Any) -> None:
    d = load(mh.write())
    first, second = (resolve_route(d.graph, r, "Oru") for r in d.questions[0].routes)
    assert not isinstance(first, RouteProblem) and not isinstance(second, RouteProblem)
    assert [d.graph.entity(i).owner for i in first] == ["Oru", "Oru", "Oru"]
    assert [d.graph.entity(i).owner for i in second] == ["Oru", "Vex", "Vex"]
    assert walk_along(d.graph, second).end == d.graph.find("Leap", "Vex")


@pytest.mark.parametrize(
    ("route", "says"),
    [
        ((), "empty"),
        (("Vex", "Leap"), "starts at 'Vex'"),
        (("Oru", "Vex", "Spark"), "'Spark' is no entity of 'Vex'"),
        (("Oru", "Leap"), "no edge leads from 'Oru' to 'Leap'"),
    ],
)
def test_a_route_that_cannot_be_walked_says_why(mh: Any, route: tuple[str, ...], says: str) -> None:
    problem = resolve_route(load(mh.write()).graph, route, "Oru")
    assert isinstance(problem, RouteProblem) and says in str(problem)


def test_a_broken_route_is_a_warning_with_its_row(mh: Any) -> None:
    mh.questions[1] = ("q2", "", "", "?", "Oru", "", "", "Oru>Leap", "x", 0)
    finding = only(load(mh.write()), "route-broken")
    assert (finding.level, finding.row) == ("warning", 3) and "Oru>Leap" in finding.message


def test_entities_called_none_and_na_load_under_their_names(mh: Any) -> None:
    mh.nodes["Vex"] += [("None", "", "", "", "nothing"), ("NA", "", "", "", "")]
    mh.relations["Vex"] += [("Vex", "has attack action of", "", "", "None"), ("None", "continues with", "", "", "NA")]
    graph = load(mh.write()).graph
    none = graph.find("None", "Vex")
    assert none is not None and graph.entity(none).info == "nothing" and graph.entity(graph.neighbours(none)[0].target).name == "NA"


def test_both_rows_of_a_doubled_id_are_kept(mh: Any) -> None:
    mh.questions.append(("q1", "", "", "Another?", "Vex", "", "", "Vex", "other", 2))
    d = load(mh.write())
    assert [q.uid for q in d.questions] == ["0001:q1", "0002:Pure Text", "0003:q1"]
    assert "2, 4" in only(d, "duplicate-id").message


def test_long_cells_and_odd_characters_survive(mh: Any) -> None:
    long, odd = "x" * 40_000, "=1+2\n\x01\x0b_x0041_ \r https://a.b\t😀"
    mh.questions[0] = ("q1", "", "", "?", "Oru", "", "", "Oru", long, 0)
    mh.nodes["Oru"][0] = ("Oru", "", "", odd, long)
    d = load(mh.write())
    root = d.graph.entity(d.graph.roots[0])
    assert d.questions[0].answer == long and root.info == long and root.caption == odd


@pytest.mark.parametrize("value", [1, 1.0, "1", " 1.0 "])
def test_the_type_cell_in_all_its_spellings(mh: Any, value: Any) -> None:
    mh.questions[0] = (*mh.questions[0][:9], value)
    assert load(mh.write()).questions[0].task == 1


@pytest.mark.parametrize("value", [6, -1, 1.5, "one", "", "nan", "inf", datetime.date(2024, 1, 1), True])
def test_a_type_that_is_none_names_its_row(mh: Any, value: Any) -> None:
    mh.questions[0] = (*mh.questions[0][:9], value)
    with pytest.raises(DataError, match=r"question_list\.xlsx:2.*0 to 5"):
        load(mh.write())


@pytest.mark.parametrize("value", [360.0, 7, datetime.datetime(2024, 3, 1, 5), datetime.date(2024, 3, 1), True])
def test_numbers_dates_and_booleans_are_no_names(mh: Any, value: Any) -> None:
    mh.nodes["Oru"][2] = (value, "", "", "", "")
    with pytest.raises(DataError, match=r"Oru/Node\.xlsx:4: column 1 \(Entity\) should be a name, found the (number|date or time|boolean)"):
        load(mh.write())


def test_a_number_in_a_text_cell_is_read_as_text_and_said(mh: Any) -> None:
    mh.questions[0] = ("q1", "", "", "?", "Oru", "", "", "Oru", 2, 0)
    d = load(mh.write())
    assert d.questions[0].answer == "2" and only(d, "not-text").level == "warning"


def test_a_dangling_edge_names_the_row_and_what_was_meant(mh: Any) -> None:
    mh.relations["Oru"].append(("Oru", "has attack phase of", "", "", "calm  phase"))
    with pytest.raises(DataError, match=r"Oru/Relations\.xlsx:7: 'calm  phase' is no entity.*did you mean 'Calm Phase'"):
        load(mh.write())
    assert len(load(mh.folder, strict=False).graph.neighbours(0)) == 3


def test_duplicate_edges_are_read_once_and_self_loops_kept(mh: Any) -> None:
    mh.relations["Vex"] += [mh.relations["Vex"][0], ("Leap", "continues with", "", "", "Leap")]
    d = load(mh.write())
    assert only(d, "duplicate-edge").row == 4 and only(d, "self-loop").row == 5
    assert len(d.graph.neighbours(d.graph.roots[1])) == 2


def test_the_same_relation_under_another_condition_is_another_edge(mh: Any) -> None:
    mh.relations["Vex"].append(("Vex", "has attack action of", "", "is angry", "Leap"))
    d = load(mh.write())
    assert not d.findings and len(d.graph.neighbours(d.graph.roots[1])) == 3


def test_an_unknown_monster_is_named_with_its_row(mh: Any) -> None:
    mh.questions[1] = ("q2", "", "", "?", "oru", "", "", "oru", "x", 0)
    with pytest.raises(DataError, match=r"question_list\.xlsx:3:.*'oru', which is no root.*did you mean 'Oru'"):
        load(mh.write())


def test_a_folder_without_roots_or_sheets(mh: Any) -> None:
    (mh.folder / "mmkg").mkdir(parents=True)
    with pytest.raises(DataError, match="holds no folder of a root"):
        load(mh.folder)
    (mh.folder / "mmkg" / "Oru").mkdir()
    with pytest.raises(DataError, match=r"mmkg/Oru: the sheet Node.xlsx is missing"):
        load(mh.folder)


@pytest.mark.parametrize("folder", ["", "nowhere", "file"])
def test_no_data_set_at_all(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match=r"holds no data set|is not there|is not a folder"):
        load(tmp_path / folder)


def test_missing_questions_are_a_warning(mh: Any) -> None:
    (mh.write() / "questions_mh" / "question_list.xlsx").unlink()
    d = load(mh.folder)
    assert d.questions == () and only(d, "no-questions").level == "warning"


def book(path: Path, *rows: tuple[Any, ...]) -> Any:
    """A workbook as openpyxl writes it by itself."""
    workbook = openpyxl.Workbook()
    for row in rows:
        workbook.active.append(row)
    workbook.save(path)
    return workbook


def test_a_sheet_with_missing_columns_lists_them(mh: Any) -> None:
    book(mh.write() / "questions_mh" / "question_list.xlsx", QUESTION_HEADER[:8], ("q", "", "", "?", "Oru", "", "", "Oru"))
    with pytest.raises(DataError, match=r"8 columns instead of 10.*lacks Answer, Type"):
        load(mh.folder)


def test_an_empty_sheet_and_a_sheet_with_a_header_only(mh: Any) -> None:
    mh.nodes["Vex"], mh.relations["Vex"] = [], []
    book(mh.write() / "mmkg" / "Oru" / "Relations.xlsx")
    found = [f for f in load(mh.folder, strict=False).findings if f.code == "empty-sheet"]
    assert {(f.level, f.file) for f in found} == {
        ("error", "mmkg/Vex/Node.xlsx"),
        ("error", "mmkg/Oru/Relations.xlsx"),
        ("warning", "mmkg/Vex/Relations.xlsx"),
    }


def test_what_is_no_spreadsheet_is_said_not_raised(mh: Any) -> None:
    (mh.write() / "mmkg" / "Vex" / "Node.xlsx").write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(DataError, match=r"mmkg/Vex/Node\.xlsx: cannot be read as a spreadsheet"):
        load(mh.folder)


def stray(path: Path, cell: str, content: str) -> None:
    """One more cell, written into the sheet's XML."""
    with zipfile.ZipFile(path) as z:
        parts = {name: z.read(name) for name in z.namelist()}
    row = "".join(filter(str.isdigit, cell))
    sheet = "xl/worksheets/sheet1.xml"
    parts[sheet] = parts[sheet].replace(b"</sheetData>", f'<row r="{row}"><c r="{cell}" {content}</row></sheetData>'.encode())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, body in parts.items():
            z.writestr(name, body)


def test_a_stray_cell_far_away_takes_no_memory(mh: Any) -> None:
    path = mh.write() / "mmkg" / "Vex" / "Node.xlsx"
    stray(path, "XFD60000", 't="inlineStr"><is><t>x</t></is></c>')  # would be a rectangle of 31 GB
    with pytest.raises(DataError, match=r"Vex/Node\.xlsx: reaches to row 60,000 and column XFD, .*delete"):
        load(mh.folder)


@pytest.mark.parametrize(("cell", "content"), [("XFD1048576", 's="1"/>'), ("A200000", 't="inlineStr"><is><t>Far</t></is></c>')])
def test_far_cells_that_hold_nothing_or_cost_little_are_read(mh: Any, cell: str, content: str) -> None:
    stray(mh.write() / "mmkg" / "Vex" / "Node.xlsx", cell, content)
    d = load(mh.folder)
    assert not d.findings and (d.graph.find("Far", "Vex") is not None) == ("Far" in content)


def test_a_workbook_that_unpacks_without_end_is_not_unpacked(mh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kg.xlsx_cells.LARGEST", 100)
    mh.write()
    with pytest.raises(DataError, match=r"unpacks to [\d,]+ bytes, 400 at most"):
        load(mh.folder)


def test_formulas_with_and_without_a_stored_value(mh: Any) -> None:
    header = ("Entity 1", "Relation", "Information", "Condition", "Entity 2")
    book(mh.write() / "mmkg" / "Vex" / "Relations.xlsx", header, ("Vex", "has attack action of", '="a"&"b"', "", "Leap"))
    finding = only(load(mh.folder, strict=False), "formula")
    assert (finding.level, finding.row) == ("error", 2) and "C2" in finding.message


def test_error_cells_are_not_read_as_empty(mh: Any) -> None:
    header = ("Entity 1", "Relation", "Information", "Condition", "Entity 2")
    book(mh.write() / "mmkg" / "Vex" / "Relations.xlsx", header, ("Vex", "has attack action of", "#N/A", "", "Leap"))
    assert "C2" in only(load(mh.folder, strict=False), "error-cell").message


def test_merged_cells_are_named(mh: Any) -> None:
    path = mh.write() / "mmkg" / "Vex" / "Relations.xlsx"
    workbook = openpyxl.load_workbook(path)
    workbook.active.merge_cells("B2:C3")
    workbook.save(path)
    assert any(f.code == "merged-cells" and "B2:C3" in f.message and f.row == 2 for f in load(mh.folder, strict=False).findings)


def test_a_foreign_header_is_a_warning_because_columns_count_by_position(mh: Any) -> None:
    path = mh.write() / "mmkg" / "Vex" / "Relations.xlsx"
    book(path, ("From", "How", "What", "When", "To", "Note"), ("Vex", "has attack action of", None, None, "Leap", "seen"))
    d = load(mh.folder)
    assert codes(d) == {"warning header": 1, "warning extra-columns": 1}
    assert len(d.graph.neighbours(d.graph.roots[1])) == 1


def test_outer_spaces_are_cut_and_said(mh: Any) -> None:
    mh.nodes["Vex"][1] = (" Leap ", "", "", "", "")
    d = load(mh.write())
    assert only(d, "outer-spaces").row == 3 and d.graph.find("Leap", "Vex") is not None


def test_one_sheet_must_not_contradict_itself_but_folders_may(mh: Any) -> None:
    mh.nodes["Vex"][2] = ("Fire Element", "", "", "", "hot")
    mh.nodes["Oru"][4] = ("Fire Element", "", "", "", "warm")
    d = load(mh.write())
    fire = d.graph.find("Fire Element")
    assert fire is not None and d.graph.entity(fire).info == "warm" and only(d, "shared-differs").row == 4
    mh.nodes["Vex"].append(("Leap", "", "", "Vex flies.", ""))
    with pytest.raises(DataError, match=r"'Leap' stands here twice with different caption"):
        load(mh.write())


def test_a_folder_without_a_row_for_its_root(mh: Any) -> None:
    del mh.nodes["Vex"][0]
    d = load(mh.write())
    assert only(d, "no-root-row").level == "warning" and len(d.graph.roots) == 2


def test_the_first_twenty_errors_are_listed_and_the_rest_counted(mh: Any) -> None:
    mh.relations["Vex"] += [("Vex", "has", "", "", f"ghost {i}") for i in range(25)]
    with pytest.raises(DataError) as caught:
        load(mh.write())
    message = str(caught.value)
    assert "25 errors" in message and "ghost 19" in message and "ghost 20" not in message and "and 5 more" in message
