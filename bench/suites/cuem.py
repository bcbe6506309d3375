"""SUITE=cuem: the six rows of CUE-M's ablation table on a question set: win rate against the bare model, and nearness to the reference.

Without options: the sample world (made on first use) and the embedded model. Your own: DATA/questions.jsonl (bench/cuem/data.py) and
--over or --collection. Try: python -m bench cuem --limit 12 --judge exact
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bench.cuem import sheets
from bench.cuem.data import QUESTIONS, read
from bench.cuem.entities import Entities, keep
from bench.cuem.prefer import Preference
from bench.cuem.sample import HOME, SETTINGS, sample_world
from bench.cuem.texts import folded, holds
from bench.cuem.wins import Comparer, compare
from bench.folder import RunFolder
from bench.records import Record, digest
from bench.suites.flow import Engines, Rules, run_flow
from bench.suites.options import Options, from_arguments
from bench.suites.options import add_arguments as add_options
from bench.workshop import CACHE, OpenEngine, open_engine
from models.journal import Journal
from pipeline.flow import ROWS


def correct(record: Record) -> bool:
    """By words: refused what must be, said "not found" where nothing is to be found, named all that the reference names."""
    blocked, must = bool(record.facts.get("blocked")), bool(record.facts.get("must block"))
    if blocked or must:
        return blocked and must
    names = record.facts.get("names", ())
    if record.facts.get("not found") or _nothing(record.gold_answer):
        return bool(record.facts.get("not found")) and _nothing(record.gold_answer)
    return all(holds(record.answer, name) for name in names) if names else folded(record.answer) == folded(record.gold_answer)


def _nothing(gold: str) -> bool:
    return folded(gold).strip(" .") == "not found"


def settled(record: Record) -> bool | None:
    """A judge is asked only where the reference names nothing and the words differ."""
    asked = not record.facts.get("names") and not record.facts.get("must block") and not record.facts.get("blocked")
    return (
        None
        if asked and not record.facts.get("not found") and not correct(record) and not _nothing(record.gold_answer)
        else correct(record)
    )


RULES = Rules("equivalent", correct, settled)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_world_options(parser, ",".join(ROWS))
    parser.add_argument("--ner", type=Path, help="a local spaCy model's folder: recall of the reference's named entities (extra ner)")


def add_world_options(parser: argparse.ArgumentParser, rows: str) -> None:
    """The suites' options, with the sample world where no data are named."""
    add_options(parser, rows)
    for action in parser._actions:
        if action.dest == "data":
            action.required, action.default = False, HOME
            action.help = f"a folder with {QUESTIONS} [the sample world in {HOME}, made on first use]"


def world_options(arguments: argparse.Namespace) -> Options:
    """What these arguments ask for; draws the sample world where it is asked over, and takes the settings that lie beside a set."""
    if Path(arguments.data) == HOME:
        sample_world(HOME, tell=lambda text: print(f"sample world: {text}", file=sys.stderr))
    if arguments.over is None and not arguments.collection and (Path(arguments.data) / SETTINGS).is_file():
        arguments.over = Path(arguments.data) / SETTINGS
    return from_arguments(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Predict, judge, compare, report; 1 when no question was answered."""
    from_arguments(arguments)  # its faults, before a world is drawn
    model = Entities(arguments.ner).opened() if arguments.ner is not None else None
    folder = carry_out(world_options(arguments))
    if model is not None:
        keep(folder, model)
    report(folder)
    return 0 if any(record.ok for record in folder.records().values()) else 1


def carry_out(options: Options, factory: OpenEngine = open_engine, cache: Path = CACHE) -> RunFolder:
    """Predicts, judges and compares what is left of this run."""
    folder = run_flow("cuem", options, read(options.data), RULES, factory=factory, cache=cache)
    engines = Engines(options.config, factory, cache / "pictures", folder.path)
    try:
        with Journal(folder.journal) as journal:
            compare(folder, make_comparer(options, engines), journal)
    finally:
        engines.close()
    return folder


def make_comparer(options: Options, engines: Engines) -> Comparer:
    """The judge of the options, as one that compares."""
    config = options.config
    backend = config.judge_backend
    if backend is None:
        return Comparer("exact", digest("prefer exact 1"))
    wording = Preference.load("compact" if config.prompt_set == "compact" else "full")
    identity = digest("\n".join([engines.identity(backend), wording.digest]))
    return Comparer(backend.model, identity, config.judges_itself, lambda: engines.of(backend), wording)


def report(folder: RunFolder, judge: str | None = None) -> dict[str, Any]:
    return sheets.report(folder, judge)
