"""Where a reader writes down what it noticed, so that one pass over a data set reports everything at once.

Knows no format and decides nothing: the caller says what is an error and what is a warning.
Try: python -m kg check DATA
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from kg.dataset import Finding
from models.errors import DataError

FIRST = 20
HINTS = 100  # "did you mean" is looked up for so many errors; a look-up reads all names


@dataclass
class Findings:
    """A growing list. `folder` is cut from file names so that messages read the same on every machine."""

    folder: Path
    items: list[Finding] = field(default_factory=list)
    error_count: int = 0

    def error(self, code: str, message: str, file: Path | str = "", row: int | None = None) -> None:
        self.error_count += 1
        self.items.append(Finding("error", code, message, self.short(file), row))

    def warn(self, code: str, message: str, file: Path | str = "", row: int | None = None) -> None:
        self.items.append(Finding("warning", code, message, self.short(file), row))

    @property
    def errors(self) -> list[Finding]:
        return [f for f in self.items if f.level == "error"]

    def raise_errors(self) -> None:
        """One DataError that lists the first twenty errors; nothing when there are none."""
        errors = self.errors
        if not errors:
            return
        lines = [f"  {f.file}{'' if f.row is None else f':{f.row}'}: {f.message} [{f.code}]" for f in errors[:FIRST]]
        if len(errors) > FIRST:
            lines.append(f"  … and {len(errors) - FIRST} more")
        what = f"{len(errors)} error{'s' if len(errors) > 1 else ''} in the data set\n" + "\n".join(lines) + "\n"
        raise DataError(what, where=str(self.folder), remedy="mend these rows; `python -m kg check` lists all of them")

    def short(self, file: Path | str) -> str:
        path = Path(file)
        return path.relative_to(self.folder).as_posix() if path.is_absolute() and path.is_relative_to(self.folder) else str(file)


def counts(findings: list[Finding] | tuple[Finding, ...]) -> Counter[tuple[str, str]]:
    """(level, code) → how many."""
    return Counter((f.level, f.code) for f in findings)
