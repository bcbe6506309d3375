"""Encyclopedic-VQA's knowledge base (one JSON object of several GB) as documents, read as a stream: one article in memory at a time.

Layout: wikipedia_url → {title, section_titles, section_texts, image_urls, image_reference_descriptions, image_section_indices, url}.
Pictures there are addresses, not files; their descriptions are kept as text. Try: python -m pipeline index build KB OUT
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from models.errors import DataError
from pipeline.documents import Document, Notes

_BLOCK = 1 << 20


def read_kb(path: Path, notes: Notes) -> Iterator[Document]:
    """One document an article; its id is the Wikipedia address. Raises DataError where the file is cut or has another layout."""
    for url, article in stream_object(path, notes):
        if not isinstance(article, dict) or not isinstance(article.get("section_texts"), list):
            what = "an article without section_texts"
            raise DataError(what, where=f"{path}: {url}", remedy="see the layout of encyclopedic_kb_wiki.json")
        titles = [str(t) for t in article.get("section_titles") or []]
        texts = [str(t) for t in article["section_texts"]]
        titles += [""] * (len(texts) - len(titles))
        body = [f"{title}\n{text}".strip() for title, text in zip(titles, texts, strict=False)]
        body += [str(t) for t in article.get("image_reference_descriptions") or [] if t]
        yield Document(url, str(article.get("title") or ""), "\n\n".join(filter(None, body)), url=url, source="wikipedia")


def stream_object(path: Path, notes: Notes) -> Iterator[tuple[str, Any]]:
    """(key, value) of a file that holds one JSON object, without reading it whole."""
    scan = json.JSONDecoder().raw_decode
    with path.open("rb") as file:
        text = _Text(file, path, notes)
        if text.peek() != "{":
            raise DataError("does not start with an object", where=str(path), remedy="encyclopedic_kb_wiki.json holds one object")
        text.take(1)
        while text.peek() != "}":
            key = text.value(scan)
            if not isinstance(key, str) or text.peek() != ":":
                raise DataError("an address and ':' were expected", where=text.place())
            text.take(1)
            text.peek()
            yield key, text.value(scan)
            if text.peek() == ",":
                text.take(1)
            elif text.peek() != "}":
                raise DataError("',' or '}' was expected", where=text.place())


class _Text:
    """A window over the file. `offset` counts characters before it, for messages."""

    def __init__(self, file: Any, path: Path, notes: Notes) -> None:
        self.file, self.path, self.notes = file, path, notes
        self.window, self.at, self.offset, self.ended = "", 0, 0, False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def place(self) -> str:
        return f"{self.path}, character {self.offset + self.at}"

    def more(self) -> None:
        raw = self.file.read(max(_BLOCK, len(self.window) - self.at))  # doubling keeps a long article linear
        self.ended = not raw
        new = self._decoder.decode(raw, final=self.ended)
        if "\ufffd" in new:
            self.notes.add("broken UTF-8 replaced", self.place())
        self.offset += self.at
        self.window, self.at = self.window[self.at :] + new, 0

    def peek(self) -> str:
        """The next character that is no space."""
        while True:
            while self.at < len(self.window) and self.window[self.at] in " \t\r\n\ufeff":
                self.at += 1
            if self.at < len(self.window):
                return self.window[self.at]
            if self.ended:
                raise DataError("the file ends inside the object", where=self.place(), remedy="it was cut: copy it again")
            self.more()

    def take(self, count: int) -> None:
        self.at += count

    def value(self, scan: Any) -> Any:
        while True:
            try:
                found, end = scan(self.window, self.at)
                if end < len(self.window) or self.ended:  # a number at the window's end may go on
                    self.at = end
                    return found
            except json.JSONDecodeError as error:
                if self.ended:
                    raise DataError(f"is cut or no JSON: {error.msg}", where=self.place(), remedy="copy the file again") from None
            self.more()
