"""The paper's own figures (published.toml), marked as published wherever they are shown. Nothing here was measured by this project.

Try: python -c "from bench.published import table; print(table('table3').get('GPT-4o', 'vanilla.acc'))"
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("published.toml")


@dataclass(frozen=True)
class PublishedTable:
    """One table of the paper: rows by name, columns by name; None where the paper leaves a cell open."""

    name: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float | None, ...]]

    def get(self, row: str, column: str) -> float | None:
        """The cell; None for an open cell and for a column that this table does not have."""
        return self.rows[row][self.columns.index(column)] if column in self.columns else None


@cache
def table(name: str) -> PublishedTable:
    """``table3``, ``table5``, ``table16`` … of the paper; humans stand below the models."""
    raw = tomllib.loads(_FILE.read_text(encoding="utf-8"))[name]
    rows = {**raw["rows"], **raw.get("humans", {})}
    columns = tuple(raw["columns"])
    for row, cells in rows.items():
        if len(cells) != len(columns):
            raise ValueError(f"published.toml: {name} row {row!r} has {len(cells)} cells for {len(columns)} columns")
    return PublishedTable(name, columns, {row: tuple(None if math.isnan(c) else c for c in cells) for row, cells in rows.items()})


def source() -> str:
    """Where the figures come from."""
    return str(tomllib.loads(_FILE.read_text(encoding="utf-8"))["source"])
