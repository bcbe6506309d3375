"""A collection of documents on disk and its searches: BM25, dense, fused by reciprocal rank, and similar pictures.

A collection is a folder of generations; the file `current` names the one that counts. What writes one is pipeline/build.py. Opening
checks the recipe, the sizes of all files and, where an encoder is given, that it is the one that the collection was built with.
Knows no application. Try: python -m pipeline index search COLLECTION "a question"
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from PIL import Image

from models.errors import DataError
from pipeline import text_index
from pipeline.copies import with_copies
from pipeline.encoders import ImageEncoder, Nature, TextEncoder
from pipeline.files import sha256
from pipeline.passages import Passage, fuse
from pipeline.vectors import Vectors

VERSION = 1
DEPTH = 100  # of each list that is fused
LAYOUTS = "layout"  # pictures by layout, for copies; collections built before these existed have none
REBUILD = "build it again with `python -m pipeline index build`"


class Searchable(Protocol):
    """What the flow needs of a collection; an index server can stand behind it."""

    @property
    def name(self) -> str: ...
    @property
    def digest(self) -> str: ...
    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]: ...
    def similar(self, pictures: Sequence[Image.Image], k: int) -> list[list[Passage]]: ...


@dataclass(frozen=True)
class Card:
    """What a generation says of itself. `files` is name → (bytes, sha256)."""

    version: int
    recipe: str
    generation: int
    documents: int
    chunks: int
    pictures: int
    size: int
    overlap: int
    text_encoder: Nature
    image_encoder: Nature | None
    plans: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def dump(self) -> bytes:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False).encode()

    @staticmethod
    def load(path: Path) -> Card:
        try:
            row = json.loads(path.read_text(encoding="utf-8"))
            row["text_encoder"] = Nature(**row["text_encoder"])
            row["image_encoder"] = Nature(**row["image_encoder"]) if row["image_encoder"] else None
            row["files"] = {name: (int(size), str(digest)) for name, (size, digest) in row["files"].items()}
            return Card(**{**row, "notes": tuple(row["notes"])})
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"its card cannot be read: {error}", where=str(path.parent), remedy=REBUILD) from None


def generation(folder: Path) -> Path:
    """The generation that counts. Raises DataError when `folder` is no collection."""
    try:
        name = (folder / "current").read_text(encoding="utf-8").strip()
    except OSError:
        raise DataError("is no collection", where=str(folder), remedy="make one with `python -m pipeline index build`") from None
    path = folder / name
    if not name.startswith("gen-") or "/" in name or not path.is_dir():
        raise DataError(f"its current generation {name!r} is not there", where=str(folder), remedy=REBUILD)
    return path


class Collection:
    """An opened collection. Reading is safe while another process builds the next generation; this object keeps to its own."""

    def __init__(self, folder: Path, text: TextEncoder | None = None, image: ImageEncoder | None = None) -> None:
        self.folder, self.home = folder, generation(folder)
        self.card = Card.load(self.home / "card.json")
        if (self.card.version, self.card.recipe) != (VERSION, text_index.RECIPE):
            what = f"was built with recipe {self.card.recipe} (version {self.card.version})"
            raise DataError(what, where=str(folder), remedy=f"this program reads {text_index.RECIPE} (version {VERSION}): {REBUILD}")
        for name, (size, _) in self.card.files.items():
            found = (self.home / name).stat().st_size if (self.home / name).exists() else -1
            if found != size:
                raise DataError(f"{name} has {found} bytes, its card says {size}", where=str(folder), remedy=f"it is damaged: {REBUILD}")
        _same("text", folder, self.card.text_encoder, text)
        _same("image", folder, self.card.image_encoder, image)
        self._text, self._image = text, image
        self._local = threading.local()

    def __repr__(self) -> str:
        return f"Collection({self.name}, {self.card.documents} documents, {self.card.chunks} chunks, {self.card.pictures} pictures)"

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def digest(self) -> str:
        """Changes with any byte of the collection or its encoders."""
        return sha256(self.home / "card.json")

    @property
    def db(self) -> sqlite3.Connection:
        if not hasattr(self._local, "db"):
            self._local.db = sqlite3.connect(f"file:{self.home / 'documents.sqlite'}?mode=ro&immutable=1", uri=True)
        return self._local.db  # type: ignore[no-any-return]

    @cached_property
    def vectors(self) -> Vectors:
        return Vectors(self.home, "text")

    @cached_property
    def picture_vectors(self) -> Vectors:
        return Vectors(self.home, "image")

    @cached_property
    def layouts(self) -> Vectors | None:
        return Vectors(self.home, LAYOUTS) if LAYOUTS in self.card.plans else None

    def bm25(self, query: str, k: int) -> list[tuple[int, float]]:
        """(chunk, score), best first."""
        return list(text_index.search(self.db, query, k))

    def dense(self, queries: Sequence[str], k: int) -> list[list[tuple[int, float]]]:
        """(chunk, cosine), best first, for each query."""
        if self._text is None:
            raise DataError("was opened without a text encoder", where=str(self.folder), remedy="give the encoder to Collection()")
        return self.vectors.search(self._text.encode(list(queries)), k) if self.card.chunks else [[] for _ in queries]

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Fused passages for each query, at most `k`, one a document (its best chunk), best first."""
        depth = max(DEPTH, k)
        out = []
        for query, dense in zip(queries, self.dense(queries, depth), strict=True):
            lists = [self._best_chunks(hits) for hits in (self.bm25(query, depth), dense)]
            best = {document: chunk for found in reversed(lists) for document, chunk in found.items()}
            fused = fuse([list(found) for found in lists])[:k]
            out.append([self.passage(best[document], score) for document, score in fused])
        return out

    def _best_chunks(self, hits: Sequence[tuple[int, float]]) -> dict[int, int]:
        """document → its best chunk, in the order of the hits."""
        marks = ",".join("?" * len(hits))
        sql = f"SELECT rowid, document FROM chunks WHERE rowid IN ({marks})"
        owners = dict(self.db.execute(sql, [chunk for chunk, _ in hits]).fetchall())
        out: dict[int, int] = {}
        for chunk, _ in hits:
            if chunk in owners:
                out.setdefault(owners[chunk], chunk)
        return out

    def similar(self, pictures: Sequence[Image.Image], k: int) -> list[list[Passage]]:
        """Documents with the most similar pictures (score: the encoder's cosine, or the layouts' for a copy), at most `k` for each
        picture, one a document."""
        if not pictures or self._image is None or not self.card.pictures:
            return [[] for _ in pictures]
        lists = self.picture_vectors.search(self._image.encode(list(pictures)), 4 * k)
        if self.layouts is not None:
            lists = [with_copies(hits, picture, self.layouts, 4 * k) for hits, picture in zip(lists, pictures, strict=True)]
        return [self._of_pictures(hits, k) for hits in lists]

    def _of_pictures(self, hits: Sequence[tuple[int, float]], k: int) -> list[Passage]:
        out: dict[int, float] = {}
        for picture, score in hits:
            document = self._row("SELECT document FROM pictures WHERE rowid = ?", picture)[0]
            if len(out) < k:
                out.setdefault(document, score)
        return [self._document(document, score) for document, score in out.items()]

    def passage(self, chunk: int, score: float = 0.0) -> Passage:
        """The passage of a chunk."""
        document, part, start, end = self._row("SELECT document, part, start, end FROM chunks WHERE rowid = ?", chunk)
        return self._document(document, score, part, start, end)

    def _document(self, row: int, score: float, part: int = 0, start: int = 0, end: int | None = None) -> Passage:
        if end is None:
            first = self.db.execute("SELECT start, end FROM chunks WHERE document = ? AND part = 0", (row,)).fetchone()
            start, end = first or (0, 0)
        sql = "SELECT id, title, substr(text, ?, ?), images, tags, url, date, attributes FROM documents WHERE rowid = ?"
        id_, title, text, images, tags, url, date, attributes = self._row(sql, start + 1, end - start, row)
        lists = (tuple(json.loads(images)), tuple(json.loads(tags)))
        return Passage(f"{id_}#{part}", id_, self.name, title, text.strip(), score, url, date, *lists, json.loads(attributes))

    def _row(self, sql: str, *values: Any) -> Any:
        found = self.db.execute(sql, values).fetchone()
        if found is None:
            raise DataError("a search names a row that is not there", where=str(self.folder), remedy=f"it is damaged: {REBUILD}")
        return found

    def check(self) -> list[str]:
        """Every fault found by reading all bytes: digests, SQLite's own check, counts. Empty when sound."""
        faults = [
            f"{name}: its sha256 is not the card's" for name, (_, digest) in self.card.files.items() if sha256(self.home / name) != digest
        ]
        try:
            faults += [f"documents.sqlite: {row[0]}" for row in self.db.execute("PRAGMA integrity_check") if row[0] != "ok"]
            for table, due in (("documents", self.card.documents), ("chunks", self.card.chunks), ("pictures", self.card.pictures)):
                found = self._row(f"SELECT count(*) FROM {table}")[0]
                if found != due:
                    faults.append(f"documents.sqlite: {found} {table}, the card says {due}")
        except sqlite3.DatabaseError as error:
            faults.append(f"documents.sqlite: {error}")
        for name, due in (("vectors", self.card.chunks), ("picture_vectors", self.card.pictures)):
            if len(getattr(self, name)) != due:
                faults.append(f"{name}: {len(getattr(self, name))}, the card says {due}")
        if self.layouts is not None and len(self.layouts) != self.card.pictures:
            faults.append(f"layouts: {len(self.layouts)}, the card says {self.card.pictures} pictures")
        return faults


def _same(kind: str, folder: Path, built: Nature | None, given: TextEncoder | ImageEncoder | None) -> None:
    if given is None or built is None or given.nature == built:
        return
    what = f"was built with the {kind} encoder {built}, but {given.nature} is given"
    raise DataError(what, where=str(folder), remedy=f"open it with its own encoder, or {REBUILD}")
