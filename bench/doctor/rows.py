"""What a check is and what it says. Standard library only.

So is all of bench/doctor until a check runs: a broken library is found, not met. Try: python -m bench doctor
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from models.errors import UserError

State = Literal["ok", "warn", "fail", "unknown"]


@dataclass(frozen=True)
class Line:
    """One finding. `unknown` is "could not tell", which is neither good nor bad; every other state but ok has a remedy."""

    state: State
    what: str
    remedy: str = ""


@dataclass(frozen=True)
class Asked:
    """What the user wants to run here: `models` are folders or names, `gpus` a count (0: a CPU)."""

    models: tuple[str, ...] = ()
    data: tuple[Path, ...] = ()
    collections: tuple[Path, ...] = ()
    gpus: int = 0
    context: int | None = None


@dataclass(frozen=True)
class Check:
    """A row of the table. `seconds`: how long it may take before it counts as "could not tell"."""

    name: str
    group: str
    run: Callable[[Asked], Iterable[Line]]
    seconds: float = 30.0


def ok(what: str) -> Line:
    return Line("ok", what)


def warn(what: str, remedy: str) -> Line:
    return Line("warn", what, remedy)


def fail(what: str, remedy: str) -> Line:
    return Line("fail", what, remedy)


def unknown(what: str, remedy: str = "") -> Line:
    return Line("unknown", what, remedy)


def refused(error: UserError, remedy: str = "see the documentation in docs/") -> Line:
    """A mistake that some part of the project has found, as a line."""
    return fail(f"{error.where}: {error.what}" if error.where else error.what, error.remedy or remedy)
