"""The agents of CUE-M as rows: name, role, prompt file; and the calls that they make. Tools (searches, screens, relevance) beside them.

A prompt set is a folder: "full" holds the paper's instructions in our own words, "compact" suits models of a few million parameters;
what a folder lacks comes from "full". Knows no flow. Try: python -m pytest tests/pipeline/test_agents.py
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from kg.replies import clean
from models.agents import Agent, Call
from models.errors import ConfigError
from models.prompts import Field, load_prompts
from models.requests import Decoding, Message, Part, Picture, Request
from pipeline import passages, replies
from pipeline.applications import Described, Intent
from pipeline.fences import Fence
from pipeline.passages import Passage
from pipeline.safety.verdicts import Verdict

HOME = Path(__file__).parent / "prompts"
R = TypeVar("R")

# agent → (the role that answers it, the shape of its reply)
TABLE: Mapping[str, tuple[str, str]] = {
    "describe": ("perceiver", "text"),
    "refine": ("agent", "intent"),
    "queries": ("agent", "queries"),
    "select": ("agent", "judgement"),
    "detect": ("agent", "judgement"),
    "answer": ("answer", "answer"),
}


class Style(BaseModel):
    """The wording of lists and of what is absent, and the marks around text of others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fence: Fence = Fence()
    passage: str = "[{number}] {title} ({source}) {text}"
    summary: str = "- {title}: {text}"
    turn: str = "{who}: {text}"
    join: str = "\n"
    no_question: str = "(no words, only the picture)"
    no_description: str = "(no picture)"
    no_passages: str = "(nothing was found)"
    no_history: str = "(none)"
    not_found: str = "The sources do not tell."
    max_question: int = 4000  # characters of a question, of a description, and of one passage in a prompt; what is cut is counted
    max_passage: int = 1200
    max_found: int = 10  # extracts that the refiner and the query generator read, and passages that the answer reads, at most
    max_given: int = 20


@dataclass(frozen=True)
class Agents:
    """All agents of one prompt set. `digest` changes with any byte of the set."""

    style: Style
    rows: Mapping[str, Agent]
    digest: str

    @classmethod
    def load(cls, prompts: str | Path | None = None) -> Agents:
        """The set "full" (default), "compact", or a folder. Raises ConfigError with every fault of every file at once."""
        folder = HOME / str(prompts or "full")
        if not folder.is_dir():
            folder = Path(prompts or "")
        if not prompts or not folder.is_dir():
            folder = HOME / "full" if not prompts else folder
        if not folder.is_dir():
            known = ", ".join(sorted(p.name for p in HOME.iterdir() if p.is_dir()))
            raise ConfigError(f"no prompt set {str(prompts)!r}", remedy=f"known sets: {known}; or give a folder")
        found = load_prompts(folder, list(TABLE), fallback=HOME / "full")
        for name, prompt in found.items():
            if prompt.reply != TABLE[name][1]:
                raise ConfigError(
                    f"reply: {prompt.reply!r} is no shape of {name}'s reply", where=str(folder), remedy=f"use {TABLE[name][1]!r}"
                )
        path = folder / "style.yaml"
        style = _style(path if path.exists() else HOME / "full" / "style.yaml")
        body = "\n".join([style.model_dump_json(), *(found[name].model_dump_json() for name in sorted(found))])
        rows = {name: Agent(name, TABLE[name][0], prompt) for name, prompt in found.items()}
        return cls(style, rows, hashlib.sha256(body.encode()).hexdigest())

    def describe(self, pictures: Sequence[Picture]) -> Call[str]:
        """The general description of the pictures."""
        return self._call("describe", clean, {"pictures": pictures})

    def refine(
        self, question: str, description: str, found: Sequence[tuple[str, str]], history: Sequence[tuple[str, str]]
    ) -> Call[replies.Refined]:
        """The structured intent and search query; `found` are (title, extract), `history` (who, text)."""
        return self._call("refine", replies.refined, {**self._said(question, description, history), "found": self.summaries(found)})

    def queries(self, intent: str, found: Sequence[tuple[str, str]], history: Sequence[tuple[str, str]]) -> Call[replies.Queries]:
        """None to three queries."""
        return self._call(
            "queries", replies.queries, {"intent": self.user(intent), "found": self.summaries(found), "history": self.turns(history)}
        )

    def select(self, application: Described, intent: str) -> Call[replies.Judgement]:
        """P(true): is this application, or safety category, the right one for the intent."""
        fields = {
            "intent": self.user(intent),
            "application": f"{application.name}: {application.description}",
            "examples": self._examples(application),
        }
        return self._probed("select", fields, application.name)

    def detect(self, intent: str, question: str) -> Call[replies.Judgement]:
        """P(safe): may the intent be served."""
        return self._probed("detect", {"intent": self.user(intent), "question": self.user(question)}, None)

    def answer(
        self,
        question: str,
        intent: str,
        description: str,
        given: Sequence[Passage],
        history: Sequence[tuple[str, str]],
        pictures: Sequence[Picture],
    ) -> Call[replies.Reply]:
        """The answer from numbered passages, or without any."""
        fields: dict[str, Field] = {
            **self._said(question, description, history),
            "intent": self.user(intent),
            "passages": self.numbered(given),
            "not_found": self.style.not_found,
            "pictures": pictures,
        }
        return self._call("answer", replies.answer(len(given), self.style.not_found), fields, whole=False)

    def user(self, text: str) -> str:
        return self.style.fence("user", text[: self.style.max_question])

    def numbered(self, given: Sequence[Passage]) -> str:
        """Passages, numbered from 1, each fenced for itself: none can speak for another."""
        if not given:
            return self.style.no_passages
        rows = []
        for number, passage in enumerate(given, start=1):
            told = self.style.fence("source", f"{passage.title}\n{passage.text}"[: self.style.max_passage])
            rows.append(_fill(self.style.passage, number=str(number), title="", source=passage.source, text=told))
        return self.style.join.join(rows)

    def summaries(self, found: Sequence[tuple[str, str]]) -> str:
        if not found:
            return self.style.no_passages
        return self.style.fence("sources", self.style.join.join(_fill(self.style.summary, title=t, text=x) for t, x in found))

    def turns(self, history: Sequence[tuple[str, str]]) -> str:
        if not history:
            return self.style.no_history
        return self.style.fence("chat", self.style.join.join(_fill(self.style.turn, who=who, text=text) for who, text in history))

    def _said(self, question: str, description: str, history: Sequence[tuple[str, str]]) -> dict[str, Field]:
        style = self.style
        return {
            "question": self.user(question) if question.strip() else style.no_question,
            "description": style.fence("picture", description[: style.max_question]) if description else style.no_description,
            "history": self.turns(history),
        }

    def _examples(self, application: Described) -> str:
        return self.style.join.join(f"- {example}" for example in application.examples) or "-"

    def _probed(self, name: str, fields: Mapping[str, Field], about: object) -> Call[replies.Judgement]:
        call = self._call(name, replies.judgement, fields, about=about)
        request = call.request.with_decoding(probe=("true", "false"))
        return Call(call.role, call.stage, request, replies.judgement, about=about, read=replies.judged)

    def _call(
        self, name: str, parse: Callable[[str], R], fields: Mapping[str, Field], *, about: object = None, whole: bool = False
    ) -> Call[R]:
        prompt = self.rows[name].prompt
        every = {key: fields[key] for key in (*prompt.fields, *prompt.images) if key in fields}
        return self.rows[name].call(every, parse, about=about, whole=whole)


