"""`python -m pipeline ask QUESTION --image x.png --collection DIR --model FOLDER`: the answer, its sources, and with --trace every stage.

Everything runs on this machine; a model is a folder (engine transformers) or an address on it (engine openai).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import tomllib
from pathlib import Path

from models.drivers import run
from models.engines import ENGINES, Engine, EngineSpec
from models.errors import ConfigError, ModelError
from models.journal import Journal
from pipeline.agents import Agents
from pipeline.applications import Application, EpisodeApplication, Places, Products, load_class, table
from pipeline.collection import Searchable
from pipeline.encoders import image_encoder, text_encoder
from pipeline.flow import ROWS, Answer, Category, Kit, Query, answer
from pipeline.images import prepare
from pipeline.index_cli import open_collection
from pipeline.relevance.classifier import SHIPPED, RelevanceClassifier
from pipeline.safety.head import TextFilter
from pipeline.safety.policy import Policy
from pipeline.tags import read_clicks
from pipeline.tools import application_engine, relevance_engine, screen_engine, search_engine, similar_engine


def add_parser(parent: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ask = parent.add_parser("ask", help="one question about pictures")
    ask.add_argument("question", nargs="?", default="")
    ask.add_argument("--image", type=Path, action="append", default=[], help="may be given several times")
    ask.add_argument("--collection", type=Path, action="append", default=[], help="may be given several times")
    ask.add_argument("--products", type=Path, help="a collection of products")
    ask.add_argument("--places", type=Path, help="a collection of places")
    ask.add_argument("--app", action="append", default=[], help="an application: module:Class, file.py:Class, or an entry point")
    ask.add_argument("--model", required=True, help="a folder, or the name that a server gives its model")
    ask.add_argument("--engine", default="transformers", help=", ".join(ENGINES))
    ask.add_argument("--url", action="append", default=[], help="of the server, for engine openai")
    ask.add_argument("--prompts", help="full, compact, or a folder")
    ask.add_argument("--row", default="full", help=", ".join(ROWS))
    ask.add_argument("--adapter", type=Path, default=SHIPPED if SHIPPED.exists() else None, help="of the relevance classifier")
    ask.add_argument("--policy", type=Path, help="JSONL of policy entries")
    ask.add_argument("--categories", type=Path, help="TOML: [[category]] name, description, response")
    ask.add_argument("--clicks", type=Path, help='JSONL click log of {"query", "document"}')
    ask.add_argument("--history", type=Path, help='JSONL of {"who", "text"}, oldest first')
    ask.add_argument("--journal", type=Path, help="keep the calls' journal here (default: forgotten at the end)")
    ask.add_argument("--cache", type=Path, default=Path(".cache/pictures"), help="prepared pictures")
    ask.add_argument("--trace", action="store_true", help="print each stage's input and output")
    ask.set_defaults(run=_ask)


def read_categories(path: Path) -> tuple[Category, ...]:
    """The safety categories of a TOML file. Raises ConfigError naming it."""
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("category", [])
        return tuple(Category(**{**row, "examples": tuple(row.get("examples", ()))}) for row in rows)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"holds no categories: {error}", where=str(path), remedy="[[category]] with name, description, response"
        ) from None


def backends(
    collections: list[Searchable], applications: dict[str, Application | EpisodeApplication], policy: Path | None, adapter: Path | None
) -> dict[str, Engine]:
    """The tools' engines by role; a chat model for ``perceiver``, ``agent`` and ``answer`` comes beside them."""
    image = image_encoder()
    plain = {name: application for name, application in applications.items() if isinstance(application, Application)}
    live = Policy(policy, text_encoder(), image) if policy is not None else None
    return {
        "search": search_engine(collections),
        "similar": similar_engine(collections),
        "relevance": relevance_engine(RelevanceClassifier(adapter=adapter)),
        "screen": screen_engine(TextFilter(text_encoder()), live),
        "application": application_engine(plain),
    }


def _ask(args: argparse.Namespace) -> int:
    if args.row not in ROWS:
        raise ConfigError(f"no row {args.row!r}", remedy=f"rows: {', '.join(ROWS)}")
    if args.engine not in ENGINES:
        raise ConfigError(f"no engine {args.engine!r}", remedy=f"engines: {', '.join(ENGINES)}")
    if not args.question.strip() and not args.image:
        raise ConfigError("neither a question nor an image", remedy="give one of them, or both")
    pictures = tuple(prepare(path, args.cache) for path in args.image)
    made: list[object] = [load_class(name)() for name in args.app]
    if args.products:
        made.append(Products(open_collection(args.products)))
    if args.places:
        made.append(Places(open_collection(args.places)))
    applications = table(made)
    collections: list[Searchable] = [open_collection(folder) for folder in args.collection]
    chat = ENGINES[args.engine](EngineSpec(args.engine, args.model, urls=tuple(args.url)))
    kit = Kit(
        Agents.load(args.prompts),
        applications,
        read_categories(args.categories) if args.categories else (),
        read_clicks(args.clicks) if args.clicks else {},
        ROWS[args.row],
    )
    roles = {**backends(collections, applications, args.policy, args.adapter), "perceiver": chat, "agent": chat, "answer": chat}
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
