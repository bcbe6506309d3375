"""`python -m bench refine RAW OUT`: sorts a raw question set as CUE-M did: scores from 1 to 10 for four domains, then filters.

RAW is JSONL of {"id", "question", "images" or "image", "answer", "upvotes", "chosen"}. OUT gets what stays, with ``category`` and
``scores``; OUT.dropped.jsonl the rest, each row with its reason. The same command after a kill goes on.
Try: python -m bench refine --help
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.config import from_arguments
from bench.suites.flow import Engines
from bench.suites.judges import HOME
from bench.suites.options import model_arguments
from models.agents import Agent, Call, Episode, ask
from models.drivers import Outcome
from models.drivers import run as drive
from models.errors import ConfigError, DataError, StackError
from models.journal import Journal
from models.progress import progress
from models.prompts import Field, load_prompts
from pipeline.fences import Fence
from pipeline.files import replace
from pipeline.images import prepare
from pipeline.replies import find_object

DOMAINS = ("internal", "general", "shopping", "place")
NAMES = {"general": "web", "shopping": "shopping", "place": "place"}  # categories of what stays
MAX_QUESTION = 4000


@dataclass(frozen=True, slots=True)
class Rules:
    """`upvotes`: more than so many; `chosen`: the asker chose the answer; `image`: it has a picture; `least`: the top score needed."""

    upvotes: int = 2
    chosen: bool = True
    image: bool = True
    least: int = 5


def scores(reply: str) -> dict[str, int] | None:
    """The four scores of a reply; None when one is missing, no whole number or not from 1 to 10."""
    found = find_object(reply)
    if found is None:
        return None
    known = {str(key).casefold().split(" ")[0]: value for key, value in found.items()}
    known.setdefault("general", known.get("search"))
    out: dict[str, int] = {}
    for name in DOMAINS:
        value = known.get(name)
        if isinstance(value, str) and value.strip().isdigit():
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10:
            return None
        out[name] = value
    return out


def category(found: Mapping[str, int], least: int) -> str | None:
    """The domain with the highest score; None where "internal" leads or ties, where two others tie, or where none reaches `least`."""
    best = max(found.values())
    top = [name for name in DOMAINS if found[name] == best]
    return NAMES.get(top[0]) if len(top) == 1 and best >= least else None


def unfit(row: Mapping[str, Any], rules: Rules) -> str:
    """Why a row is left out before anybody is asked; "" when it stays."""
    votes = row.get("upvotes", 0)
    if rules.image and not pictures_of(row):
        return "no image"
    if rules.chosen and not row.get("chosen", False):
        return "no chosen answer"
    if isinstance(votes, bool) or not isinstance(votes, (int, float)) or votes <= rules.upvotes:
        return f"not more than {rules.upvotes} upvotes"
    return "" if str(row.get("question", "")).strip() and str(row.get("answer", "")).strip() else "no question or no answer"


def pictures_of(row: Mapping[str, Any]) -> list[str]:
    raw = row.get("images", row.get("image")) or []
    return [str(one) for one in (raw if isinstance(raw, list) else [raw])]


def read(path: Path) -> list[dict[str, Any]]:
    """The raw rows. Raises DataError naming the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path), remedy="give JSONL in UTF-8") from None
    rows: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            id_ = str(row["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"is no row with an id: {error!r}", where=f"{path}:{number}") from None
        if id_ in rows:
            raise DataError(f"the id {id_!r} comes twice", where=f"{path}:{number}")
        rows[id_] = row
    if not rows:
        raise DataError("holds no row", where=str(path))
    return list(rows.values())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("raw", type=Path, help="JSONL of raw questions")
    parser.add_argument("out", type=Path, help="JSONL of what stays; must not be there")
    parser.add_argument("--upvotes", type=int, default=2, help="more than so many [2]")
    parser.add_argument("--any-answer", action="store_true", help="also answers that the asker did not choose")
    parser.add_argument("--no-image", action="store_true", help="also questions without a picture")
    parser.add_argument("--least", type=int, default=5, help="the least top score, 1 to 10 [5]")
    model_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.least <= 10:
        raise ConfigError(f"--least {arguments.least}", remedy="give 1 to 10")
    if arguments.out.exists():
        raise ConfigError("is there already", where=str(arguments.out), remedy="give another name; nothing is overwritten")
    rules = Rules(arguments.upvotes, not arguments.any_answer, not arguments.no_image, arguments.least)
    config, rows = from_arguments(arguments), read(arguments.raw)
    reasons = {str(row["id"]): unfit(row, rules) for row in rows}
    asked = [row for row in rows if not reasons[str(row["id"])]]
    engines = Engines(config)
    found: dict[str, dict[str, int]] = {}

    def done(name: str, outcome: Outcome[dict[str, int] | None]) -> None:
        if outcome.value is None:
            reasons[name] = f"the call failed ({outcome.failure.reason})" if outcome.failure else "the reply held no four scores"
        else:
            found[name] = outcome.value
            reasons[name] = "" if category(outcome.value, rules.least) else "no domain of ours leads"

    try:
        with Journal(arguments.out.with_name(f"{arguments.out.name}.journal.sqlite")) as journal, progress("sort", len(asked)) as tell:
            episodes = _episodes(asked, arguments.raw.parent, engines.media, reasons)
            drive(
                episodes,
                {"judge": engines.of(config.backends["agent"])},
                journal,
                on_done=done,
                progress=lambda p: tell(p.done, ""),
                keep=False,
            )
    finally:
        engines.close()
    kept = [{**row, "scores": found[i], "category": category(found[i], rules.least)} for row in asked if not reasons[i := str(row["id"])]]
    left = [{**row, "scores": found.get(i), "reason": reasons[i]} for row in rows if reasons[i := str(row["id"])]]
    replace(arguments.out.with_name(f"{arguments.out.name}.dropped.jsonl"), _jsonl(left))
    replace(arguments.out, _jsonl(kept))
    counts = {"stay": dict(Counter(str(row["category"]) for row in kept)), "dropped": dict(Counter(str(row["reason"]) for row in left))}
    print(json.dumps({"rows": len(rows), "asked": len(asked), **counts}, ensure_ascii=False))
    return 0 if kept else 1


def _episodes(
    rows: list[dict[str, Any]], folder: Path, media: Path, reasons: dict[str, str]
) -> Iterator[tuple[str, Episode[dict[str, int] | None]]]:
    agent = Agent("domains", "judge", load_prompts(HOME / "full", ["domains"])["domains"])
    for row in rows:
        name = str(row["id"])
        try:
            pictures = tuple(prepare(folder / one, media) for one in pictures_of(row))
        except StackError as error:
            reasons[name] = f"its picture cannot be used: {error}"
            continue
        fields: dict[str, Field] = {"question": Fence()("question", str(row["question"])[:MAX_QUESTION]), "pictures": pictures}
        yield name, _one(agent.call(fields, scores))


def _one(call: Call[dict[str, int] | None]) -> Episode[dict[str, int] | None]:
    (reply,) = yield from ask([call])
    return reply


def _jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "replace")