def _fill(template: str, **values: str) -> str:
    """One pass: a value is never read again for slots."""
    pieces = [piece.partition("}") for piece in template.split("{")]
    return pieces[0][0] + "".join(values[name] + rest for name, _, rest in pieces[1:])


def _style(path: Path) -> Style:
    try:
        return Style.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except (OSError, yaml.YAMLError, ValidationError, TypeError) as error:
        raise ConfigError(f"is no style: {error}", where=str(path)) from None


def _tool(
    role: str, parts: Sequence[Part], parse: Callable[[str], R], options: Mapping[str, int] | None = None, about: object = None
) -> Call[R]:
    head = (Message("system", (json.dumps(options),)),) if options else ()
    return Call(role, role, Request((*head, Message("user", tuple(parts))), Decoding(max_tokens=1)), parse, about=about)


def search(queries: Sequence[str], k: int) -> Call[tuple[tuple[Passage, ...], ...]]:
    """Fused passages for each query, from all collections."""
    return _tool("search", tuple(queries), _lists, {"k": k})


def similar(pictures: Sequence[Picture], k: int) -> Call[tuple[tuple[Passage, ...], ...]]:
    """Documents with similar pictures, for each picture."""
    return _tool("similar", tuple(pictures), _lists, {"k": k})


def relevance(query: str, given: Sequence[Passage]) -> Call[tuple[float, ...]]:
    """P(relevant) of each passage."""
    texts = [p.text if not p.title or p.text.startswith(p.title) else f"{p.title}. {p.text}" for p in given]
    return _tool("relevance", (query, *texts), lambda text: tuple(json.loads(text)))


def screen(query: str, tags: Sequence[str], pictures: Sequence[Picture]) -> Call[tuple[Verdict, ...]]:
    """The cheap safety stages' verdicts."""
    return _tool("screen", (query, *tags, *pictures), lambda text: tuple(Verdict(**row) for row in json.loads(text)))


def application(name: str, intent: Intent) -> Call[tuple[Passage, ...]]:
    return _tool("application", (name, intent.dump(), *intent.pictures), passages.parse, about=name)


def _lists(text: str) -> tuple[tuple[Passage, ...], ...]:
    rows: list[Any] = json.loads(text)
    return tuple(passages.parse(json.dumps(row)) for row in rows)
