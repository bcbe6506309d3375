"""What a suite's judge is asked: prompts beside this file, "full" and "compact". Knows no suite's data.

Try: cat bench/suites/prompts/full/equivalent.yaml
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kg.replies import Verdict, verdict
from models.agents import Agent, Call
from models.prompts import load_prompts

HOME = Path(__file__).parent / "prompts"


@dataclass(frozen=True)
class Wording:
    """The judge's prompt of one suite; obeys bench.score.Asking."""

    agent: Agent

    @staticmethod
    def load(name: str, prompts: str = "full") -> Wording:
        return Wording(Agent("judge", "judge", load_prompts(HOME / prompts, [name], HOME / "full")[name]))

    def judge_answer(self, question: str, gold: str, predicted: str) -> Call[Verdict]:
        """A prompt may leave out what it does not need."""
        fields = {"question": question, "gold": gold, "predicted": predicted}
        return self.agent.call({name: fields[name] for name in self.agent.prompt.fields}, verdict, whole=True)

    def judge_caption(self, gold: str, generated: str) -> Call[Verdict]:
        raise NotImplementedError("these suites judge no captions")
