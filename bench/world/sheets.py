"""Writes one-sheet .xlsx workbooks: a stream of rows in, the same bytes for the same rows out.

Knows no data set. Only what readers need (five XML parts, text kept in the cells), written by hand: a tenth of a general
library's time for a small sheet, and no time of day inside, so that a world made again is byte for byte the same.

    python -c "from pathlib import Path; from bench.world.sheets import write_sheet
    write_sheet(Path('out.xlsx'), [['Entity'], ['Varkun']])"
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Final

MAX_ROWS: Final = 1_048_576
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_SPREADSHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_PARTS: Final = {
    "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}.sheet.main+xml"/>'
    f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_TYPE}.worksheet+xml"/></Types>',
    "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'<workbook xmlns="{_SPREADSHEET}" xmlns:r="{_OFFICE}">'
    '<sheets><sheet name="Sheet1" sheetId="1" r:id="rId1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="rId1" Type="{_OFFICE}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
}


def write_sheet(path: Path, rows: Iterable[Sequence[str | int]]) -> int:
    """Write the rows (the header is one of them) and return how many there were. Empty cells are left out.

    Raises: ValueError for text that XML cannot hold or more rows than a sheet has; OSError.
    """
    count = 0
    with zipfile.ZipFile(path, "w", compresslevel=1) as archive:
        for name, text in _PARTS.items():
            archive.writestr(_info(name), _HEAD + text)
        with archive.open(_info("xl/worksheets/sheet1.xml"), "w") as out:
            out.write(f'{_HEAD}<worksheet xmlns="{_SPREADSHEET}"><sheetData>'.encode())
            for count, row in enumerate(rows, start=1):
                if count > MAX_ROWS:
                    raise ValueError(f"a sheet holds {MAX_ROWS:,} rows, {path.name} would have more")
                out.write(f'<row r="{count}">{"".join(_cell(_column(i), count, v) for i, v in enumerate(row))}</row>'.encode())
            out.write(b"</sheetData></worksheet>")
    return count


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
    return info


def _column(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else _column(index // 26 - 1) + _column(index % 26)


def _cell(column: str, row: int, value: str | int) -> str:
    if isinstance(value, int):
        return f'<c r="{column}{row}"><v>{value}</v></c>'
    if not value:
        return ""
    if _FORBIDDEN.search(value):
        raise ValueError(f"cell {column}{row} holds a control character: {value!r}")
    return f'<c r="{column}{row}" t="inlineStr"><is><t xml:space="preserve">{escape(value, quote=False)}</t></is></c>'
