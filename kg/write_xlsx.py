"""Writing .xlsx sheets. The only file of the room that knows openpyxl.

Knows no data set. Text goes in as text: not as a formula when it begins with "=", not cut at the 32,767 characters that Excel shows,
and with the format's own escapes (_x0001_) for characters that XML cannot hold. Try: python -m kg convert DATA --to mh --out DIR
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from openpyxl import Workbook
from openpyxl.cell import WriteOnlyCell

_ESCAPED = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]")


def write_sheet(path: Path, header: Sequence[str], rows: Iterable[Sequence[str | int]]) -> None:
    """One sheet of text and whole numbers. Raises: OSError."""
    book = Workbook(write_only=True)
    sheet = book.create_sheet("Sheet1")
    for row in (header, *rows):
        cells = []
        for value in row:
            cell = WriteOnlyCell(sheet)
            if isinstance(value, str):
                cell._value, cell.data_type = escaped(value), "s"
            else:
                cell.value = value
            cells.append(cell)
        sheet.append(cells)
    path.parent.mkdir(parents=True, exist_ok=True)
    book.save(path)


def escaped(text: str) -> str:
    """`text` as the format spells it; a reader turns it back."""
    return _CONTROL.sub(lambda m: f"_x{ord(m[0]):04X}_", _ESCAPED.sub("_x005F_", text))
