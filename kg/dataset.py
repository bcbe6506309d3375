"""What a data set is once it is loaded: a card, a graph, questions, and what the loader noticed.

Knows no file format; kg/load.py picks the reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kg.graph import Graph


@dataclass(frozen=True)
class Card:
    """dataset.toml: what a domain is called, so that nothing about one game stands in code.

    Attributes:
        name: the data set's title. persona: the sentence that opens every full prompt.
        root_kind: the kind of entity at which a search may start. kinds: kind → what it is.
        phase_kind: at most one entity of this kind is followed per expansion ("" for none).
        action_kind: entities of this kind are the ones that clips show ("" for none).
        tasks: sub-task names; a question's task is an index into them.
        subject: what one root is called in running text ("monster").
    """

    name: str
    persona: str
    root_kind: str
    kinds: Mapping[str, str]
    tasks: tuple[str, ...]
    phase_kind: str = ""
    action_kind: str = ""
    subject: str = "entity"

    def describes(self, kind: str) -> bool:
        """Whether media of entities of this kind are put into words: those of the action kind, or all when the card names none."""
        return not self.action_kind or kind == self.action_kind


@dataclass(frozen=True, slots=True)
class Question:
    """Q = (q, d, z) with its ground truth (MH-MMKG, sections 3.2 and 3.3).

    Attributes:
        id: as published; not unique. row: its number in the list, counted from 1 without the header; unique.
        text: q, with ``{}`` as the slot of the root's name. root: that name. extra: additional information z, same slot.
        perception: s, the human description of d ("" for pure text).
        images: chosen frames of d in natural order. video: its clip.
        answer: y. routes: I as lists of local names from the root. task: index into Card.tasks.
    """

    id: str
    row: int
    text: str
    root: str
    extra: str
    perception: str
    images: tuple[Path, ...]
    video: Path | None
    answer: str
    routes: tuple[tuple[str, ...], ...]
    task: int

    @property
    def has_media(self) -> bool:
        return bool(self.images) or self.video is not None

    @property
    def uid(self) -> str:
        """Unique and stable: row number and published id."""
        return f"{self.row:04d}:{self.id}"

    def asked(self, subject: str, *, name: bool = True, extra: bool = True) -> str:
        """The question as a model reads it: extra information first; without `name` the slot holds "the <subject>" (Table 17)."""
        who = self.root if name else f"the {subject}"
        text = fill(self.text, who)
        return f"{fill(self.extra, who)} {text}".strip() if extra and self.extra else text


def fill(text: str, who: str) -> str:
    """`text` with the name in its ``{}`` slots; the published lists leave out the space before a slot."""
    pieces = text.split("{}")
    out = pieces[0]
    for piece in pieces[1:]:
        out += ("" if not out or out[-1].isspace() or out[-1] in "(\"'" else " ") + who + piece
    return out.strip()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the linter noticed: errors stop a run, warnings are listed."""

    level: Literal["error", "warning"]
    code: str
    message: str
    file: str = ""
    row: int | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.row}" if self.row is not None else self.file
        return f"{self.level} {self.code} {place}: {self.message}" if place else f"{self.level} {self.code}: {self.message}"


@dataclass(frozen=True)
class Dataset:
    """A loaded data set. `digest` covers every sheet and the card, and the names, sizes and times of media."""

    folder: Path
    card: Card
    graph: Graph
    questions: tuple[Question, ...]
    digest: str
    findings: tuple[Finding, ...] = field(default=())
