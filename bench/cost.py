"""What a question costs: model time, calls, rounds, time per call, as mean ± sd (MH-MMKG, Table 18).

Times are those of the calls themselves, from the journal; calls that run side by side in batches include their waiting, so these are
costs of this run and no latencies (a latency is measured in a run of its own). Try: python -m bench report RUN
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.records import Record
from bench.stats import Spread, spread
from models.journal import Journal


@dataclass(frozen=True, slots=True)
class Cost:
    """Over the answered questions of one row; `per_call` is over calls."""

    seconds: Spread
    calls: Spread
    rounds: Spread
    per_call: Spread


def cost(records: Sequence[Record], times: Mapping[str, Sequence[float]]) -> Cost:
    """`times`: sample → seconds of each of its calls (`call_times`); without them a sample's calls count as equally long."""
    done = [record for record in records if record.ok]
    per_call: list[float] = []
    for record in done:
        known = times.get(record.key)
        per_call += known if known else [record.seconds / record.calls] * record.calls if record.calls else []
    return Cost(
        spread([record.seconds for record in done]),
        spread([float(record.calls) for record in done]),
        spread([float(record.rounds) for record in done if record.searched]),
        spread(per_call),
    )


def call_times(path: Path) -> dict[str, list[float]]:
    """Sample → seconds of each call that it made or shared, from a run's journal; {} where there is none."""
    if not path.is_file():
        return {}
    with Journal(path, writable=False) as journal:
        seconds = {record.key: record.seconds for record in journal.calls()}
        return _grouped((use.sample, seconds[use.key]) for use in journal.uses() if use.key in seconds)


def _grouped(pairs: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for sample, value in pairs:
        found.setdefault(sample, []).append(value)
    return found
