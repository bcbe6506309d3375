"""Building, growing and shrinking a collection: the next generation is made aside, flushed, renamed, and only then named current.

Killed at any instant, the collection is the old one or the new one; leftovers go at the next write. Documents that stay are not encoded
again. Try: python -m pipeline index build docs.jsonl my-collection
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import numpy as np

from models.errors import DataError
from pipeline import text_index
from pipeline.collection import LAYOUTS, VERSION, Card, Collection, generation
from pipeline.copies import DIMENSION, layouts
from pipeline.documents import Document, Notes, chunks
from pipeline.encoders import ImageEncoder, Nature, TextEncoder
from pipeline.files import only_writer, sha256, sync, sync_all
from pipeline.files import replace as replace_file
from pipeline.images import BadPicture, load
from pipeline.vectors import FLAT_LIMIT, Floats, Ints, write

_SCHEMA = """
CREATE TABLE documents (rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, text TEXT NOT NULL, images TEXT NOT NULL,
    tags TEXT NOT NULL, url TEXT NOT NULL, source TEXT NOT NULL, date TEXT NOT NULL, attributes TEXT NOT NULL);
CREATE TABLE chunks (rowid INTEGER PRIMARY KEY, document INTEGER NOT NULL, part INTEGER NOT NULL,
    start INTEGER NOT NULL, end INTEGER NOT NULL);
