"""The agents of MH-MMKG section 4 as rows of data: name, role, prompt file; and the calls that they make.

A prompt set is a folder: one YAML file per agent and a style.yaml. "full" holds the paper's instructions in our own words,
"compact" suits models of a few million parameters, and any other folder may replace all or some of the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kg import replies
from kg.dataset import Card
from kg.graph import Edge, Entity, Graph, Walk
from kg.knowledge import Captions, Style, load_style
from models.agents import Agent, Call
from models.errors import ConfigError
from models.prompts import Field, Prompt, load_prompts
from models.requests import Picture

HOME = Path(__file__).parent / "prompts"
R = TypeVar("R")

# agent → (the role that answers it, the shapes that its reply may have)
TABLE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "perceiver": ("perceiver", ("text",)),
    "captioner": ("captioner", ("text",)),
    "topic": ("topic", ("name",)),
    "expander": ("expander", ("names",)),
    "validator": ("validator", ("verdict",)),
    "validator_online": ("validator", ("verdict; description", "description; verdict")),
    "summarizer": ("summarizer", ("text",)),
    "answer": ("answer", ("text",)),
    "judge": ("judge", ("verdict",)),
    "caption_judge": ("judge", ("verdict",)),
}
CONSTANT = ("persona", "subject", "phase_rule", "action_rule")  # slots that the card fills, in every prompt
_ON_THE_WAY = ("question", "caption", "entity", "memory", "walk", "info")
# agent → the text slots that its calls fill; and the agents that are shown `{frames}`
SLOTS: Mapping[str, tuple[str, ...]] = {
    "perceiver": ("question",),
    "captioner": ("entity",),
    "topic": ("question", "options"),
    "expander": ("question", "caption", "memory", "entity", "neighbours"),
    "validator": _ON_THE_WAY,
    "validator_online": _ON_THE_WAY,
    "summarizer": ("question", "caption", "knowledge"),
    "answer": ("question", "caption"),
    "judge": ("question", "gold", "predicted"),
    "caption_judge": ("gold", "generated"),
}
SIGHTED = frozenset({"perceiver", "captioner", "topic", "validator_online", "summarizer", "answer"})
Pictures = Sequence[Picture]
Fields = Mapping[str, Field]


@dataclass(frozen=True, slots=True)
class Scene:
    """What is asked and what is to be seen, as text; an empty caption means that nothing was put into words."""

    question: str
    caption: str

    def fields(self, style: Style) -> dict[str, Field]:
        return {"question": self.question, "caption": self.caption or style.no_caption}


@dataclass(frozen=True)
class Agents:
    """All agents of one prompt set, for one data set's card. `digest` changes with any byte of the set."""

    card: Card
    style: Style
    rows: Mapping[str, Agent]
    digest: str

    @classmethod
    def load(cls, card: Card, prompts: str | Path | None = None) -> Agents:
        """The set "full" (default), "compact", or a folder. What a folder lacks comes from "full".

        Raises ConfigError with every fault of every file at once.
        """
        folder = HOME / str(prompts or "full")
        if not folder.is_dir():
            folder = Path(prompts or "")
        if not folder.is_dir():
            known = ", ".join(sorted(p.name for p in HOME.iterdir() if p.is_dir()))
            raise ConfigError(f"no prompt set {str(prompts)!r}", remedy=f"known sets: {known}; or give a folder")
        given = {path.stem for path in folder.glob("*.yaml")}
        if not given or given - {*TABLE, "style"}:
            what = f"holds files that are no agent's: {', '.join(sorted(given - {*TABLE, 'style'}))}" if given else "holds no prompt file"
            raise ConfigError(what, where=str(folder), remedy=f"files of a set are {', '.join(TABLE)} and style, each .yaml")
        found = load_prompts(folder, list(TABLE), fallback=HOME / "full")
        faults = [f"{folder / name}.yaml: {fault}" for name, prompt in found.items() for fault in _misfits(name, prompt)]
        if faults:
            raise ConfigError(" | ".join(faults), remedy="docs/prompts.md has the table of replies and slots")
        style = load_style(folder / "style.yaml" if "style" in given else HOME / "full" / "style.yaml")
        body = "\n".join([style.model_dump_json(), *(found[name].model_dump_json() for name in sorted(found)), card.persona])
        rows = {name: Agent(name, TABLE[name][0], prompt) for name, prompt in found.items()}
        return cls(card, style, rows, hashlib.sha256(body.encode()).hexdigest())

    def perceive(self, question: str, frames: Pictures) -> Call[str]:
        """P: the visual reference as text (Table 8)."""
        return self._call("perceiver", replies.clean, {"question": question, "frames": frames})

    def caption(self, entity: str, frames: Pictures) -> Call[str]:
        """The offline captioner: knows neither the question nor the search (Table 13)."""
        return self._call("captioner", replies.clean, {"entity": entity, "frames": frames})

    def select_topic(self, question: str, options: Sequence[str], frames: Pictures, *, constrained: bool = False) -> Call[str | None]:
        """L: the root of the search, one of `options`; None when the reply names none (Table 9)."""
        fields: Fields = {"question": question, "options": self.style.option_join.join(options), "frames": frames}
        return self._call("topic", replies.name(options), fields, choices=options if constrained else None)

    def expand(
        self, scene: Scene, graph: Graph, walk: Walk, edges: Sequence[Edge], captions: Captions, *, round: int, constrained: bool
    ) -> Call[replies.Names]:
        """W: which neighbours of the walk's end to visit next (equation 5, Table 10)."""
        options = list(dict.fromkeys(graph.entity(edge.target).name for edge in edges))
        fields: Fields = {
            **scene.fields(self.style),
            "memory": self.style.memory(graph, walk, captions),
            "entity": graph.entity(walk.end).name,
            "neighbours": self.style.neighbours(graph, edges),
        }
        pattern = names_pattern(options) if constrained else None
        return self._call("expander", replies.names(options), fields, round=round, pattern=pattern, about=walk)

    def validate(
        self, scene: Scene, graph: Graph, walk: Walk, captions: Captions, frames: Pictures, *, round: int, constrained: bool
    ) -> Call[replies.Verdict]:
        """U: is the walk to its end sufficient (equation 8, Table 11); with frames also their description (online)."""
        entity = graph.entity(walk.end)
        info, caption = self.style.attributes(entity, "" if frames else captions(entity))
        name = "validator_online" if frames else "validator"

        def unseen(one: Entity) -> str:
            return "" if frames and one is entity else captions(one)

        whole = "walk" in self.rows[name].prompt.fields  # a prompt has either the whole way, or the way and its end apart
        fields: Fields = {
            **scene.fields(self.style),
            "memory": "" if whole else self.style.memory(graph, walk, captions, with_end=False),
            "walk": self.style.memory(graph, walk, unseen) if whole else "",
            "entity": entity.name,
            "info": (info + caption).strip() or self.style.no_info,
            "frames": frames,
        }
        parse = replies.VERDICTS[self.rows[name].prompt.reply]
        choices = ("Yes", "No") if constrained and not frames else None
        return self._call(name, parse, fields, round=round, choices=choices, about=walk)

    def summarize(self, question: str, caption: str, knowledge: str, frames: Pictures) -> Call[str]:
        """The answer from retrieved knowledge (equation 11, Table 12)."""
        fields: Fields = {**Scene(question, caption).fields(self.style), "knowledge": knowledge, "frames": frames}
        return self._call("summarizer", replies.clean, fields)

    def answer(self, question: str, caption: str, frames: Pictures) -> Call[str]:
        """The answer without knowledge: vanilla from frames, vanilla+ from the caption."""
        return self._call("answer", replies.clean, {**Scene(question, caption).fields(self.style), "frames": frames})

    def judge_answer(self, question: str, gold: str, predicted: str) -> Call[replies.Verdict]:
        """Do two answers say the same (Table 14). A judge's reply that was cut is no reply."""
        return self._call("judge", replies.verdict, {"question": question, "gold": gold, "predicted": predicted}, whole=True)

    def judge_caption(self, gold: str, generated: str) -> Call[replies.Verdict]:
        """Do two descriptions show the same action (Table 15)."""
        return self._call("caption_judge", replies.verdict, {"gold": gold, "generated": generated}, whole=True)

    def _call(
        self,
        name: str,
        parse: Callable[[str], R],
        fields: Fields,
        *,
        round: int = 0,
        choices: Sequence[str] | None = None,
        pattern: str | None = None,
        about: object = None,
        whole: bool = False,
    ) -> Call[R]:
        every = {**self._constant(), **fields}
        return self.rows[name].call(every, parse, round=round, choices=choices, pattern=pattern, about=about, whole=whole)

    def _constant(self) -> Fields:
        """What every prompt may use: it comes from the card, so that no prompt names a game."""
        card = self.card
        phase, action = card.kinds.get(card.phase_kind, card.phase_kind), card.kinds.get(card.action_kind, card.action_kind)
        choose = "- Always choose a neighbour of this kind, unless it is clearly beside the point"
        return {
            "persona": card.persona,
            "subject": card.subject,
            "action_rule": f"{choose}: {action}.\n" if action else "",
            "phase_rule": f"- Of the neighbours that are of this kind, choose at most one: {phase}.\n" if phase else "",
        }


def _misfits(name: str, prompt: Prompt) -> Iterator[str]:
    """What an agent's prompt asks for that its calls do not bring: found here, and not by every sample for itself."""
    shapes, texts = TABLE[name][1], (*SLOTS[name], *CONSTANT)
    pictures = ("frames",) if name in SIGHTED else ()
    if prompt.reply not in shapes:
        yield f"reply: {prompt.reply!r} is no shape of the {name}'s reply: use {' or '.join(map(repr, shapes))}"
    for key, declared, filled in (("fields", prompt.fields, texts), ("images", prompt.images, pictures)):
        if unknown := sorted(set(declared) - set(filled)):
            yield f"{key}: nothing fills {{{'}, {'.join(unknown)}}} for the {name}; it has {', '.join(filled) or 'none'}"


def names_pattern(options: Sequence[str]) -> str:
    """A regular expression for None or a list of these names, for engines that can hold a reply to it."""
    escape = "|".join("".join("\\" + c if c in r"\.^$*+?{}[]|()/-" else c for c in option) for option in dict.fromkeys(options))
    return f"(None|({escape})(; ({escape}))*)"
