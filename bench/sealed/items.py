"""What goes into a bundle: files with their places over there, and the components that they belong to, with licence and use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from models.errors import ConfigError, DataError

Kind = Literal["project", "package", "weights", "model", "data", "files"]
GATED = ("weights", "model", "data", "files")  # kinds that are not carried without a licence


@dataclass(frozen=True)
class Component:
    """One thing with one licence.

    Attributes:
        licence: SPDX expression or name; empty when none was found. licence_from: where it was read.
        use: what it is for, in words; named when one of its files is damaged.
        facts: version-dependent extras for the manifest and the SBOM (a model's digest, a data set's digest).
    """

    kind: Kind
    name: str
    version: str
    licence: str
    licence_from: str
    use: str
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Unique in a bundle: two environments may hold two versions of one package."""
        return f"{self.kind}:{self.name}" + (f"@{self.version}" if self.kind in ("package", "weights") else "")


@dataclass(frozen=True)
class Item:
    """One file: where it will lie (relative, slashes), its contents (a file here, or bytes), and whether it is executable."""

    path: str
    source: Path | bytes
    component: str
    executable: bool = False

    @property
    def size(self) -> int:
        """Raises DataError for a file that is gone."""
        return len(self.source) if isinstance(self.source, bytes) else look(self.source).st_size


def look(source: Path) -> os.stat_result:
    """What the disk says of a file that is to be carried. Raises DataError."""
    try:
        return source.stat()
    except OSError as error:
        raise gone(source, error) from None


def gone(source: Path, error: OSError) -> DataError:
    """A file that was there when the list was made, and cannot be read now."""
    what = f"cannot be read any more: {error.strerror}"
    return DataError(what, where=str(source), remedy="was it removed, or its medium pulled out? run the same command again")


def apart(items: Sequence[Item], out: Path) -> None:
    """Raises ConfigError where the bundle would lie inside what it carries (the next one would carry the last), or the other way round."""
    real, sources = os.path.realpath(out), dict[str, list[str]]()
    for item in items:
        if isinstance(item.source, Path):
            sources.setdefault(item.component, []).append(os.path.realpath(item.source))
    for component, paths in sources.items():
        top, name = os.path.commonpath(paths), component.partition(":")[2]
        if Path(top).is_dir() and os.path.commonpath([real, top]) == top:
            raise ConfigError(f"OUT={out} lies inside {name}, which is carried", remedy="give a folder outside of what is carried")
        if inside := [path for path in paths if os.path.commonpath([real, path]) == real]:
            raise ConfigError(
                f"{inside[0]} is to be carried and lies inside OUT={out}", remedy="OUT holds the bundle alone: move that away"
            )


def nearest(folder: Path, called: str) -> Path:
    """What is there already of the way to a folder that is to be written. Raises ConfigError when it can never be one; writes nothing."""
    try:
        os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        raise ConfigError(f"{called}={str(folder)[:80]}: {getattr(error, 'strerror', error)}", remedy="give another folder") from None
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not there.is_dir():
        what = f"{called}={folder} is a file" if there == folder else f"{called}={folder}: {there} is no folder"
        raise ConfigError(what, remedy="give a folder")
    if not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"{called}={folder} cannot be written: {there} is read-only", remedy="write-protected? give another folder")
    return there
