"""What the tiny model has to reach, as one table: the issue's figures by the name under which the evaluation reports them.

Knows no measurement. Try: python -c "from bench.tiny.targets import TARGETS; print(*TARGETS.items(), sep=chr(10))"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Target:
    """At least, or at most, so much."""

    bound: float
    most: bool = False

    def met(self, value: float) -> bool:
        """Whether a measured value reaches it, without regard to the interval around it."""
        return value <= self.bound if self.most else value >= self.bound

    def __str__(self) -> str:
        return f"{'≤' if self.most else '≥'} {self.bound:.10g}"


SKILLS: Final[Mapping[str, Target]] = {
    "perceiver/motion": Target(0.95),
    "perceiver/element": Target(0.95),
    "topic": Target(0.97),
    "expander": Target(0.93),
    "validator": Target(0.96),
    "judge": Target(0.95),
    "vanilla": Target(0.10, most=True),
    "vanilla+": Target(0.10, most=True),
}
# (setting, measure of bench/metrics.py)
END_TO_END: Final[Mapping[tuple[str, str], Target]] = {
    ("vanilla", "acc"): Target(0.10, most=True),
    ("vanilla+", "acc"): Target(0.10, most=True),
    ("knowledgeable", "acc"): Target(0.90),
    ("perceptive", "acc"): Target(0.80),
    ("unaided-offline", "acc"): Target(0.65),
    ("unaided-online", "acc"): Target(0.70),
    ("perceptive", "rec"): Target(0.90),
    ("perceptive", "pre"): Target(0.80),
}
QUESTIONS: Final = Target(500)
CALLS_A_SECOND: Final = Target(40)
BYTES: Final = Target(16e6, most=True)
PARAMETERS: Final = Target(8e6, most=True)


def verdict(target: Target | None, value: float | None) -> str:
    """``≥ 0.95, met``, ``≥ 0.95, missed``, or nothing where there is no target or no value."""
    if target is None or value is None:
        return ""
    return f"{target}, {'met' if target.met(value) else 'missed'}"
