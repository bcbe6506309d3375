"""The Cranfield collection (1,400 abstracts, 225 queries, graded judgements) in its published files, and rankings of it.

Grade 1 is the best of its authors' grades, so gains are 4 to 1 for grades 1 to 4; the judgements number the queries in file order.
Try: python -m pipeline relevance cranfield FOLDER
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.errors import DataError
from pipeline.documents import Document


@dataclass(frozen=True, slots=True)
class Judged:
    """Documents, queries in file order, and for each query document id → gain."""

    documents: tuple[Document, ...]
    queries: tuple[str, ...]
    gains: tuple[Mapping[str, float], ...]


def read(folder: Path) -> Judged:
    """Raises DataError when a file is missing or is not the collection's."""
    try:
        text = gzip.decompress((folder / "cran.all.1400.gz").read_bytes()).decode("utf-8", "replace")
        questions = (folder / "cran.qry").read_text(encoding="utf-8", errors="replace")
        judgements = (folder / "cranqrel").read_text(encoding="utf-8")
    except (OSError, EOFError) as error:
        raise DataError(
            f"cannot be read: {error}", where=str(folder), remedy="cran.all.1400.gz, cran.qry and cranqrel are needed"
        ) from None
    documents = tuple(_document(part) for part in _parts(text))
    queries = tuple(_field(part, "W") for part in _parts(questions))
    gains: list[dict[str, float]] = [{} for _ in queries]
    for number, line in enumerate(judgements.splitlines(), start=1):
        try:
            query, document, grade = (int(word) for word in line.split()[:3])
            if grade > 0:
                gains[query - 1][str(document)] = float(5 - grade)
        except (ValueError, IndexError):
            raise DataError(f"is no judgement: {line!r}", where=f"{folder / 'cranqrel'}:{number}") from None
    if not documents or not queries:
        raise DataError("holds no documents or no queries", where=str(folder))
    return Judged(documents, queries, tuple(gains))


def _parts(text: str) -> Sequence[str]:
    return re.split(r"^\.I ", text, flags=re.M)[1:]


def _document(part: str) -> Document:
    return Document(part.split(None, 1)[0], _field(part, "T"), _field(part, "W"))


def _field(part: str, letter: str) -> str:
    found = re.search(rf"^\.{letter}\n(.*?)(?=^\.[A-Z]\n|\Z)", part, re.S | re.M)
    return " ".join(found[1].split()) if found else ""
