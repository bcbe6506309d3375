"""Reading .xlsx sheets by position. The only file that knows python-calamine.

Knows no data set: it hands out rows of cells and says what in a sheet a reader by position would misunderstand (formulas,
merged cells, missing columns, numbers where names belong). Try: python -m kg check DATA
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from python_calamine import CalamineError, CalamineWorkbook

from kg.findings import Findings
from kg.names import visible
from kg.xlsx_cells import odd_cells, too_large

Cell = str | int | float | bool | datetime.date | datetime.time | datetime.datetime | datetime.timedelta


@dataclass(frozen=True)
class Row:
    """One row of a sheet. `number` counts as the spreadsheet does, the header being 1."""

    file: Path
    number: int
    cells: tuple[Cell, ...]
    findings: Findings
    header: Sequence[str]

    def name(self, column: int) -> str:
        """A name, without outer spaces. "" with an error when the cell holds a number, a date, a boolean or nothing."""
        cell = self.cells[column]
        if not isinstance(cell, str):
            what = f"{self._column(column)} should be a name, found the {_kind(cell)} {as_text(cell)}"
            self.findings.error("not-a-name", f"{what}; format the cell as text and type it again", self.file, self.number)
            return ""
        name = cell.strip()
        if not name:
            self.findings.error("empty-name", f"{self._column(column)} is empty", self.file, self.number)
        elif not visible(name).strip():
            self.findings.error(
                "empty-name", f"{self._column(column)} holds only characters that are not seen: {name!r}", self.file, self.number
            )
            return ""
        elif name != cell:
            self.findings.warn("outer-spaces", f"{self._column(column)} {cell!r} is read without its outer spaces", self.file, self.number)
        return name

    def text(self, column: int) -> str:
        """Free text, as it stands. A number or a date becomes text with a warning."""
        cell = self.cells[column]
        if isinstance(cell, str):
            return cell
        message = f"{self._column(column)} holds the {_kind(cell)} {as_text(cell)}, read as text"
        self.findings.warn("not-text", message, self.file, self.number)
        return as_text(cell)

    def path(self, column: int) -> str:
        """A file name, without outer spaces; "" when there is none."""
        return self.text(column).strip()

    def count(self, column: int, below: int) -> int | None:
        """A whole number from 0, also as "1" or 1.0; None with an error otherwise."""
        cell = self.cells[column]
        try:
            value = float(cell.strip() if isinstance(cell, str) else cell) if not isinstance(cell, datetime.date | bool) else -1.0  # type: ignore[arg-type]
        except (TypeError, ValueError):
            value = -1.0
        if not (value.is_integer() and 0 <= value < below):
            message = f"{self._column(column)} should be a whole number from 0 to {below - 1}, found {as_text(cell)!r}"
            self.findings.error("bad-number", message, self.file, self.number)
            return None
        return int(value)

    def _column(self, column: int) -> str:
        return f"column {column + 1} ({self.header[column]})"


def as_text(cell: Cell) -> str:
    """A cell as a person reads it: 2.0 is 2, dates are ISO."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return cell.isoformat() if isinstance(cell, datetime.date | datetime.time) else str(cell)


def read_sheet(file: Path, header: Sequence[str], findings: Findings) -> Iterator[Row]:
    """Rows of the first sheet that are not empty, padded to the header's width.

    Yields nothing, with an error, when the file is no sheet, has no rows or too few columns. A header that reads otherwise is a
    warning only: columns count by position.
    """
    if why := too_large(file):
        findings.error("unreadable-sheet", why, file)
        return
    try:
        with CalamineWorkbook.from_path(file) as book:
            if not book.sheet_names:
                findings.error("empty-sheet", "the workbook holds no sheet", file)
                return
            sheet = book.get_sheet_by_index(0)
            rows = sheet.to_python(skip_empty_area=False)
            merged = sheet.merged_cell_ranges or []
            if len(book.sheet_names) > 1:
                findings.warn("more-sheets", f"only the first of {len(book.sheet_names)} sheets is read ({book.sheet_names[0]})", file)
    except (CalamineError, OSError, ValueError) as e:
        findings.error("unreadable-sheet", f"cannot be read as a spreadsheet: {e}; save it again as .xlsx", file)
        return
    if not rows or not any(c != "" for c in rows[0]):
        findings.error("empty-sheet", f"the sheet has no header; expected the columns {', '.join(header)}", file)
        return
    first = rows[0]
    width = max((i + 1 for i, c in enumerate(first) if c != ""), default=0)
    if width < len(header):
        lacks = ", ".join(header[width:])
        findings.error("missing-columns", f"{width} columns instead of {len(header)} (columns count by position); lacks {lacks}", file)
        return
    _check_header(file, first, header, findings)
    for (top, left), (bottom, right) in merged:
        place = f"{_letters(left)}{top + 1}:{_letters(right)}{bottom + 1}"
        findings.warn("merged-cells", f"cells {place} are merged: all but the first read as empty; unmerge them", file, top + 1)
    _check_formulas(file, findings)
    for number, cells in enumerate(rows[1:], start=2):
        kept = tuple(cells[: len(header)])
        if any(c != "" for c in cells[len(header) :]):
            findings.warn("extra-columns", f"cells right of column {len(header)} ({header[-1]}) are not read", file, number)
        if any(c != "" for c in kept):
            yield Row(file, number, kept + ("",) * (len(header) - len(kept)), findings, header)


def _check_header(file: Path, first: Sequence[Cell], header: Sequence[str], findings: Findings) -> None:
    found = [as_text(c).strip() for c in first[: len(header)]]
    if [f.casefold() for f in found] != [h.casefold() for h in header]:
        message = f"the first row reads {', '.join(found)}; expected {', '.join(header)}. It is taken as a header all the same"
        findings.warn("header", message[:500], file, 1)


def _check_formulas(file: Path, findings: Findings) -> None:
    """A formula is read as the value stored with it: stale at worst, nothing when it was never computed."""
    for odd in odd_cells(file):
        if odd.kind == "formula":
            findings.warn("formula", f"cell {odd.cell} holds a formula; its stored value is read. Paste the value instead", file, odd.row)
        elif odd.kind == "formula-empty":
            message = f"cell {odd.cell} holds a formula without a stored value and reads as empty; paste the value"
            findings.error("formula", message, file, odd.row)
        else:
            findings.error("error-cell", f"cell {odd.cell} holds a spreadsheet error such as #N/A and reads as empty", file, odd.row)


def _letters(column: int) -> str:
    return (_letters(column // 26 - 1) if column >= 26 else "") + chr(65 + column % 26)


def _kind(cell: Cell) -> str:
    if isinstance(cell, bool):
        return "boolean"
    return "number" if isinstance(cell, int | float) else "date or time"
