"""BM25 over chunks, in SQLite FTS5: works for any script, grows and shrinks in place.

Words are stemmed (Porter; English only, other words pass). Scripts written without spaces, and Korean with its glued particles, are
cut into pairs of characters. Measured against FTS5's own unicode61 and trigram tokenizers in docs/pipeline.md. Knows no vectors.
Try: python -c "from pipeline.text_index import terms; print(terms('Running 서울에서'))"
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Sequence

RECIPE = "bigrams+porter/1"  # stands in the collection's card: another recipe cannot read the same table
MAX_TERMS = 200  # of a query; a question of 20,000 characters keeps its first ones
_PAIRED_RANGE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f"  # kana, Han, Hangul, Thai
_PIECE = re.compile(rf"[{_PAIRED_RANGE}]+|(?:(?![{_PAIRED_RANGE}])[^\W_])+")
_PAIRED = re.compile(f"[{_PAIRED_RANGE}]")


def terms(text: str) -> list[str]:
    """Index terms of a text, in order."""
    out: list[str] = []
    for piece in _PIECE.findall(unicodedata.normalize("NFKC", text).casefold()):
        if _PAIRED.match(piece) and len(piece) > 1:
            out.extend(piece[i : i + 2] for i in range(len(piece) - 1))
        else:
            out.append(piece)
    return out


def create(db: sqlite3.Connection) -> None:
    db.execute("CREATE VIRTUAL TABLE terms USING fts5(title, body, content='', tokenize=\"porter unicode61 remove_diacritics 2\")")


def add(db: sqlite3.Connection, rows: Iterable[tuple[int, str, str]]) -> None:
    """(chunk, title, text) each."""
    values = ((chunk, " ".join(terms(title)), " ".join(terms(text))) for chunk, title, text in rows)
    db.executemany("INSERT INTO terms(rowid, title, body) VALUES (?, ?, ?)", values)


def remove(db: sqlite3.Connection, rows: Iterable[tuple[int, str, str]]) -> None:
    """The same (chunk, title, text) as were added: the table keeps no text of its own."""
    values = (("delete", chunk, " ".join(terms(title)), " ".join(terms(text))) for chunk, title, text in rows)
    db.executemany("INSERT INTO terms(terms, rowid, title, body) VALUES (?, ?, ?, ?)", values)


def search(db: sqlite3.Connection, query: str, k: int, *, title_weight: float = 1.0) -> Sequence[tuple[int, float]]:
    """(chunk, BM25 score), best first, at most `k`; any of the query's terms may match. No terms, no hits."""
    words = list(dict.fromkeys(terms(query)))[:MAX_TERMS]
    if not words or k < 1:
        return []
    match = " OR ".join(f'"{word}"' for word in words)
    sql = "SELECT rowid, -bm25(terms, ?, 1.0) AS score FROM terms WHERE terms MATCH ? ORDER BY score DESC, rowid LIMIT ?"
    return [(int(chunk), float(score)) for chunk, score in db.execute(sql, (title_weight, match, k))]
