"""From an agent's reply to a value: kind to form, strict in substance. Prose around JSON, fences, cut JSON and bare words are understood;
what names nothing known is counted, never guessed.

Try: python -c "from pipeline.replies import queries; print(queries('Sure! {\\"queries\\": [\\"a\\", \\"b'))"
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kg.replies import clean
from models.requests import Completion

MAX_QUERIES = 3
MAX_CHARS = 2000  # of an intent or a query: beyond it a reply is no query but an essay
_YES, _NO = frozenset({"true", "yes"}), frozenset({"false", "no"})


@dataclass(frozen=True, slots=True)
class Refined:
    """The structured intent. `unclear` tells that the reply held none, and the caller's own words have to do."""

    intent: str
    query: str
    unclear: bool = False


@dataclass(frozen=True, slots=True)
class Queries:
    """Up to three queries; `dropped` counts those beyond. `unclear`: the reply held nothing that could be read."""

    queries: tuple[str, ...]
    dropped: int = 0
    unclear: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """P(true), or None: could not tell. `measured` tells that it comes from the first token's probabilities, not from the word alone."""

    probability: float | None
    measured: bool = False


def find_object(text: str) -> Mapping[str, Any] | None:
    """The first JSON object in a reply, mended when it was cut; None when there is none."""
    text = clean(text)
    at = text.find("{")
    while at >= 0:
        for candidate in (text[at:], _mended(text[at:])):
            try:
                found, _ = json.JSONDecoder(strict=False).raw_decode(candidate)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                return found
        at = text.find("{", at + 1)
    return None


def _mended(text: str) -> str:
    """A cut object closed where it ends: an open string, then open brackets."""
    stack: list[str] = []
    quoted = escaped = False
    for character in text:
        if escaped:
            escaped = False
        elif quoted:
            escaped, quoted = character == "\\", character != '"'
        elif character == '"':
            quoted = True
        elif character in "{[":
            stack.append("}" if character == "{" else "]")
        elif character in "}]" and stack:
            stack.pop()
    body = (text[:-1] if escaped else text) + ('"' if quoted else "")
    body = re.sub(r'[,:]\s*$|,\s*"[^"]*"\s*$' if stack and stack[-1] == "}" else r",\s*$", "", body)
    return body + "".join(reversed(stack))


def _line(value: object) -> str:
    return " ".join(value.split())[:MAX_CHARS] if isinstance(value, str) else ""


def refined(reply: str) -> Refined:
    """``{"intent": …, "query": …}``, or a sentence (CUE-M's "You must search …"), whose part after "search" is the query."""
    found = find_object(reply)
    if found is not None:
        intent, query = _line(found.get("intent")), _line(found.get("query"))
        return Refined(intent or query, query or intent, not (intent or query))
    text = _line(clean(reply))
    if not text or "{" in text:
        return Refined("", "", True)
    after = re.search(r"\bsearch(?: for)?[:\s]+(.+)$", text, re.I)
    return Refined(text, after[1].strip(" .\"'") if after else text)


def queries(reply: str) -> Queries:
    """``{"queries": […]}``, a JSON list, or one query a line; "none" means that what is there suffices."""
    found = find_object(reply)
    raw = found.get("queries", found.get("query")) if found is not None else _list(clean(reply))
    if raw is None:
        return Queries((), unclear=True)
    items = raw if isinstance(raw, list) else [raw]
    texts = list(dict.fromkeys(_line(item) for item in items if _line(item)))
    if [text.casefold().strip(" .") for text in texts] == ["none"]:
        texts = []
    unclear = not texts and bool(items) and not all(item in ("", None) or _line(item).casefold().strip(" .") == "none" for item in items)
    return Queries(tuple(texts[:MAX_QUERIES]), max(0, len(texts) - MAX_QUERIES), unclear)


def _list(text: str) -> list[str] | None:
    try:
        found = json.loads(text)
        if isinstance(found, list):
            return [item for item in found if isinstance(item, str)]
    except (ValueError, RecursionError):
        pass
    if not text or "{" in text:
        return None
    return [re.sub(r"^\s*(?:[-*•]|\d+[.)])\s*", "", line).strip(" \"'") for line in re.split(r"[\n;]", text) if line.strip()]


def judgement(reply: str) -> Judgement:
    """true or false as a word, or as the value of the reply's JSON."""
    found = find_object(reply)
    value: object = next(iter(found.values()), None) if found is not None else clean(reply)
    if isinstance(value, bool):
        return Judgement(float(value))
    words = re.findall(r"[a-z]+", value.casefold()) if isinstance(value, str) else []
    head = words[0] if words else ""
    others = set(words[1:]) & (_YES | _NO)
    if head in _YES and not others & _NO:
        return Judgement(1.0)
    if head in _NO and not others & _YES:
        return Judgement(0.0)
    return Judgement(None)


def judged(completion: Completion) -> Judgement:
    """P(true) from the first token's probabilities where the engine gives them, else from the word."""
    probabilities = {word.strip().casefold(): p for word, p in completion.probs}
    yes = sum(p for word, p in probabilities.items() if word in _YES)
    no = sum(p for word, p in probabilities.items() if word in _NO)
    return Judgement(yes / (yes + no), True) if yes + no > 0.01 else judgement(completion.text)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer's text, the numbers of the sources that it cites, and how many citations of sources that were not given were cut."""

    text: str
    cited: tuple[int, ...]
    unknown: int
    not_found: bool


_CITATION = re.compile(r"\s?\[\s*(\d{1,3}(?:\s*,\s*\d{1,3})*)\s*\]")


def answer(given: int, not_found: str) -> Any:
    """A parser for answers over `given` numbered sources; `not_found` is the phrase for "the evidence does not hold it"."""

    def parse(reply: str) -> Reply:
        cited: dict[int, None] = {}
        unknown = 0

        def keep(found: re.Match[str]) -> str:
            nonlocal unknown
            numbers = [int(n) for n in re.split(r"\s*,\s*", found[1])]
            good = [n for n in numbers if 1 <= n <= given]
            unknown += len(numbers) - len(good)
            cited.update(dict.fromkeys(good))
            return f"{found[0][: len(found[0]) - len(found[0].lstrip())]}[{', '.join(map(str, good))}]" if good else ""

        text = _CITATION.sub(keep, clean(reply)).strip()
        return Reply(text, tuple(cited), unknown, not text or text.casefold().strip(" .") == not_found.casefold().strip(" ."))

    return parse
