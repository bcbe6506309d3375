"""Reading .csv and .jsonl files with named columns, both as rows of text, every wrong row named.

Knows no data set. Try: python -m kg check DATA
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kg.findings import Findings
from kg.names import visible

Value = str | list[str] | list[list[str]] | int


@dataclass(frozen=True, slots=True)
class Line:
    """One row. `number` is its line in a .jsonl file and its row in a .csv file, the header being 1."""

    file: Path
    number: int
    values: dict[str, Value]
    findings: Findings

    def text(self, column: str) -> str:
        """The value as it stands; "" when it is absent. Anything but text is an error."""
        value = self.values.get(column, "")
        if isinstance(value, str):
            return value
        self.findings.error("not-text", f"{column} should be text in quotes, found {json.dumps(value)[:80]}", self.file, self.number)
        return ""

    def name(self, column: str) -> str:
        """As `text`, without outer spaces; empty is an error."""
        text = self.text(column)
        name = text.strip()
        if not name and isinstance(self.values.get(column, ""), str):
            self.findings.error("empty-name", f"{column} is empty", self.file, self.number)
        elif name and not visible(name).strip():
            self.findings.error("empty-name", f"{column} holds only characters that are not seen: {name!r}", self.file, self.number)
            return ""
        elif name != text:
            self.findings.warn("outer-spaces", f"{column} {text!r} is read without its outer spaces", self.file, self.number)
        return name

    def many(self, column: str, separator: str) -> list[str]:
        """A list: in .jsonl as such, in text separated by `separator`. Empty pieces are left out."""
        value = self.values.get(column, "")
        if isinstance(value, list) and all(isinstance(v, str) for v in value):
            return [v for v in value if isinstance(v, str) and v]
        return [piece.strip() for piece in self.text(column).split(separator) if piece.strip()]


def read_lines(file: Path, columns: Sequence[str], needed: Sequence[str], findings: Findings) -> Iterator[Line]:
    """The rows of a .csv or .jsonl file whose columns are among `columns` and hold all of `needed`; errors become findings."""
    try:
        with file.open(encoding="utf-8-sig", newline="", errors="strict") as f:
            reader = _csv if file.suffix == ".csv" else _jsonl
            for number, values in reader(f, file, columns, needed, findings):
                yield Line(file, number, values, findings)
    except UnicodeDecodeError as e:
        findings.error("not-utf8", f"is not UTF-8 ({e.reason} after {e.start} bytes of a block); save it as UTF-8", file)
    except (OSError, csv.Error) as e:
        findings.error("unreadable-file", f"cannot be read: {e}", file)


def _csv(
    f: Iterator[str], file: Path, columns: Sequence[str], needed: Sequence[str], findings: Findings
) -> Iterator[tuple[int, dict[str, Value]]]:
    csv.field_size_limit(2**31 - 1)  # the default refuses cells above 131,072 characters
    rows = csv.reader(f, strict=True)
    header = [cell.strip() for cell in next(rows, [])]
    if not _columns_fit(header, file, columns, needed, findings):
        return
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(header):
            findings.error("wrong-columns", f"{len(row)} cells instead of {len(header)}; quote cells that hold commas", file, number)
            continue
        yield number, dict(zip(header, row, strict=True))


def _jsonl(
    f: Iterator[str], file: Path, columns: Sequence[str], needed: Sequence[str], findings: Findings
) -> Iterator[tuple[int, dict[str, Value]]]:
    for number, line in enumerate(f, start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as e:  # also an integer of thousands of digits
            findings.error("not-json", f"is no JSON: {e}", file, number)
            continue
        if "\\u" in line and not _encodable(values):
            findings.error("bad-text", "holds half of a surrogate pair (\\ud800 to \\udfff), which is no text", file, number)
        elif not isinstance(values, dict):
            findings.error("not-json", f"should be an object in braces, found {line.strip()[:40]}", file, number)
        elif _columns_fit(list(values), file, columns, needed, findings, number):
            yield number, values


def _columns_fit(
    found: Sequence[str], file: Path, columns: Sequence[str], needed: Sequence[str], findings: Findings, row: int | None = None
) -> bool:
    lacks = [c for c in needed if c not in found]
    unknown = [c for c in found if c not in columns]
    twice = {c for c in found if list(found).count(c) > 1}
    if lacks:
        findings.error("missing-columns", f"lacks {', '.join(lacks)}; known columns: {', '.join(columns)}", file, row or 1)
    if unknown or twice:
        wrong = ", ".join(map(repr, [*unknown, *sorted(twice)]))[:200]
        findings.error("unknown-columns", f"{wrong} unknown or twice; known columns: {', '.join(columns)}", file, row or 1)
    return not (lacks or unknown or twice)


def _encodable(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
