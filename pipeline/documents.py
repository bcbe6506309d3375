"""What a collection is made of: documents, read from JSONL or from a folder, and the chunks that they are cut into.

Products and places are documents too: what a row holds beyond the known keys becomes an attribute (price, area, latitude …).
Knows no index and opens no picture. Try: python -c "from pipeline.documents import *; print(*read(Path('docs'), Notes()), sep='\\n')"
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from models.errors import DataError

Value = str | float | bool
TEXTS = frozenset({".txt", ".md", ".html", ".htm"})
PICTURES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"})


@dataclass(frozen=True, slots=True)
class Document:
    """One document. `images` are files on this machine; `attributes` hold what applications filter by."""

    id: str
    title: str = ""
    text: str = ""
    images: tuple[Path, ...] = ()
    tags: tuple[str, ...] = ()
    url: str = ""
    source: str = ""
    date: str = ""
    attributes: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.id:
            raise DataError("a document without an id", remedy="give every document a non-empty id of its own")

    def __repr__(self) -> str:
        return f"Document({self.id!r}, {self.title[:40]!r}, {len(self.text)} characters, {len(self.images)} images)"


@dataclass
class Notes:
    """What readers and builders noticed and went on from, by kind, with the first few places."""

    counts: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, place: str) -> None:
        self.counts[kind] += 1
        self.places.setdefault(kind, [])
        if len(self.places[kind]) < 5:
            self.places[kind].append(place)

    def lines(self) -> list[str]:
        return [f"{count} {kind}: {', '.join(self.places[kind])}{' …' if count > 5 else ''}" for kind, count in self.counts.items()]


def read(path: Path, notes: Notes) -> Iterator[Document]:
    """Documents of a ``.jsonl`` file, of Encyclopedic-VQA's knowledge base (``.json``) or of a folder of texts and pictures.

    Raises DataError naming file and line. What can be mended is mended and counted in `notes` (broken UTF-8, missing pictures).
    """
    if path.is_dir():
        return _folder(path, notes)
    if not path.exists():
        raise DataError("no such file or folder", where=str(path), remedy="give a .jsonl, a knowledge base .json, or a folder of texts")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        remedy = f"known: {', '.join(READERS)}, or a folder"
        raise DataError(f"{path.suffix or 'no suffix'} is no known layout", where=str(path), remedy=remedy)
    return reader(path, notes)


def _jsonl(path: Path, notes: Notes) -> Iterator[Document]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.strip():
                continue
            where = f"{path}:{number}"
            try:
                row = json.loads(decode(raw, where, notes))
            except json.JSONDecodeError as error:
                raise DataError(f"is not JSON: {error.msg} at column {error.colno}", where=where, remedy="one object a line") from None
            yield from_row(row, path.parent, where, notes)


def from_row(row: object, folder: Path, where: str, notes: Notes) -> Document:
    """The document of one JSON object; pictures are looked for below `folder`. Raises DataError naming the key."""
    if not isinstance(row, dict) or not isinstance(row.get("id"), (str, int)) or isinstance(row.get("id"), bool) or row["id"] == "":
        raise DataError("needs an object with a non-empty id", where=where, remedy='{"id": "…", "title": "…", "text": "…"}')
    known: dict[str, Any] = {key: _text(row, key, where) for key in ("title", "text", "url", "source", "date")}
    if looks_like_html(known["text"]):
        known["text"] = strip_html(known["text"])
    images = tuple(found for name in _strings(row, "images", where) if (found := _picture(folder, name, where, notes)))
    attributes: dict[str, Value] = {}
    nested = row.get("attributes", {})
    if not isinstance(nested, dict):
        raise DataError(f"attributes is {type(nested).__name__}", where=where, remedy="give an object of names to values")
    rest = {key: value for key, value in row.items() if key not in (*known, "id", "images", "tags", "attributes")}
    for key, value in {**rest, **nested}.items():
        if value is None:
            continue
        if not isinstance(value, (str, int, float, bool)):
            raise DataError(f"{key} is {type(value).__name__}", where=where, remedy="attributes are texts, numbers or true/false")
        attributes[key] = value
    return Document(str(row["id"]), **known, images=images, tags=_strings(row, "tags", where), attributes=attributes)


def _folder(path: Path, notes: Notes) -> Iterator[Document]:
    """Every text file is a document (id: its path below the folder); a picture belongs to the text of the same stem, else to itself."""
    files = sorted(Path(top) / name for top, _, names in os.walk(path) for name in names if not name.startswith("."))
    texts = {file.with_suffix(""): file for file in files if file.suffix.lower() in TEXTS}
    pictures: dict[Path, list[Path]] = {}
    for file in files:
        if file.suffix.lower() in PICTURES:
            pictures.setdefault(file.with_suffix(""), []).append(file)
        elif file.suffix.lower() not in TEXTS:
            notes.add("files of another kind left out", file.name)
    for stem in sorted({*texts, *pictures}):
        images = tuple(pictures.get(stem, ()))
        file = texts.get(stem, images[0] if images else stem)
        body = decode(file.read_bytes(), str(file), notes) if stem in texts else ""
        if file.suffix.lower() in (".html", ".htm"):
            body = strip_html(body)
        head = next((line.strip("# \t") for line in body.splitlines() if line.strip()), "")
        title = head if 0 < len(head) <= 120 else stem.name
        yield Document(file.relative_to(path).as_posix(), title, body.strip(), images, source=path.name)


def decode(raw: bytes, where: str, notes: Notes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        notes.add("broken UTF-8 replaced", where)
        return raw.decode("utf-8", "replace")


def _text(row: Mapping[str, Any], key: str, where: str) -> str:
    value = row.get(key) or ""
    if not isinstance(value, str):
        raise DataError(f"{key} is {type(value).__name__}", where=where, remedy="give a text")
    return value.encode("utf-8", "replace").decode()  # a lone surrogate, legal in JSON, is no text


def _strings(row: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = row.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError(f"{key} is no list of texts", where=where, remedy=f'"{key}": ["…", "…"]')
    return tuple(value)


def _picture(folder: Path, name: str, where: str, notes: Notes) -> Path | None:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise DataError(f"image {name!r} leads out of the collection's folder", where=where, remedy="copy the picture into it")
    if not path.is_file():
        notes.add("missing pictures", f"{where} {name}")
        return None
    return path


class _Stripper(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.silent += tag in ("script", "style")
        if tag in ("p", "br", "div", "li", "tr", "h1", "h2", "h3", "h4", "td"):
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in ("script", "style") and self.silent > 0

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.parts.append(data)


def looks_like_html(text: str) -> bool:
    return bool(re.match(r"\s*<(!doctype html|html|head|body|div|p|article)\b", text, re.I))


def strip_html(text: str) -> str:
    """The visible text of a page; never raises."""
    stripper = _Stripper()
    stripper.feed(text)
    stripper.close()
    return re.sub(r"\n\s*\n+", "\n", re.sub(r"[ \t\r\f]+", " ", "".join(stripper.parts))).strip()


_UNIT = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+|_+")
_SENTENCE_END = re.compile(r"[.!?。！？]['\")\]]?\s|\n")


def chunks(text: str, size: int = 180, overlap: int = 30) -> Sequence[tuple[int, int]]:
    """Spans (start, end) of characters that cover `text`: at most `size` words (Han and Kana: characters), `overlap` of them shared.

    A chunk ends at a sentence's end where one lies in its last fifth. Empty text has no chunks.
    """
    if not 0 <= overlap < size:
        raise DataError(f"overlap {overlap} does not fit into chunks of {size}", remedy="0 ≤ overlap < size")
    units = [(found.start(), found.end()) for found in _UNIT.finditer(text)]
    if not units:
        return []
    spans: list[tuple[int, int]] = []
    first = 0
    while True:
        last = min(first + size, len(units))
        start, end = units[first][0], units[last][0] if last < len(units) else len(text)
        if last < len(units):
            early = units[last - max(1, size // 5)][1]
            ends = [found.end() for found in _SENTENCE_END.finditer(text, early, end)]
            if ends:
                end = ends[-1]
                while last - 1 > first and units[last - 1][0] >= end:
                    last -= 1
        spans.append((start, end))
        if last >= len(units):
            return spans
        first = max(last - overlap, first + 1)


def _evqa(path: Path, notes: Notes) -> Iterator[Document]:
    from pipeline.evqa_kb import read_kb

    return read_kb(path, notes)


READERS: Mapping[str, Callable[[Path, Notes], Iterator[Document]]] = {".jsonl": _jsonl, ".json": _evqa}
