"""`python -m kg show`: an entity and what lies around it, also in data with errors, which is then said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kg.__main__ import main


def test_an_entity_is_shown_with_its_edges_and_namesakes(mh: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(mh.write())
    assert main(["show", folder]) == 0
    roots = capsys.readouterr().out.split("\n")
    assert main(["show", folder, roots[0]]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"{roots[0]}   (") and " → " in said.out and not said.err


def test_data_with_errors_is_shown_as_far_as_it_goes_and_that_is_said(mh: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(mh.write())
    next(folder.glob("mmkg/*/Relations.xlsx")).unlink()
    assert main(["show", str(folder)]) == 0
    said = capsys.readouterr()
    assert said.out.strip()
    assert "errors in the data" in said.err and "Relations.xlsx is missing" in said.err and "kg check" in said.err


def test_a_graph_without_roots_and_an_unknown_name_end_in_one_message(tmp_path: Path, mh: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(mh.write())
    for sheet in folder.glob("mmkg/*/Node.xlsx"):
        sheet.unlink()
    assert main(["show", str(folder)]) == 2
    said = capsys.readouterr()
    assert not said.out and "at which a search could start" in said.err and "Traceback" not in said.err
    assert main(["show", str(folder), "Nobody"]) == 2
    assert "no entity 'Nobody'" in capsys.readouterr().err