CREATE INDEX chunks_of ON chunks(document, part);
CREATE TABLE pictures (rowid INTEGER PRIMARY KEY, document INTEGER NOT NULL, path TEXT NOT NULL);
CREATE INDEX pictures_of ON pictures(document);
"""
_BATCH = 256


@dataclass(frozen=True)
class Tools:
    """What a build needs: the encoders (`image` None: pictures are not indexed) and how texts are cut; `copies`: layouts beside them."""

    text: TextEncoder
    image: ImageEncoder | None = None
    size: int = 180
    overlap: int = 30
    flat_limit: int = FLAT_LIMIT
    copies: bool = True


def build(folder: Path, documents: Iterable[Document], tools: Tools, notes: Notes | None = None) -> Card:
    """Make the collection anew from `documents`. Raises DataError for a duplicate id; an existing collection then stays as it was."""
    with only_writer(folder):
        return _write(folder, None, documents, frozenset(), tools, notes or Notes())


def add(folder: Path, documents: Iterable[Document], tools: Tools, notes: Notes | None = None) -> Card:
    """Add documents; one whose id is there takes its place (counted in `notes`). Raises DataError where there is none."""
    generation(folder)  # before the writer's lock would make the folder
    with only_writer(folder):
        old = Collection(folder, tools.text, tools.image)
        tools = replace(tools, size=old.card.size, overlap=old.card.overlap)
        return _write(folder, old, documents, frozenset(), tools, notes or Notes())


def remove(folder: Path, ids: Iterable[str], notes: Notes | None = None) -> Card:
    """Remove documents by id; needs no encoder. Raises DataError naming the ids that are not there, or when `folder` is no collection."""
    generation(folder)
    with only_writer(folder):
        old = Collection(folder)
        wanted = list(dict.fromkeys(ids))
        missing = [id_ for id_ in wanted if old.db.execute("SELECT 1 FROM documents WHERE id = ?", (id_,)).fetchone() is None]
        if missing:
            raise DataError(f"holds no document {', '.join(map(repr, missing[:5]))}", where=str(folder), remedy="nothing was removed")
        tools = Tools(_Known(old.card.text_encoder), None, old.card.size, old.card.overlap)
        return _write(folder, old, (), frozenset(wanted), tools, notes or Notes())


@dataclass(frozen=True)
class _Known:
    """The nature of an encoder that is not needed."""

    nature: Nature

    def encode(self, texts: Sequence[str]) -> Floats:
        raise AssertionError(f"{len(texts)} texts to encode without an encoder")


def _write(folder: Path, old: Collection | None, documents: Iterable[Document], gone: frozenset[str], tools: Tools, notes: Notes) -> Card:
    _sweep(folder)
    number = _latest(folder) + 1
    aside = folder / f".building-{os.getpid()}"
    aside.mkdir()
    try:
        card = _Builder(aside, old, tools, notes).run(documents, gone, number)
        replace_file(aside / "card.json", card.dump())
        sync_all(aside)
        target = folder / f"gen-{number:06d}"
        aside.rename(target)
        sync(folder)
        replace_file(folder / "current", target.name.encode())
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    _sweep(folder)
    return card


def _latest(folder: Path) -> int:
    return max((int(path.name[4:]) for path in folder.glob("gen-*") if path.name[4:].isdigit()), default=0)


def _sweep(folder: Path) -> None:
    """Remove generations that do not count and what killed builds left. Open readers keep their files."""
    current = generation(folder).name if (folder / "current").exists() else ""
    for path in folder.iterdir():
        if path.name.startswith(".building-") or (path.name.startswith("gen-") and path.name != current):
            shutil.rmtree(path, ignore_errors=True)


class _Builder:
    """One generation in the making, in `home`."""

    def __init__(self, home: Path, old: Collection | None, tools: Tools, notes: Notes) -> None:
        self.home, self.old, self.tools, self.notes = home, old, tools, notes
        if old is not None:
            shutil.copyfile(old.home / "documents.sqlite", home / "documents.sqlite")
        self.db = sqlite3.connect(home / "documents.sqlite")
        self.db.execute("PRAGMA journal_mode=OFF")  # the whole file is thrown away when the build fails
        self.db.execute("PRAGMA synchronous=OFF")
        if old is None:
            self.db.executescript(_SCHEMA)
            text_index.create(self.db)
        self.dead_chunks: set[int] = set()
        self.dead_pictures: set[int] = set()
        # Numbers of removed chunks are never given again within a generation: their vectors are told apart by number.
        self.first_chunk, self.first_picture = self._next("chunks"), self._next("pictures")
        self.chunk_numbers, self.picture_numbers = count(self.first_chunk), count(self.first_picture)
        self.seen: set[str] = set()
        self.spool = home / f"{LAYOUTS}.part"  # of new pictures: each is opened once, and memory does not grow with them

    def _next(self, table: str) -> int:
        return int(self.db.execute(f"SELECT coalesce(max(rowid), 0) + 1 FROM {table}").fetchone()[0])

    def run(self, documents: Iterable[Document], gone: frozenset[str], number: int) -> Card:
        for id_ in gone:
            self._drop(id_)
        for document in documents:
            self._take(document)
        self.db.commit()
        image = self.tools.image.nature if self.tools.image else (self.old.card.image_encoder if self.old else None)
        plans = {
            "text": write(self.home, "text", self.tools.text.nature.dimension, self._texts(), self.tools.flat_limit),
            "image": write(self.home, "image", image.dimension if image else 1, self._pictures(), self.tools.flat_limit),
        }
        if self.tools.copies if self.old is None else self.old.layouts is not None:
            plans[LAYOUTS] = write(self.home, LAYOUTS, DIMENSION, self._layouts(), self.tools.flat_limit)
        self.spool.unlink(missing_ok=True)
        self.db.commit()
        total, parts, pictures = (self._count(table) for table in ("documents", "chunks", "pictures"))
        self.db.close()
        return Card(
            version=VERSION,
            recipe=text_index.RECIPE,
            generation=number,
            documents=total,
            chunks=parts,
            pictures=pictures,
            size=self.tools.size,
            overlap=self.tools.overlap,
            text_encoder=self.tools.text.nature,
            image_encoder=image,
            plans={name: plan.reason for name, plan in plans.items()},
            files={p.name: (p.stat().st_size, sha256(p)) for p in sorted(self.home.iterdir())},
            notes=tuple(self.notes.lines()),
        )

    def _count(self, table: str) -> int:
        return int(self.db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def _drop(self, id_: str) -> bool:
        row = self.db.execute("SELECT rowid, title, text FROM documents WHERE id = ?", (id_,)).fetchone()
        if row is None:
            return False
        document, title, text = row
        parts = self.db.execute("SELECT rowid, start, end FROM chunks WHERE document = ?", (document,)).fetchall()
        text_index.remove(self.db, [(chunk, title, text[start:end]) for chunk, start, end in parts])
        self.dead_chunks.update(chunk for chunk, _, _ in parts)
        self.dead_pictures.update(p for (p,) in self.db.execute("SELECT rowid FROM pictures WHERE document = ?", (document,)))
        for table in ("chunks", "pictures"):
            self.db.execute(f"DELETE FROM {table} WHERE document = ?", (document,))
        self.db.execute("DELETE FROM documents WHERE rowid = ?", (document,))
        return True

    def _take(self, document: Document) -> None:
        if document.id in self.seen:
            raise DataError(f"two documents are called {document.id!r}", remedy="give every document an id of its own; nothing was changed")
        self.seen.add(document.id)
        if self._drop(document.id):
            self.notes.add("documents replaced", document.id)
        if not document.text.strip() and not document.title.strip() and not document.images:
            self.notes.add("empty documents left out", document.id)
            return
        text = document.text if document.text.strip() else document.title
        lists = [json.dumps([str(x) for x in xs], ensure_ascii=False) for xs in (document.images, document.tags)]
        facts = json.dumps(dict(document.attributes), ensure_ascii=False)
        row = (document.id, document.title, text, *lists, document.url, document.source, document.date, facts)
        columns = "id, title, text, images, tags, url, source, date, attributes"
        number = self.db.execute(f"INSERT INTO documents({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row).lastrowid
        for part, (start, end) in enumerate(chunks(text, self.tools.size, self.tools.overlap)):
            chunk = next(self.chunk_numbers)
            self.db.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?)", (chunk, number, part, start, end))
            text_index.add(self.db, [(chunk, document.title, text[start:end])])
        for path in document.images if self.tools.image is not None else ():
            self.db.execute("INSERT INTO pictures VALUES (?, ?, ?)", (next(self.picture_numbers), number, str(path)))

    def _texts(self) -> Iterator[tuple[Ints, Floats]]:
        """Vectors that stay, then those of new chunks; the title stands before each chunk."""
        if self.old is not None:
            yield from self.old.vectors.blocks(frozenset(self.dead_chunks))
        sql = (
            "SELECT c.rowid, d.title, substr(d.text, c.start + 1, c.end - c.start), c.part FROM chunks c JOIN documents d"
            " ON d.rowid = c.document WHERE c.rowid >= ? ORDER BY c.rowid"
        )
        cursor = self.db.execute(sql, (self.first_chunk,))
        while rows := cursor.fetchmany(_BATCH):
            texts = [text if text.startswith(title) else f"{title}. {text}" for _, title, text, _ in rows]
            yield np.array([row[0] for row in rows], np.int64), self.tools.text.encode(texts)

    def _pictures(self) -> Iterator[tuple[Ints, Floats]]:
        """Vectors that stay, then those of new pictures; what cannot be opened is counted and left out."""
        if self.old is not None and self.old.card.pictures:
            yield from self.old.picture_vectors.blocks(frozenset(self.dead_pictures))
        if self.tools.image is None:
            return
        sql = "SELECT rowid, path FROM pictures WHERE rowid >= ? ORDER BY rowid"
        rows = self.db.execute(sql, (self.first_picture,)).fetchall()
        for at in range(0, len(rows), 32):
            ids, opened = [], []
            for row, path in rows[at : at + 32]:
                try:
                    opened.append(load(Path(path), 512))
                    ids.append(row)
                except BadPicture as error:
                    self.notes.add("pictures that cannot be opened", str(error))
                    self.db.execute("DELETE FROM pictures WHERE rowid = ?", (row,))
            with self.spool.open("ab") as file:
                np.save(file, np.array(ids, np.int64))
                np.save(file, layouts(opened))
            yield np.array(ids, np.int64), self.tools.image.encode(opened)

    def _layouts(self) -> Iterator[tuple[Ints, Floats]]:
        """Layouts that stay, then those of new pictures."""
        if self.old is not None and self.old.layouts is not None and self.old.card.pictures:
            yield from self.old.layouts.blocks(frozenset(self.dead_pictures))
        if self.spool.exists():
            with self.spool.open("rb") as file:
                while file.tell() < self.spool.stat().st_size:
                    yield np.load(file), np.load(file)
