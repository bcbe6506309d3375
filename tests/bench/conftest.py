"""A small data set in the plain layout, with real pictures, and engines that answer from its gold routes: for tests only."""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest
from PIL import Image

from kg.dataset import Question
from models.engines import Workload
from models.errors import CallFailed
from models.requests import Completion, Request

CARD = """
name = "Pond"
persona = "You know every fish."
root_kind = "fish"
action_kind = "move"
phase_kind = "state"
subject = "fish"
tasks = ["Facts", "Moves", "Follow-ups"]

[kinds]
fish = "a fish"
move = "what a fish does"
state = "a state of a fish"
"""
ENTITIES = [
    ("p", "Pike", "", "fish", "", "", "a long fish"),
    ("c", "Carp", "", "fish", "", "", "a round fish"),
    ("ps", "Hungry", "Pike", "state", "", "", "it has not eaten"),
    ("p1", "Dart", "Pike", "move", "dart.png", "It shoots forward.", ""),
    ("p2", "Roll", "Pike", "move", "roll.png", "It turns around itself.", ""),
    ("p3", "Bite", "Pike", "move", "bite.png", "It shuts its jaws.", ""),
    ("c1", "Roll", "Carp", "move", "carp_roll.png", "It lies on its side.", ""),
]
RELATIONS = [
    ("p", "has state", "ps", ""),
    ("p", "does", "p1", ""),
    ("p", "does", "p2", "when tired"),
    ("ps", "does", "p3", ""),
    ("p1", "goes on with", "p3", ""),
    ("p", "feeds on", "c", ""),
    ("c", "does", "c1", ""),
]
QUESTIONS = [
    ("q1", "What does {} look like?", "Pike", "", "", "", "long", "Pike", "Facts"),
    ("q2", "What is {} doing?", "Pike", "{} is hungry.", "It shuts its jaws.", "bite.png", "Bite", "Pike>Hungry>Bite", "Moves"),
    ("q2", "What does {} do next?", "Pike", "", "It shoots forward.", "dart.png", "Bite", "Pike>Dart>Bite", "Follow-ups"),
    ("q4", "What do {} and its prey share?", "Pike", "", "It turns.", "roll.png", "Roll", "Pike>Roll;Pike>Carp>Roll", "Follow-ups"),
]


def write_pond(folder: Path, *, media: bool = True) -> Path:
    """The data set; its list uses one id for two questions."""
    folder.mkdir(parents=True)
    (folder / "dataset.toml").write_text(CARD)
    pictures = sorted({row[4] for row in ENTITIES if row[4]} | {row[5] for row in QUESTIONS if row[5]})
    for i, name in enumerate(pictures if media else []):
        Image.new("RGB", (64, 48), (40 * i, 90, 200 - 30 * i)).save(folder / name)
    shown = [(*row[:4], row[4] if media else "", *row[5:]) for row in ENTITIES]
    _sheet(folder / "entities.csv", "id name owner kind images caption info", shown)
    _sheet(folder / "relations.csv", "source relation target condition", RELATIONS)
    asked = [(*row[:5], row[5] if media else "", *row[6:]) for row in QUESTIONS]
    _sheet(folder / "questions.csv", "id text root extra perception images answer routes task", asked)
    return folder


