"""`python -m pipeline ask QUESTION --image x.png --collection DIR --model FOLDER`: the answer, its sources, and with --trace every stage.

Everything runs on this machine; a model is a folder (engine transformers) or an address on it (engine openai).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from models.drivers import run
from models.engines import ENGINES, EngineSpec
from models.errors import ConfigError, ModelError
from models.journal import Journal
from pipeline.agents import Agents
from pipeline.flow import ROWS, Answer, Query, answer
from pipeline.images import prepare
from pipeline.settings import CHAT, Equipment, Settings, Use, read_settings


def add_parser(parent: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ask = parent.add_parser("ask", help="one question about pictures")
    add_options(ask)
    ask.set_defaults(run=answer_question)


def add_options(ask: argparse.ArgumentParser, *, needs_model: bool = True) -> None:
    """The command's options; bench/ wraps it with a model and collections of its own."""
    ask.add_argument("question", nargs="?", default="")
    ask.add_argument("--image", type=Path, action="append", default=[], help="may be given several times")
    ask.add_argument("--collection", type=Path, action="append", default=[], help="may be given several times")
    ask.add_argument("--products", type=Path, help="a collection of products")
    ask.add_argument("--places", type=Path, help="a collection of places")
    ask.add_argument("--graph", type=Path, help="a data set folder of kg/: its retriever is asked as an application")
    ask.add_argument("--config", type=Path, help="a YAML file of collections, applications, policy, thresholds: see pipeline/settings.py")
    ask.add_argument("--app", action="append", default=[], help="an application: module:Class, file.py:Class, or an entry point")
    ask.add_argument("--model", required=needs_model, help="a folder, or the name that a server gives its model")
    ask.add_argument("--engine", default="transformers", help=", ".join(ENGINES))
    ask.add_argument("--url", action="append", default=[], help="of the server, for engine openai")
    ask.add_argument("--prompts", help="full, compact, or a folder")
    ask.add_argument("--row", default="full", help=", ".join(ROWS))
    ask.add_argument("--adapter", type=Path, help="of the relevance classifier (default: the shipped one)")
    ask.add_argument("--text-filter", help="head (default), none, or a local text classifier's folder")
    ask.add_argument("--image-filter", help="none (default), nudenet, or a local image classifier's folder")
    ask.add_argument("--policy", type=Path, help="JSONL of policy entries")
    ask.add_argument("--categories", type=Path, help="TOML: [[category]] name, description, response")
    ask.add_argument("--clicks", type=Path, help='JSONL click log of {"query", "document"}')
    ask.add_argument("--history", type=Path, help='JSONL of {"who", "text"}, oldest first')
    ask.add_argument("--journal", type=Path, help="keep the calls' journal here (default: forgotten at the end)")
    ask.add_argument("--cache", type=Path, default=Path(".cache/pictures"), help="prepared pictures")
    ask.add_argument("--trace", action="store_true", help="print each stage's input and output")


def answer_question(args: argparse.Namespace) -> int:
    """Answers and prints; 0. Raises UserError."""
    if args.row not in ROWS:
        raise ConfigError(f"no row {args.row!r}", remedy=f"rows: {', '.join(ROWS)}")
    if args.engine not in ENGINES:
        raise ConfigError(f"no engine {args.engine!r}", remedy=f"engines: {', '.join(ENGINES)}")
    if not args.question.strip() and not args.image:
        raise ConfigError("neither a question nor an image", remedy="give one of them, or both")
    pictures = tuple(prepare(path, args.cache) for path in args.image)
    equipment = Equipment(_settings(args))
    chat = ENGINES[args.engine](EngineSpec(args.engine, args.model, urls=tuple(args.url)))
    kit = equipment.kit(Agents.load(args.prompts), ROWS[args.row])
    roles = {**equipment.engines(), **dict.fromkeys(CHAT, chat)}
    query = Query(args.question, pictures, _history(args.history))
    with tempfile.TemporaryDirectory(prefix="ask-") as aside:
        path = args.journal or Path(aside) / "journal.sqlite"
        with Journal(path) as journal:
            outcome = run([("question", answer(query, kit))], roles, journal)["question"]
            times = [f"{r.stage} {r.seconds:.2f} s" for r in journal.calls()] if args.trace else []
    if outcome.failure is not None or outcome.value is None:
        raise ModelError(f"no answer: {outcome.failure}", remedy="see the reason; --journal keeps all calls")
    _print(outcome.value, times if args.trace else None)
    return 0


def _settings(args: argparse.Namespace) -> Settings:
    """The file's settings, and the flags, which win; lists of both are joined."""
    base = read_settings(args.config) if args.config else Settings()
    lists = {
        "collections": (*base.collections, *args.collection),
        "applications": (*base.applications, *(Use(use=name) for name in args.app)),
    }
    names = ("products", "places", "graph", "policy", "categories", "clicks", "adapter", "text_filter", "image_filter")
    return base.model_copy(update={**lists, **{name: value for name in names if (value := getattr(args, name)) is not None}})


def _history(path: Path | None) -> tuple[tuple[str, str], ...]:
    if path is None:
        return ()
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        return tuple((str(row["who"]), str(row["text"])) for row in rows)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"is no history: {error!r}", where=str(path), remedy='JSONL of {"who", "text"}') from None


def _print(made: Answer, times: list[str] | None) -> None:
    print(made.text)
    for number, passage in enumerate(made.sources, start=1):
        mark = "*" if number in made.cited else " "
        print(f"{mark}[{number}] {passage.source} {passage.id} {passage.title} {passage.url}".rstrip())
    if made.blocked is not None:
        print(f"blocked by {made.blocked}")
    if times is not None:
        print("\n".join(["", *made.trace.lines(), *times]))
