"""From a reply to a value: names chosen from a list, a verdict, a description. Kind to form, strict in substance.

Case, quotes, full stops, full-width punctuation, Markdown and "Response:" prefixes are understood. A name that is not on the list
is dropped and counted, never guessed; a verdict is Yes or No as the verdict itself, anything else is None, "could not tell".
Try: python -c "from kg.replies import verdict; print(verdict('**Yes.**'))"
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kg.names import visible

_QUOTES = "\"'`‘’“”«»「」『』*_ \t"
_PREFIX = re.compile(
    r"^\s*(?:[*_#>\s]*)(?:your\s+|my\s+|the\s+)?['\"‘“]?(?:response|answer|reply|output|description)['\"’”]?(?:\s+is)?\s*[*_]*\s*[:：]\s*",
    re.I,
)
_BULLET = re.compile(r"^\s*(?:[-*•]\s+|\d+[.)]\s+)")
_THINK = re.compile(r"<think>.*?(?:</think>|\Z)", re.S)
_SEPARATORS = re.compile(r"([;；\n]+)")
_VERDICT = re.compile(r"^(yes|no)(?=$|[\s]*[.,;:!。，；：！\n—–-])", re.I)


@dataclass(frozen=True, slots=True)
class Names:
    """Names that an agent chose: `chosen` in the order of the reply, each once; `dropped` are the words that are on no list.

    `none` tells that the reply said "None" (or named nothing at all: then `dropped` is not empty or the reply was blank).
    """

    chosen: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    none: bool = False

    @property
    def unclear(self) -> bool:
        return not self.chosen and not self.none


@dataclass(frozen=True, slots=True)
class Verdict:
    """`value` is True for Yes, False for No, None when the reply is neither; `description` is what came with it."""

    value: bool | None
    description: str = ""


def clean(text: str) -> str:
    """The reply without reasoning tags, fences, label prefixes and surrounding quotes."""
    text = _THINK.sub("", text).strip()
    if text.startswith("```"):
        text = re.sub(r"^```[a-zA-Z]*\n?|\n?```$", "", text).strip()
    previous = None
    while previous != text:
        previous, text = text, _PREFIX.sub("", text, count=1).strip()
    if len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
        text = text.strip(_QUOTES)
    return text


def fold(name: str) -> str:
    """What two spellings of one name share: Unicode form, case, white space, surrounding quotes, a final stop; and what is not seen."""
    text = unicodedata.normalize("NFKC", visible(name)).strip(_QUOTES).rstrip(".。 ").strip(_QUOTES)
    text = re.sub(r"\s*([-'’,:;()])\s*", r"\1", text)
    return re.sub(r"\s+", " ", text).casefold()


def names(options: Sequence[str]) -> Callable[[str], Names]:
    """A parser for one or several of `options`, separated by ``;``, ``；`` or lines; an option may hold these itself."""
    return _names(tuple(options))


@lru_cache(maxsize=4096)  # sibling calls and all questions about one root share their list: thousands of calls wait with their parsers
def _names(options: tuple[str, ...]) -> Callable[[str], Names]:
    exact = set(options)
    folded: dict[str, list[str]] = {}
    for option in dict.fromkeys(options):
        folded.setdefault(fold(option), []).append(option)
    widest = max((len(_SEPARATORS.findall(option)) for option in options), default=0)

    def match(item: str) -> str | None:
        item = _BULLET.sub("", item).strip()
        bare = item.strip(_QUOTES).rstrip(".。").strip(_QUOTES)
        if bare in exact:
            return bare
        for key in (fold(item), fold(re.sub(r"\s*[(（][^()（）]*[)）]\s*\.?$", "", item))):
            found = folded.get(key, [])
            if len(found) == 1:
                return found[0]
        return None

    def pieces(text: str) -> Iterator[str]:
        """What stands between separators; together where only that is an option."""
        parts = _SEPARATORS.split(text)
        at = 0
        while at < len(parts):
            ends = range(min(at + 2 * widest, len(parts) - 1), at, -2)
            end = next((end for end in ends if match("".join(parts[at : end + 1])) is not None), at)
            yield "".join(parts[at : end + 1]).strip()
            at = end + 2

    def parse(reply: str) -> Names:
        chosen: dict[str, None] = {}
        dropped: list[str] = []
        said_none = False
        for item in filter(None, pieces(clean(reply))):
            found = match(item)
            if found is not None:
                chosen[found] = None
                continue
            if fold(item) in ("none", "no relevant neighbor entity", "no relevant neighbour"):
                said_none = True
                continue
            parts = [match(part) for part in re.split(r"[,，、]|\band\b", item) if part.strip()]
            if len(parts) > 1 and all(part is not None for part in parts):
                chosen.update((part, None) for part in parts if part is not None)
            else:
                dropped.append(item)
        return Names(tuple(chosen), tuple(dropped), said_none and not chosen)

    return parse


def name(options: Sequence[str]) -> Callable[[str], str | None]:
    """A parser for exactly one of `options`; None when the reply names none of them, or several."""
    parse_names = names(options)

    def parse(reply: str) -> str | None:
        found = parse_names(reply)
        return found.chosen[0] if len(found.chosen) == 1 and not found.dropped else None

    return parse


def verdict(reply: str) -> Verdict:
    """Yes or No as the verdict itself: ``yes.`` and ``**Yes**`` are; ``Yesterday``, ``Yes or no`` and "" are not."""
    text = clean(reply).lstrip(_QUOTES + "-–—")
    bare = re.sub(r"[*_`\"'‘’“”]+", "", text)
    found = _VERDICT.match(bare)
    if not found:
        return Verdict(None)
    value, rest = found[1].lower() == "yes", bare[found.end() :].lstrip(" .,;:!。，；：！\n—–-")
    again = _VERDICT.match(rest)
    if again and (again[1].lower() == "yes") != value:
        return Verdict(None)
    return Verdict(value)


def verdict_then_description(reply: str) -> Verdict:
    """``Yes; <description>`` (MH-MMKG, Table 11)."""
    text = clean(reply)
    head, *rest = re.split(r"[;；\n]", text, maxsplit=1)
    return Verdict(verdict(head).value, clean(rest[0]) if rest else "")


def description_then_verdict(reply: str) -> Verdict:
    """``<description>; Yes``: for models that look first and judge after."""
    text = clean(reply).rstrip()
    pieces = re.split(r"\s*[;；\n]\s*", text)
    last = pieces[-1]
    if len(pieces) == 1:
        alone = verdict(last)
        return alone if alone.value is not None else Verdict(None, text)
    return Verdict(verdict(last).value, clean(text[: text.rfind(last)].rstrip(" ;；\n")))


VERDICTS: Mapping[str, Callable[[str], Verdict]] = {
    "verdict": verdict,
    "verdict; description": verdict_then_description,
    "description; verdict": description_then_verdict,
}
SHAPES = ("text", "name", "names", *VERDICTS)
