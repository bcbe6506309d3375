"""Finding the media that a cell names: inside the data set's folder, frames in natural order, nothing opened.

Knows no sheet and no decoder. Try: python -m kg check DATA
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from kg.findings import Findings

PICTURES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif"})
_DIGITS = re.compile(r"(\d+)")


def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key under which f2 stands before f10; "consecutive" frames of a folder are in this order."""
    parts = _DIGITS.split(name.casefold())
    return (*((int(p), "") if i % 2 else (-1, p) for i, p in enumerate(parts)), (-1, name))


class Media:
    """Media of one data set. What is missing is a warning, what leaves the folder an error; both leave the field empty."""

    def __init__(self, folder: Path, findings: Findings) -> None:
        self.folder, self.findings = folder, findings
        self._real = folder.resolve()

    def inside(self, path: Path, what: str, file: Path | str, row: int | None = None) -> bool:
        """False, with a finding, when `path` leads out of the data set, by ``..``, as an absolute path or through a link."""
        try:
            good = path.resolve().is_relative_to(self._real) and Path(os.path.normpath(path)).is_relative_to(self.folder)
        except (OSError, ValueError, RuntimeError) as e:  # a loop of links, a NUL byte
            self.findings.error("path-outside", f"{what} {_short(path.name)!r} is no usable path: {e}", file, row)
            return False
        if not good:
            message = f"{what} {_short(os.path.relpath(path, self.folder))!r} leads out of the data set's folder; copy the file into it"
            self.findings.error("path-outside", message, file, row)
        return good

    def pictures(self, base: Path, cell: str, what: str, file: Path | str, row: int) -> tuple[Path, ...]:
        """The picture `base/cell`, or all pictures of that folder in natural order; () with a warning when there is none."""
        if not cell or not self.inside(path := base / cell, what, file, row):
            return ()
        try:
            if path.is_dir():
                found = [p for p in path.iterdir() if p.suffix.lower() in PICTURES and not p.name.startswith(".")]
                frames = tuple(sorted(found, key=lambda p: natural_key(p.name)))
                frames = tuple(p for p in frames if self.inside(p, what, file, row))
                for odd in (p for p in frames if not p.is_file()):  # a broken link, a folder, a pipe (which would be waited for)
                    self._missing(odd, what, "is no file", file, row)
                frames = tuple(p for p in frames if p.is_file())
                if not found:
                    self._missing(path, what, "is a folder without pictures", file, row)
                return frames
            if path.is_file():
                return (path,)
        except OSError as e:
            self._missing(path, what, f"cannot be looked up: {e.strerror}", file, row)
            return ()
        self._missing(path, what, "is not there", file, row)
        return ()

    def clip(self, base: Path, cell: str, what: str, file: Path | str, row: int) -> Path | None:
        """The clip `base/cell`; None with a warning when it is not there."""
        if not cell or not self.inside(path := base / cell, what, file, row):
            return None
        try:
            if path.is_file():
                return path
            self._missing(path, what, "is not there", file, row)
        except OSError as e:
            self._missing(path, what, f"cannot be looked up: {e.strerror}", file, row)
        return None

    def _missing(self, path: Path, what: str, why: str, file: Path | str, row: int) -> None:
        relative = os.path.relpath(path, self.folder)
        self.findings.warn("missing-media", f"{what} {_short(relative)} {why}", file, row)


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text):,} characters)"
