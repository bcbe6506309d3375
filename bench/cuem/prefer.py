"""The pairwise judge: which of two answers helps more, given the reference. Asked in both orders by whoever compares.

Knows no flow and no run. Try: python -c "from bench.cuem.prefer import preference; print(preference('The second.'))"
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from models.agents import Agent, Call
from models.errors import ConfigError
from models.prompts import load_prompts
from pipeline.agents import Agents
from pipeline.fences import Fence

HOME = Path(__file__).parent / "prompts"
NAME = "prefer"
FIRST, SECOND, EQUAL, UNCLEAR = "first", "second", "equal", ""
_CITATION = re.compile(r"\s?\[[\d\s,]+\]")


def preference(reply: str) -> str:
    """FIRST, SECOND, EQUAL, or UNCLEAR where a reply names none of them, or two."""
    found = {word for word in re.findall(r"[a-z]+", reply.casefold()) if word in (FIRST, SECOND, EQUAL)}
    return found.pop() if len(found) == 1 else UNCLEAR


def bare(text: str) -> str:
    """An answer without its citations: they would tell the judge which side searched."""
    return _CITATION.sub("", text).strip()


@dataclass(frozen=True)
class Preference:
    """The judge's row of one prompt set; `digest` changes with any byte of it."""

    agent: Agent
    fence: Fence
    digest: str

    @classmethod
    @lru_cache(8)
    def load(cls, prompts: str | None = None) -> Preference:
        """The set "full" (default) or "compact", or a folder with a prefer.yaml; raises ConfigError."""
        folder = HOME / (prompts or "full")
        if not folder.is_dir():
            folder = Path(prompts or "") if prompts and (Path(prompts) / f"{NAME}.yaml").exists() else HOME / "full"
        prompt = load_prompts(folder, [NAME])[NAME]
        if prompt.reply != "preference":
            raise ConfigError(f"reply: {prompt.reply!r} is no shape of {NAME}'s reply", where=str(folder), remedy="use 'preference'")
        fence = Agents.load(prompts).style.fence
        digest = hashlib.sha256((prompt.model_dump_json() + fence.model_dump_json()).encode()).hexdigest()
        return cls(Agent(NAME, "judge", prompt), fence, digest)

    def call(self, question: str, gold: str, first: str, second: str) -> Call[str]:
        """One comparison in one order."""
        told = {"question": question, "gold": gold, "first": bare(first), "second": bare(second)}
        return self.agent.call({key: self.fence(key, text[:2000]) for key, text in told.items()}, preference)
