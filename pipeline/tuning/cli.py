"""`python -m pipeline tune STAGE --data labelled.jsonl --model FOLDER`: a better prompt for one stage, as a new prompt set.

The same command after a kill goes on; after the end it says where the set is. Nothing is ever overwritten.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, fields
from pathlib import Path

from models.engines import ENGINES, Engine, EngineSpec
from models.errors import ConfigError
from models.journal import Journal
from pipeline.agents import TABLE, Agents
from pipeline.files import sha256
from pipeline.tuning.rows import STAGES, read_rows
from pipeline.tuning.store import name_of, write_set
from pipeline.tuning.tuner import WRITER, Plan, split, tune


def add_parser(parent: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    made = parent.add_parser("tune", help="a better prompt for one stage, from labelled samples")
    made.add_argument("stage", help=", ".join(STAGES))
    made.add_argument("--data", type=Path, required=True, help="JSONL: what the stage is given, by name, and label")
    made.add_argument("--model", required=True, help="a folder, or the name that a server gives its model")
    made.add_argument("--engine", default="transformers", help=", ".join(ENGINES))
    made.add_argument("--url", action="append", default=[], help="of the server, for engine openai")
    made.add_argument("--writer", help="another model that rewrites the template (default: the same)")
    made.add_argument("--writer-url", action="append", default=[], help="of its server (default: --url)")
    made.add_argument("--prompts", help="the set to start from: full, compact, or a folder")
    made.add_argument("--out", type=Path, default=Path("prompts"), help="where the new set is made, in a folder of its own")
    made.add_argument("--work", type=Path, default=Path(".cache/tune"), help="what a killed tuning goes on from")
    for one in fields(Plan):
        made.add_argument(f"--{one.name}", type=type(one.default), default=one.default)
    made.set_defaults(run=_tune)


def _plan(args: argparse.Namespace) -> Plan:
    plan = Plan(**{one.name: getattr(args, one.name) for one in fields(Plan)})
    low = [name for name in ("rounds", "candidates", "shown", "patience") if getattr(plan, name) < 1]
    if low:
        raise ConfigError(f"--{low[0]} {getattr(plan, low[0])}", remedy="give 1 or more")
    if not 0 < plan.validation < 1 or not 0 <= plan.test < 1 or plan.validation + plan.test >= 1 or not 0 <= plan.temperature <= 10:
        raise ConfigError(
            f"--validation {plan.validation} --test {plan.test} --temperature {plan.temperature}",
            remedy="shares above 0 that leave something to learn from; a temperature from 0 to 10",
        )
    return plan


def _engine(args: argparse.Namespace, model: str, urls: list[str]) -> Engine:
    if args.engine not in ENGINES:
        raise ConfigError(f"no engine {args.engine!r}", remedy=f"engines: {', '.join(ENGINES)}")
    return ENGINES[args.engine](EngineSpec(args.engine, model, urls=tuple(urls)))


def _tune(args: argparse.Namespace) -> int:
    if args.stage not in STAGES:
        raise ConfigError(f"no stage {args.stage!r}", remedy=f"stages: {', '.join(STAGES)}")
    plan, agents = _plan(args), Agents.load(args.prompts)
    rows = read_rows(args.data, args.stage, args.work / "pictures")
    chat = _engine(args, args.model, args.url)
    writer = _engine(args, args.writer or args.model, args.writer_url or args.url) if args.writer or args.writer_url else chat
    data = sha256(args.data)
    depends = [args.stage, data, agents.digest, chat.digest, writer.digest, WRITER.read_text(encoding="utf-8"), plan]
    name = f"{args.stage}-{name_of(depends)}"
    target, work = args.out / name, args.work / name
    if target.exists():
        print(f"{target}: made before by this very command; nothing to do")
        return 0
    parts = split(rows, plan)
    work.mkdir(parents=True, exist_ok=True)
    with Journal(work / "journal.sqlite") as journal:
        backends = {TABLE[args.stage][0]: chat, "writer": writer}
        tuned = tune(args.stage, agents, parts, plan, backends, journal, lambda line: print(line, flush=True))
    for reason, count in tuned.refused.items():
        print(f"{count} rewritings refused: {reason}")
    if not tuned.best:
        print(f"no template was better than the one there is ({tuned.tried[0].score:.4f}); nothing was written")
        return 0
    facts = {
        "parent": str(args.prompts or "full"),
        "parent digest": agents.digest,
        "data": args.data.name,
        "data digest": data,
        "model": chat.name,
        "model digest": chat.digest,
        "writer": writer.name,
        "plan": asdict(plan),
        "train samples": len(parts.train),
        "validation samples": len(parts.validation),
        "test samples": len(parts.test),
    }
    write_set(target, args.stage, agents, tuned, facts)
    best = tuned.tried[tuned.best]
    said = {"set": str(target), "score": round(best.score, 4), "before": round(tuned.tried[0].score, 4)}
    if tuned.test_after is not None and tuned.test_before is not None:
        said |= {"untouched samples": round(tuned.test_after, 4), "untouched before": round(tuned.test_before, 4)}
    print(json.dumps(said, ensure_ascii=False))
    return 0
