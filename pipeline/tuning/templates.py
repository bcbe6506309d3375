"""A prompt as a template that a model may rewrite: what is fixed is taken out before and put back after, or the rewriting is refused.

Fixed are the system text, every slot ``{name}``, and the sentences that the prompt file names under `fixed` (policy, safety, the shape
of the reply). Knows no model. Try: python -m pytest tests/pipeline/test_tuning.py -k template
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from models.prompts import Prompt, escape_special

_SLOT = re.compile(r"\{([a-z_]+)\}")
_MARK = re.compile(r"\[\[(\d+)\]\]")
MAX_GROWTH = 3000  # characters that a template may gain: it is sent with every question


class Refused(Exception):
    """A rewriting that cannot be used; the text is a countable reason."""


@dataclass(frozen=True, slots=True)
class Template:
    """What the writer sees: the body with ``[[n]]`` for its n-th fixed sentence. Slots stay as they are."""

    prompt: Prompt
    text: str
    legend: tuple[str, ...]

    @staticmethod
    def of(prompt: Prompt) -> Template:
        text = prompt.body
        if _MARK.search(text):
            raise Refused("the template itself holds [[n]]")
        for number, sentence in enumerate(prompt.fixed, start=1):
            text = text.replace(sentence, f"[[{number}]]")
        return Template(prompt, text.rstrip("\n"), prompt.fixed)

    @property
    def told(self) -> str:
        """The fixed sentences by number, for the writer."""
        return "\n".join(f"[[{n}]] stands for: {text}" for n, text in enumerate(self.legend, start=1)) or "(none)"

    def read(self, reply: str) -> Prompt:
        """The prompt of a rewriting. Raises Refused: nothing in marks, a fixed part lost, doubled or invented, too long, unchanged."""
        body = _between(reply)
        marks = [int(n) for n in _MARK.findall(body)]
        if sorted(marks) != list(range(1, len(self.legend) + 1)):
            raise Refused("a fixed sentence was lost, doubled or invented")
        slots = set(_SLOT.findall(self.text))
        if set(_SLOT.findall(body)) != slots:
            raise Refused("a slot was lost or invented")
        if any(_SLOT.findall(body).count(slot) > _SLOT.findall(self.text).count(slot) for slot in slots):
            raise Refused("a slot was doubled")  # a picture or a long text shown twice costs its tokens twice
        if any(sentence in body for sentence in self.legend):
            raise Refused("a fixed sentence was lost, doubled or invented")
        if len(body) > len(self.text) + MAX_GROWTH:
            raise Refused("too long")
        body = escape_special(body)
        if body.split() == self.text.split():
            raise Refused("unchanged")
        for number, sentence in enumerate(self.legend, start=1):
            body = body.replace(f"[[{number}]]", sentence)
        # not model_copy: the prompt's own checks have to run
        return Prompt(**{**self.prompt.model_dump(), "fixed": self.prompt.fixed, "body": body + "\n"})


def _between(reply: str) -> str:
    """The text between <template> and </template>; the last pair, since a model that thinks aloud may name them before."""
    found = re.findall(r"<template>\s*(.*?)\s*</template>", reply, re.S)
    if not found or not found[-1].strip():
        raise Refused("no template in the reply")
    return str(found[-1])
