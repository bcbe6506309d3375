"""What each stage of a question was given and gave, in order, and what was noticed on the way.

Try: python -m pipeline ask --help
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    stage: str
    given: Any
    gave: Any


@dataclass
class Trace:
    """Steps and notes of one question; times stand in the journal, which knows every call."""

    steps: list[Step] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def add(self, stage: str, given: Any, gave: Any) -> None:
        self.steps.append(Step(stage, given, gave))

    def note(self, kind: str, detail: str) -> None:
        """A fallback or an oddity: counted in reports by its kind."""
        self.notes.append((kind, detail))

    def lines(self, width: int = 400) -> list[str]:
        rows = [f"{step.stage}\n  in:  {_short(step.given, width)}\n  out: {_short(step.gave, width)}" for step in self.steps]
        return rows + [f"note: {kind}: {detail}" for kind, detail in self.notes]


def _short(value: Any, width: int) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= width else f"{text[: width - 1]}…"
