"""A run as a Chrome trace (chrome://tracing, Perfetto): a track a question, a slice a call, arrows from a round to the next.

Source: the Trace Event Format, JSON object form: complete events ("X"), flow events ("s", "f"), counters ("C"), metadata ("M").
Try: python -m models profile --replay RUN ..., then open timeline.json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from models.errors import CallFailed
from models.journal import Record, Use
from models.metrics import Sample


def events(records: Sequence[Record], uses: Sequence[Use], samples: Sequence[Sample] = ()) -> list[dict[str, Any]]:
    """The trace's events. Times are microseconds from the first call; calls of one question that overlap get lanes of their own."""
    by_key = {record.key: record for record in sorted(records, key=lambda r: isinstance(r.result, CallFailed), reverse=True)}
    origin = min((record.started for record in records), default=0.0)
    found: list[dict[str, Any]] = []
    tracks: dict[str, list[Use]] = {}
    for use in uses:
        if use.key in by_key:
            tracks.setdefault(use.sample, []).append(use)
    arrows = 0
    for pid, (sample, made) in enumerate(tracks.items(), 1):
        found.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": f"question {sample}"}})
        lanes: list[float] = []
        steps: dict[int, list[dict[str, Any]]] = {}
        for use in sorted(made, key=lambda u: by_key[u.key].started):
            record = by_key[use.key]
            begin, length = (record.started - origin) * 1e6, record.seconds * 1e6
            lane = next((i for i, end in enumerate(lanes) if end <= begin), len(lanes))
            lanes[lane : lane + 1] = [begin + length]
            piece = {"ph": "X", "name": record.stage, "cat": record.role, "pid": pid, "tid": lane + 1, "ts": begin, "dur": length}
            found.append({**piece, "args": _about(record, use, sample)})
            steps.setdefault(use.step, []).append(piece)
        ordered = [steps[step] for step in sorted(steps)]
        for before, after in pairwise(ordered):
            last = max(before, key=lambda piece: piece["ts"] + piece["dur"])  # the one that the next round had to wait for
            for piece in after:
                arrows += 1
                flow = {"cat": "round", "name": "waits for", "id": arrows}
                end = last["ts"] + last["dur"]
                found.append({**flow, "ph": "s", "pid": pid, "tid": last["tid"], "ts": max(last["ts"], end - 1)})
                found.append({**flow, "ph": "f", "bp": "e", "pid": pid, "tid": piece["tid"], "ts": max(piece["ts"], end)})
    for sample_ in samples:
        for name, value in sample_.gauges.items():
            at = (sample_.at - origin) * 1e6
            found.append({"ph": "C", "name": name, "pid": 0, "tid": 0, "ts": at, "args": {name: value}})
        for gpu in sample_.gpus:
            at = (sample_.at - origin) * 1e6
            found.append({"ph": "C", "name": f"GPU {gpu.index}", "pid": 0, "tid": 0, "ts": at, "args": {"busy": gpu.busy}})
    if samples:
        found.append({"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "server"}})
    return found


def _about(record: Record, use: Use, sample: str) -> dict[str, Any]:
    about: dict[str, Any] = {"round": record.round, "step": use.step, "position": use.position, "key": record.key[:12]}
    if sample != record.sample:
        about["shared with"] = record.sample
    if isinstance(record.result, CallFailed):
        return {**about, "failed": record.result.reason}
    reply = record.result
    known = {"prompt tokens": reply.prompt_tokens, "cached": reply.cached_tokens, "output tokens": reply.output_tokens}
    return {**about, **{name: value for name, value in known.items() if value is not None}, "reply": reply.text[:200]}


def write(path: Path, records: Sequence[Record], uses: Sequence[Use], samples: Sequence[Sample] = ()) -> None:
    """The trace as one JSON file."""
    path.write_text(json.dumps({"traceEvents": events(records, uses, samples), "displayTimeUnit": "ms"}), encoding="utf-8")
