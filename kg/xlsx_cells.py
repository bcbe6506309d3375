"""What a reader of cell values cannot see in an .xlsx file: which cells are formulas, which hold an error, and how large it would become.

Reads the sheet's XML by pattern, so a damaged file costs nothing but the answer. Knows no data set.
Try: python -m kg check DATA
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LARGEST = 256 * 2**20  # bytes of XML that are searched; far above any real sheet, and a limit for archives that unpack without end
CELLS = 20_000_000  # of a sheet's rectangle; Excel's own limit is 800 times as much
_CELL = re.compile(rb"<(?:\w+:)?c\b((?:[^>/]|/(?!>))*)>(.*?)</(?:\w+:)?c>", re.DOTALL)
_FORMULA = re.compile(rb"<(?:\w+:)?f[\s>/]")
_VALUE = re.compile(rb"<(?:\w+:)?v>[^<]")
_NAME = re.compile(rb'\br="([A-Z]{1,3})(\d{1,7})"')


@dataclass(frozen=True, slots=True)
class Odd:
    """A cell such as B5. `kind`: a formula with its stored value, one without, or an error such as #N/A."""

    cell: str
    row: int
    kind: Literal["formula", "formula-empty", "error"]


def odd_cells(file: Path) -> Iterator[Odd]:
    """The odd cells of the workbook's first sheet; nothing for what is no .xlsx file."""
    xml = _first_sheet(file)
    if b'"e"' not in xml and not _FORMULA.search(xml):
        return
    for match in _CELL.finditer(xml):
        name = _NAME.search(match[1])
        if name is None:
            continue
        cell, row = (name[1] + name[2]).decode(), int(name[2])
        if _FORMULA.search(match[2]):
            yield Odd(cell, row, "formula" if _VALUE.search(match[2]) else "formula-empty")
        elif re.search(rb'\bt="e"', match[1]):
            yield Odd(cell, row, "error")


def too_large(file: Path) -> str:
    """Why this workbook must not be read, which takes memory for every cell up to its last one; "" where nothing speaks against it."""
    try:
        with zipfile.ZipFile(file) as z:
            unpacked = sum(info.file_size for info in z.infolist())
    except (zipfile.BadZipFile, OSError, ValueError):
        return ""  # the reader says it better
    if unpacked > 4 * LARGEST:
        return f"unpacks to {unpacked:,} bytes, {4 * LARGEST:,} at most are read"
    xml = _first_sheet(file)
    if _cells(_NAME.findall(xml)) <= CELLS:
        return ""
    names = [name.groups() for match in _CELL.finditer(xml) if (name := _NAME.search(match[1]))]  # those that hold something
    if _cells(names) <= CELLS:
        return ""
    row, column = max(int(row) for _, row in names), max((letters for letters, _ in names), key=_column)
    return f"reaches to row {row:,} and column {column.decode()}, which is too far to be meant: delete what stands beyond the table"


def _cells(names: Sequence[tuple[bytes, ...]]) -> int:
    """Cells of the rectangle that holds all of these."""
    columns = max(map(_column, {letters for letters, _ in names}), default=0)
    return columns * max((int(row) for _, row in names), default=0)


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number


def _first_sheet(file: Path) -> bytes:
    try:
        with zipfile.ZipFile(file) as z:
            first = re.search(rb'<(?:\w+:)?sheet\b[^>]*\br:id="([^"]+)"', z.read("xl/workbook.xml"))
            links = re.findall(rb"<Relationship\b[^>]*>", z.read("xl/_rels/workbook.xml.rels"))
            link = next((tag for tag in links if first and b'Id="' + first[1] + b'"' in tag), b"")
            target = re.search(rb'\bTarget="/?(?:xl/)?([^"]+)"', link)
            part = f"xl/{target[1].decode()}" if target else "xl/worksheets/sheet1.xml"
            return z.read(part) if z.getinfo(part).file_size <= LARGEST else b""
    except (zipfile.BadZipFile, OSError, KeyError, RuntimeError, UnicodeDecodeError, NotImplementedError):
        return b""
