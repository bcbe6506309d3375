"""What a reader of cell values cannot see in an .xlsx file: which cells are formulas, and which hold an error.

Reads the sheet's XML by pattern, so a damaged file costs nothing but the answer. Knows no data set.
Try: python -m kg check DATA
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LARGEST = 256 * 2**20  # bytes of XML that are searched; far above any real sheet, and a limit for archives that unpack without end
_CELL = re.compile(rb"<(?:\w+:)?c\b((?:[^>/]|/(?!>))*)>(.*?)</(?:\w+:)?c>", re.DOTALL)
_FORMULA = re.compile(rb"<(?:\w+:)?f[\s>/]")
_VALUE = re.compile(rb"<(?:\w+:)?v>[^<]")
_NAME = re.compile(rb'\br="([A-Z]+)(\d+)"')


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
