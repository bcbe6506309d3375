"""The options of a suite over the CUE-M flow: those of `python -m bench run` that say which model and which judge, and what is asked over.

Knows no data set. Try: python -m bench evqa --help
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.config import RunConfig
from bench.config import add_arguments as add_run_options
from bench.config import from_arguments as run_options
from models.errors import ConfigError
from pipeline.flow import ROWS
from pipeline.settings import Settings, read_settings

# Options of the knowledge-graph benchmark that mean nothing here.
_OTHERS = """settings tasks k order visited paths max_rounds max_calls constrained keyframes max_frames max_side ask_name ask_extra captions
similarity"""


@dataclass(frozen=True)
class Options:
    """`config`: model, judge, run folder; `rows`: of pipeline.flow.ROWS; `settings`: collections, applications, filters."""

    config: RunConfig
    rows: tuple[str, ...]
    settings: Settings
    data: Path


def model_arguments(parser: argparse.ArgumentParser) -> None:
    """Only the options that say which model answers and how."""
    add_run_options(parser, skip=(*_OTHERS.split(), "data", "judge", "judge_endpoint", "limit", "runs", "name", "retry", "prompts"))


def add_arguments(parser: argparse.ArgumentParser, rows: str = "mllm,full") -> None:
    """Declares them; `rows` is the default of --rows."""
    add_run_options(parser, skip=(*_OTHERS.split(), "data"))
    parser.add_argument("--data", type=Path, required=True, help="the data set's folder, in its published layout")
    parser.add_argument("--rows", default=rows, help=f"comma-separated, of {', '.join(ROWS)} [{rows}]")
    parser.add_argument("--over", type=Path, help="YAML of what is asked over: see pipeline/settings.py (default: DATA/collection)")
    parser.add_argument("--collection", type=Path, action="append", default=[], help="a collection; may be given several times")


def from_arguments(arguments: argparse.Namespace) -> Options:
    """The options of a parsed command line. Raises ConfigError with every fault that can be seen before data is read."""
    rows = tuple(name.strip() for name in arguments.rows.split(",") if name.strip())
    unknown = [name for name in rows if name not in ROWS]
    if unknown or not rows or len(set(rows)) != len(rows):
        what = f"no row {unknown[0]!r}" if unknown else f"--rows {arguments.rows!r} names none, or one twice"
        raise ConfigError(what, remedy=f"rows: {', '.join(ROWS)}")
    data: Path = arguments.data
    settings = read_settings(arguments.over) if arguments.over else Settings()
    found = (*settings.collections, *arguments.collection)
    if not found and (data / "collection" / "current").exists():
        found = (data / "collection",)
    chosen = vars(arguments).copy()
    del chosen["data"]  # RunConfig's data is the knowledge-graph benchmark's
    return Options(run_options(argparse.Namespace(**chosen)), rows, settings.model_copy(update={"collections": found}), data)


def described(options: Options) -> dict[str, Any]:
    """For the manifest."""
    return {**options.config.model_dump(mode="json"), "data": str(options.data), "over": options.settings.model_dump(mode="json")}
