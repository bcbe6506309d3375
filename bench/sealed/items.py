"""What goes into a bundle: files with their places over there, and the components that they belong to, with licence and use."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

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
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size
