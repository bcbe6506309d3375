"""Image tags from similar pictures (CUE-M, appendix on tags), and short extracts of what was found. Functions; they know no index.

Three sources: queries after which users clicked a similar picture, keywords of the documents that hold similar pictures, and the tags
that a person gave to a very similar picture; one function ranks them all.
Try: python -m pytest tests/pipeline/test_tags.py
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.errors import DataError
from pipeline.passages import Passage
from pipeline.text_index import terms

CLICK, KEYWORD, OWN = 3.0, 1.0, 2.0  # weights of the three sources
SIMILAR = 0.60  # cosine below which a picture tells nothing
VERY_SIMILAR = 0.85  # above which its own tags count
_STOP_WORDS = """a an and are as at by for from how in into is it its of on or that the this to was were what when where which who with"""
_STOP = frozenset(_STOP_WORDS.split())
Clicks = Mapping[str, Mapping[str, int]]  # document → query → clicks


@dataclass(frozen=True, slots=True)
class Tag:
    """`origin` is ``clicks``, ``keywords`` or ``own``: the source that gave it most."""

    text: str
    score: float
    origin: str


def tags_of(similar: Sequence[Passage], clicks: Clicks, limit: int = 8) -> tuple[Tag, ...]:
    """Ranked tags of the pictures asked about; `similar` holds documents with similar pictures, scored by cosine."""
    votes: dict[str, dict[str, float]] = {}
    words: dict[str, str] = {}

    def vote(text: str, origin: str, weight: float) -> None:
        key = " ".join(terms(text))
        if key:
            words.setdefault(key, " ".join(text.split()))
            own = votes.setdefault(key, {})
            own[origin] = own.get(origin, 0.0) + weight

    for passage in similar:
        if passage.score < SIMILAR:
            continue
        for query, count in clicks.get(passage.document, {}).items():
            vote(query, "clicks", CLICK * passage.score * math.log1p(count))
        for word in keywords(passage):
            vote(word, "keywords", KEYWORD * passage.score)
        if passage.score >= VERY_SIMILAR:
            for tag in passage.tags:
                vote(tag, "own", OWN * passage.score)
    ranked = [Tag(words[key], sum(own.values()), max(own, key=lambda o: own[o])) for key, own in votes.items()]
    return tuple(sorted(ranked, key=lambda tag: -tag.score)[:limit])


def keywords(passage: Passage, limit: int = 4) -> list[str]:
    """The title, and the words that its text repeats most."""
    counts: dict[str, int] = {}
    for word in re.findall(r"[^\W\d_]{3,}", passage.text.casefold()):
        if word not in _STOP:
            counts[word] = counts.get(word, 0) + 1
    frequent = sorted((word for word, count in counts.items() if count > 1), key=lambda word: -counts[word])
    return [*([passage.title] if passage.title else []), *frequent[: limit - 1]]


def extract(passage: Passage, focus: str, limit: int = 300) -> str:
    """The sentences that share most words with `focus`, in their own order, at most `limit` characters."""
    wanted = set(terms(focus)) - _STOP
    sentences = [s.strip() for s in re.split(r"(?<=[.!?。！？])\s+|\n+| \. ", passage.text) if s.strip()]
    best = sorted(range(len(sentences)), key=lambda i: (-len(wanted & set(terms(sentences[i]))), i))
    chosen: list[int] = []
    for i in best:
        if not chosen or sum(len(sentences[j]) + 1 for j in chosen) + len(sentences[i]) <= limit:
            chosen.append(i)
    return " ".join(sentences[i] for i in sorted(chosen))[:limit]


def read_clicks(path: Path) -> Clicks:
    """A click log, JSONL of {"query", "document"}. Raises DataError naming the line."""
    out: dict[str, dict[str, int]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path)) from None
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            own = out.setdefault(str(row["document"]), {})
            own[str(row["query"])] = own.get(str(row["query"]), 0) + 1
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"needs query and document: {error!r}", where=f"{path}:{number}") from None
    return out
