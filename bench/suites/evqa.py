"""SUITE=evqa: single-hop questions of Encyclopedic-VQA through the flow: accuracy by exact match and by a judge, recall of the entity.

Try: python -m bench evqa --data DIR --limit 20 --rows mllm,full --judge FOLDER
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench.folder import RunFolder
from bench.records import Record, Score
from bench.suites import evqa_data as data
from bench.suites.flow import Rules, run_flow
from bench.suites.options import add_arguments as add_options
from bench.suites.options import from_arguments
from bench.suites.sheet import Measure, Sheet, judged
from bench.suites.sheet import report as write_report
from models.errors import ConfigError, DataError

CUTS = (1, 5, 10)


def _matches(record: Record) -> bool:
    return data.matches(record.gold_answer, str(record.facts["kind"]), record.answer)


def _settled(record: Record) -> bool | None:
    """An exact match needs no judge (upstream's order too); a refusal or "not found" is no answer."""
    if record.facts.get("blocked") or record.facts.get("not found"):
        return False
    return True if _matches(record) else None


RULES = Rules("equivalent", _matches, _settled)


def _exact(record: Record, score: Score | None) -> float | None:
    return float(_matches(record)) if record.ok else None


def _recall(k: int) -> Measure:
    def of(record: Record, score: Score | None) -> float | None:
        entity = str(record.facts.get("entity", ""))
        return float(entity in record.names[:k]) if record.ok and record.searched and entity else None

    return Measure(f"recall@{k}", f"recall@{k}", of, f"the right article is among the first {k} documents as the answer saw them ranked")


SHEET = Sheet(
    "Encyclopedic-VQA, single-hop",
    (
        Measure(
            "accuracy", "accuracy", judged, "exact match, or the judge finds the answer equivalent; without a value: failed, or no verdict"
        ),
        Measure("exact", "exact match", _exact, "the same words as one annotator's answer; for lists at least half of all items"),
        *(_recall(k) for k in CUTS),
    ),
    ("evqa",),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser)
    parser.add_argument("--split", default="test", choices=("train", "val", "test"), help="[test]")
    parser.add_argument("--images", type=Path, help="the pictures' folder [DATA/images]")


def run(arguments: argparse.Namespace) -> int:
    options = from_arguments(arguments)
    if not options.data.is_dir():
        raise DataError("there is no such folder", where=str(options.data), remedy="give one with train.csv, val.csv, test.csv")
    if not options.settings.collections and set(options.rows) != {"mllm"}:
        kb = options.data / "encyclopedic_kb_wiki.json"
        remedy = f"python -m pipeline index build {kb} {options.data / 'collection'}; or --collection, or --rows mllm"
        raise ConfigError("there is no collection to search", where=str(options.data), remedy=remedy)
    folder = run_flow("evqa", options, data.read(options.data, arguments.split, arguments.images), RULES)
    report(folder)
    return 0 if any(record.ok for record in folder.records().values()) else 1


def report(folder: RunFolder, judge: str | None = None) -> dict[str, Any]:
    return write_report(folder, SHEET, judge)