def _sheet(path: Path, head: str, rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([head.split(), *rows])


# Prompts that a program can read: one field a line, walks as names joined by ">".
PROMPTS = {
    "perceiver": ("text", "perceiver\n§{question}\n{frames}", ["question"], ["frames"]),
    "captioner": ("text", "captioner\n§{entity}\n{frames}", ["entity"], ["frames"]),
    "topic": ("name", "topic\n§{question}\n§{options}", ["question", "options"], []),
    "expander": (
        "names",
        "expander\n§{question}\n§{caption}\n§{memory}\n§{neighbours}",
        ["question", "caption", "memory", "neighbours"],
        [],
    ),
    "validator": ("verdict", "validator\n§{question}\n§{caption}\n§{memory}\n§{info}", ["question", "caption", "memory", "info"], []),
    "validator_online": (
        "verdict; description",
        "validator_online\n§{question}\n§{caption}\n§{memory}\n{frames}",
        ["question", "caption", "memory"],
        ["frames"],
    ),
    "summarizer": ("text", "summarizer\n§{question}\n§{caption}\n§{knowledge}", ["question", "caption", "knowledge"], []),
    "answer": ("text", "answer\n§{question}\n§{caption}\n{frames}", ["question", "caption"], ["frames"]),
    "judge": ("verdict", "judge\n§{question}\n§{gold}\n§{predicted}", ["question", "gold", "predicted"], []),
    "caption_judge": ("verdict", "caption_judge\n§{gold}\n§{generated}", ["gold", "generated"], []),
}
STYLE = {
    "start": "{name}{caption}",
    "step": ">{name}{caption}",
    "info": "",
    "caption": "⟦{caption}⟧",
    "condition": "",
    "information": "",
    "neighbour": "{name}",
    "neighbour_join": "|",
    "option_join": "|",
    "walk": "{walk}",
    "walk_join": "|",
    "nothing": "nothing",
    "no_caption": "",
    "no_info": "",
    "neighbour_again": "",
}


def write_prompts(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, (reply, body, fields, images) in PROMPTS.items():
        text = json.dumps({"reply": reply, "body": body, "fields": fields, "images": images, "max_tokens": 64})
        (folder / f"{name}.yaml").write_text(text)
    (folder / "style.yaml").write_text(json.dumps(STYLE))
    return folder


@dataclass
class Scripted:
    """A batch engine whose replies a function makes; counts what it was asked."""

    reply: Callable[[Request], str | CallFailed]
    digest: str = "scripted"
    name: str = "scripted"
    can_constrain: frozenset[str] = frozenset()
    calls: Counter[str] = field(default_factory=Counter)
    requests: list[Request] = field(default_factory=list)
    before: Callable[[int], None] = lambda n: None

    def check(self, work: Workload) -> None:
        return

    def complete_batch(self, requests: Sequence[Request]) -> Iterator[tuple[int, Completion | CallFailed]]:
        for i, request in enumerate(requests):
            self.before(len(self.requests))
            self.requests.append(request)
            self.calls[request.text.split("\n", 1)[0]] += 1
            made = self.reply(request)
            yield i, made if isinstance(made, CallFailed) else Completion(made, seconds=0.5)


@dataclass(frozen=True)
class Oracle:
    """Replies from the gold routes; reads the prompts above."""

    questions: Sequence[Question]
    subject: str

    def __call__(self, request: Request) -> str:
        agent, *fields = [part.strip("\n") for part in request.text.split("\n§")]
        return str(getattr(self, agent)(*(re.sub(r"⟦.*?⟧", "", field, flags=re.S) for field in fields)))

    @cached_property
    def _by_wording(self) -> dict[str, list[Question]]:
        found: dict[str, list[Question]] = {}
        for q in self.questions:
            for text in {q.asked(self.subject), q.asked(self.subject, extra=False)}:
                found.setdefault(text, []).append(q)
        return found

    def _asked(self, question: str, caption: str) -> list[Question]:
        wording = self._by_wording.get(question, [])
        return [q for q in wording if q.perception.strip() == caption.strip()] or wording

    def topic(self, question: str, options: str) -> str:
        return self._asked(question, "")[0].root

    def expander(self, question: str, caption: str, memory: str, neighbours: str) -> str:
        walk = tuple(memory.split(">"))
        routes = [r for q in self._asked(question, caption) for r in q.routes if r[: len(walk)] == walk and len(r) > len(walk)]
        return "; ".join(dict.fromkeys(route[len(walk)] for route in routes)) or "None"

    def validator(self, question: str, caption: str, memory: str, info: str) -> str:
        """Sufficient at the end of a route, and not where a longer one goes on."""
        walk = tuple(memory.split(">"))
        routes = [route for q in self._asked(question, caption) for route in q.routes]
        return "Yes" if walk in routes and not any(r[: len(walk)] == walk and len(r) > len(walk) for r in routes) else "No"

    def validator_online(self, question: str, caption: str, memory: str) -> str:
        return f"{self.validator(question, caption, memory, '')}; seen at {memory}"

    def perceiver(self, question: str) -> str:
        return self._asked(question, "")[0].perception

    def captioner(self, entity: str) -> str:
        return f"offline {entity}"

    def summarizer(self, question: str, caption: str, knowledge: str) -> str:
        return self._asked(question, caption)[0].answer

    def answer(self, question: str, caption: str, frames: str = "") -> str:
        return "who knows"

    def judge(self, question: str, gold: str, predicted: str) -> str:
        return "Yes." if gold == predicted else "No"

    def caption_judge(self, gold: str, generated: str) -> str:
        return "No"


@pytest.fixture
def pond(tmp_path: Path) -> Path:
    return write_pond(tmp_path / "pond")


@pytest.fixture
def blind(tmp_path: Path) -> Path:
    """The same data set without a picture."""
    return write_pond(tmp_path / "blind", media=False)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return write_prompts(tmp_path / "prompts")


@pytest.fixture
def make_scripted() -> type[Scripted]:
    return Scripted


@pytest.fixture
def make_oracle() -> type[Oracle]:
    return Oracle


@pytest.fixture(scope="session")
def mh_bench() -> Path:
    folder = Path(os.environ.get("MH_BENCH", Path(__file__).parents[2] / ".." / "shared" / "mh_bench")).resolve()
    if not folder.is_dir():
        pytest.skip(f"no MH Benchmark at {folder}; set MH_BENCH")
    return folder
