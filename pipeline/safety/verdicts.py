"""What a safety stage says. Knows no stage.

Try: python -c "from pipeline.safety.verdicts import *; print(Verdict('text classifier', 0.97, 0.5, 'asks for malware'))"
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

REFUSAL = "I can't help with that."


@dataclass(frozen=True, slots=True)
class Verdict:
    """`score` (P(harmful) or a similarity) at or above `threshold` blocks; `response` is what the user then reads."""

    stage: str
    score: float
    threshold: float
    reason: str
    response: str = REFUSAL

    @property
    def blocks(self) -> bool:
        return self.score >= self.threshold

    def __str__(self) -> str:
        return f"{self.stage}: {self.score:.3f} {'≥' if self.blocks else '<'} {self.threshold:.3f} ({self.reason})"


def first_block(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The first verdict that blocks, None when all pass."""
    return next((verdict for verdict in verdicts if verdict.blocks), None)


def told(query: str, tags: Iterable[str]) -> str:
    """The query as the text stages read it: prefixed with the image's tags, for what stands only in the picture."""
    joined = ", ".join(tags)
    return f"{joined}. {query}".strip() if joined else query
