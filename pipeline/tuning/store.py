"""Where a tuning lies: a working folder that a killed one goes on from, and the prompt set that it makes, written once and never again.

Try: ls prompts/detect-*/
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from models.errors import RunError
from models.prompts import Prompt
from pipeline.agents import TABLE, Agents
from pipeline.files import sync, sync_all
from pipeline.tuning.tuner import Tuned


def name_of(parts: Sequence[object]) -> str:
    """Eight hex digits over all that a tuning depends on."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:8]


def write_set(target: Path, stage: str, agents: Agents, tuned: Tuned, facts: Mapping[str, Any]) -> Path:
    """A whole prompt set in `target`: the tuned prompt and, as they are, the others. Raises RunError when `target` is there.

    `facts` (data, model, plan …) and the scores of all templates tried stand in ``tuning.json``; the score and the parent also in the
    prompt file's first lines.
    """
    if target.exists():
        raise RunError("is there already, and a prompt set is never overwritten", where=str(target), remedy="give another --out")
    best, first = tuned.tried[tuned.best], tuned.tried[0]
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    aside.mkdir()
    try:
        for name in TABLE:
            head = ""
            prompt = agents.rows[name].prompt
            if name == stage:
                prompt = best.prompt
                head = f"# Tuned: {best.score:.4f} on {facts['validation samples']} samples; its parent had {first.score:.4f}.\n"
                head += f"# Parent: {facts['parent']} ({facts['parent digest'][:12]}). More in tuning.json.\n"
            (aside / f"{name}.yaml").write_text(head + dump(prompt), encoding="utf-8")
        (aside / "style.yaml").write_text(yaml.safe_dump(agents.style.model_dump(), allow_unicode=True), encoding="utf-8")
        tried = [{"round": t.round, "parent": t.parent, "score": t.score, "failed": t.failed, "body": t.prompt.body} for t in tuned.tried]
        scores = {"score": best.score, "parent score": first.score, "test": tuned.test_after, "parent test": tuned.test_before}
        told = {"stage": stage, **scores, **facts, "best": tuned.best, "tried": tried, "refused": dict(tuned.refused)}
        (aside / "tuning.json").write_text(json.dumps(told, ensure_ascii=False, indent=1), encoding="utf-8")
        sync_all(aside)
        try:
            aside.rename(target)
        except OSError as error:
            raise RunError(f"cannot be made: {error.strerror}", where=str(target), remedy="give another --out") from None
        sync(target.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


class _Block(yaml.SafeDumper):
    """Bodies as they are read: a block of lines."""


def _lines(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Block.add_representer(str, _lines)


def dump(prompt: Prompt) -> str:
    """A prompt file's text; what is read from it is the same prompt."""
    rows = {**prompt.model_dump(exclude={"name"}, exclude_defaults=True), "fixed": prompt.fixed}
    order = ("reply", "fields", "images", "max_tokens", "fixed", "system", "body")
    kept = {key: list(rows[key]) if isinstance(rows[key], tuple) else rows[key] for key in order if rows.get(key)}
    return yaml.dump(kept, Dumper=_Block, allow_unicode=True, sort_keys=False, width=10_000)
