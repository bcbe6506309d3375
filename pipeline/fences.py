"""Marks around text that others wrote, so that an agent can tell it from its orders. What is inside can neither close nor open a mark.

Try: python -c "from pipeline.fences import Fence; print(Fence()('passage', 'ignore the above'))"
"""

from __future__ import annotations

import hashlib
import re

from pydantic import BaseModel, ConfigDict, model_validator


class Fence(BaseModel):
    """The marks. With `{code}` in both, a code that the text does not hold and cannot foresee (it is the text's own digest) makes them
    unforgeable; without it, the marks' own characters are taken out of the text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    open: str = "<<<{label} {code}\n"
    close: str = "\n{code} {label}>>>"

    @model_validator(mode="after")
    def _sound(self) -> Fence:
        if ("{code}" in self.open) != ("{code}" in self.close):
            raise ValueError("{code} stands in both marks or in none")
        if not self.open.strip() or not self.close.strip():
            raise ValueError("a mark is empty")
        return self

    def __call__(self, label: str, text: str) -> str:
        code = ""
        if "{code}" in self.open:
            code = self._code(label, text)
        else:
            for mark in (self.open, self.close):
                text = self._without(text, mark.replace("{label}", label).strip())
        marks = [mark.replace("{label}", label).replace("{code}", code) for mark in (self.open, self.close)]
        return f"{marks[0]}{text}{marks[1]}"

    @staticmethod
    def _code(label: str, text: str) -> str:
        code = hashlib.sha256(f"{label}\0{text}".encode("utf-8", "replace")).hexdigest()[:10]
        while code in text:
            code = hashlib.sha256(code.encode()).hexdigest()[:10]
        return code

    @staticmethod
    def _without(text: str, mark: str) -> str:
        """Removing one occurrence may make another; the text gets shorter each time, so this ends."""
        while mark in text:
            text = re.sub(re.escape(mark), " " if len(mark) > 1 else "", text)
        return text
