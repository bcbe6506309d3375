"""A collection on Milvus, for what outgrows one machine: the same documents, chunks, encoders and searches, the same commands.

A place is ``milvus:URI#NAME``: a cluster's address (``milvus:http://host:19530#docs``)
or a file of milvus-lite (``milvus:./lite.db#docs``). BM25 is Milvus's own over the terms of text_index, which any tokenizer leaves alone.
A build fills a new generation and then switches one row of the table `untamed_collections`; add and remove work in place, and a kill
leaves each document old or new. Try: python -m pipeline index build docs.jsonl milvus:./lite.db#docs
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from PIL import Image

from models.errors import DataError
from pipeline.collection import DEPTH, VERSION
from pipeline.documents import Document, Notes, chunks
from pipeline.encoders import ImageEncoder, TextEncoder
from pipeline.images import BadPicture, load
from pipeline.milvus_tables import (
    MAX_ID,
    TABLE,
    MilvusCard,
    Place,
    chunk_table,
    connect,
    delete_rows,
    documents_of,
    drop,
    key_of,
    known,
    known_ids,
    make,
    picture_table,
    place_of,
    switch,
    told,
)
from pipeline.passages import Passage, fuse
from pipeline.text_index import MAX_TERMS, RECIPE, terms

__all__ = ["MilvusCollection", "Place", "add", "build", "place_of", "remove"]
_MAX_BYTES, _BATCH = 60_000, 128


class MilvusCollection:
    """An opened collection; obeys pipeline.collection.Searchable. Raises ModelError without a server, DataError for the rest."""

    def __init__(self, place: Place, text: TextEncoder | None = None, image: ImageEncoder | None = None) -> None:
        self.place, self._text, self._image = place, text, image
        self.client = connect(place.uri)
        self.card = self._card()
        for kind, built, given in (("text", self.card.text_encoder, text), ("image", self.card.image_encoder, image)):
            if given is not None and built is not None and given.nature != built:
                what = f"was built with the {kind} encoder {built}, but {given.nature} is given"
                raise DataError(what, where=str(place), remedy="open it with its own encoder, or build it again")

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def digest(self) -> str:
        """Changes with every edit: asked of the server each time."""
        return hashlib.sha256(json.dumps([str(self.place), self._card().dump()], sort_keys=True).encode()).hexdigest()

    def _card(self) -> MilvusCard:
        with told(self.place):
            found = self.client.get(TABLE, ids=[self.place.name]) if self.client.has_collection(TABLE) else []
        if not found:
            raise DataError("is no collection", where=str(self.place), remedy="make one with `python -m pipeline index build`")
        card = MilvusCard.load(found[0]["card"], str(self.place))
        if (card.version, card.recipe) != (VERSION, RECIPE):
            what = f"was built with recipe {card.recipe} (version {card.version})"
            raise DataError(what, where=str(self.place), remedy=f"this program reads {RECIPE} (version {VERSION}): build it again")
        return card

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Fused passages for each query, at most `k`, one a document (its best chunk), best first."""
        if self._text is None:
            raise DataError("was opened without a text encoder", where=str(self.place))
        if not queries or k < 1:
            return [[] for _ in queries]
        depth, table = max(DEPTH, k), chunk_table(self.card)
        vectors = self._text.encode(list(queries)).tolist()
        bags = [_bag(list(dict.fromkeys(terms(query)))[:MAX_TERMS]) for query in queries]
        asked = [i for i, bag in enumerate(bags) if bag]
        fields = ["document", "text", "row"]
        with told(self.place):
            dense = self.client.search(table, data=vectors, anns_field="dense", limit=depth, output_fields=fields)
            hits = (
                self.client.search(table, data=[bags[i] for i in asked], anns_field="sparse", limit=depth, output_fields=fields)
                if asked
                else []
            )
        matching = [[hit for hit in found if float(hit["distance"])] for found in hits]  # 0: no term in common
        sparse = dict(zip(asked, matching, strict=True))
        out = []
        for i in range(len(queries)):
            lists = [_best(sparse.get(i, [])), _best(dense[i])]
            found = {**lists[1], **lists[0]}
            out.append([self._passage(found[document], score) for document, score in fuse([list(one) for one in lists])[:k]])
        return out

    def similar(self, pictures: Sequence[Image.Image], k: int) -> list[list[Passage]]:
        """Documents with the most similar pictures (score: cosine), at most `k` for each picture, one a document."""
        if not pictures or self._image is None or self.card.image_encoder is None or k < 1:
            return [[] for _ in pictures]
        vectors = self._image.encode(list(pictures)).tolist()
        with told(self.place):
            found = self.client.search(
                picture_table(self.card), data=vectors, anns_field="dense", limit=4 * k, output_fields=["document", "text", "row"]
            )
        return [[self._passage(hit, float(hit["distance"])) for hit in list(_best(hits).values())[:k]] for hits in found]

    def _passage(self, hit: Mapping[str, Any], score: float) -> Passage:
        entity = hit["entity"]
        row = dict(entity["row"])
        id_ = f"{entity['document']}#{str(hit['id']).partition('#')[2].replace('p', '')}"
        text = str(entity["text"])
        lists = (tuple(row["images"]), tuple(row["tags"]))
        return Passage(id_, entity["document"], self.name, row["title"], text, score, row["url"], row["date"], *lists, row["attributes"])

    def check(self) -> list[str]:
        """Faults: tables that are gone, documents without a chunk and a picture, a count that is not the card's."""
        faults = []
        with told(self.place):
            for table in (chunk_table(self.card), picture_table(self.card)):
                if not self.client.has_collection(table):
                    faults.append(f"the table {table} is gone")
            if not faults:
                found = len(documents_of(self.client, self.card))
                if found != self.card.documents:
                    faults.append(f"{found} documents, the card says {self.card.documents}")
        return faults


def build(place: Place, documents: Iterable[Document], tools: Any, notes: Notes) -> MilvusCard:
    """Make the collection anew (`tools`: pipeline.build.Tools). A fault, or a kill, leaves the old one as it was."""
    client = connect(place.uri)
    image = tools.image.nature if tools.image else None
    card = MilvusCard(VERSION, RECIPE, uuid.uuid4().hex[:8], tools.size, tools.overlap, tools.text.nature, image, "")
    card = replace(card, generation=f"{place.name}_{card.generation}")
    with told(place):
        old = known(client, place)
        make(client, card)
        try:
            tally = _Tally()
            _fill(client, card, documents, tools, notes, tally, fresh=True)
            card = replace(card, documents=tally.new)
            switch(client, place, card)
        except BaseException:
            drop(client, card)
            raise
        for gone in [old] if old else []:
            drop(client, gone)
    return card


def add(place: Place, documents: Iterable[Document], tools: Any, notes: Notes) -> MilvusCard:
    """Add documents; one whose id is there already takes its place. What was written before a fault stands, and is counted."""
    opened = MilvusCollection(place, tools.text, tools.image)
    tools = replace(tools, size=opened.card.size, overlap=opened.card.overlap)
    tally = _Tally()
    with told(place):
        try:
            _fill(opened.client, opened.card, documents, tools, notes, tally, fresh=False)
        finally:
            card = switch(opened.client, place, replace(opened.card, documents=opened.card.documents + tally.new))
    return card


def remove(place: Place, ids: Sequence[str]) -> MilvusCard:
    """Remove documents by id. Raises DataError naming the ids that are not there."""
    opened = MilvusCollection(place)
    wanted = list(dict.fromkeys(ids))
    with told(place):
        there = known_ids(opened.client, opened.card, wanted)
        missing = [id_ for id_ in wanted if id_ not in there]
        if missing:
            raise DataError(f"holds no document {', '.join(map(repr, missing[:5]))}", where=str(place), remedy="nothing was removed")
        for id_ in wanted:
            delete_rows(opened.client, opened.card, id_, 0, 0)
        return switch(opened.client, place, replace(opened.card, documents=opened.card.documents - len(wanted)))


@dataclass
class _Tally:
    new: int = 0


def _fill(client: Any, card: MilvusCard, documents: Iterable[Document], tools: Any, notes: Notes, tally: _Tally, *, fresh: bool) -> None:
    """Writes documents in batches. `fresh`: the tables are empty, nothing has to be looked for."""
    seen: set[str] = set()
    stream = iter(documents)
    while batch := list(islice(stream, _BATCH)):
        texts: list[dict[str, Any]] = []
        pictures: list[tuple[dict[str, Any], Image.Image]] = []
        sizes: dict[str, tuple[int, int]] = {}
        new = 0
        there = set() if fresh else known_ids(client, card, [document.id for document in batch])
        for document in batch:
            if document.id in seen:
                raise DataError(f"two documents are called {document.id!r}", remedy="give every document an id of its own")
            if len(document.id) > MAX_ID:
                raise DataError(f"the id {document.id[:60]!r} is too long", remedy=f"at most {MAX_ID} characters")
            seen.add(document.id)
            rows, shown = _rows(document, card, tools, notes)
            if document.id in there:
                notes.add("documents replaced", document.id)
            if not rows and not shown:
                notes.add("empty documents left out", document.id)
            new += bool(rows or shown) and document.id not in there
            texts, pictures = texts + rows, pictures + shown
            sizes[document.id] = (len(rows), len(shown))
        if texts:
            vectors = tools.text.encode([_headed(row) for row in texts])
            client.upsert(chunk_table(card), [{**row, "dense": v.tolist()} for row, v in zip(texts, vectors, strict=True)])
        if pictures:
            seen_vectors = tools.image.encode([picture for _, picture in pictures])
            client.upsert(
                picture_table(card), [{**row, "dense": v.tolist()} for (row, _), v in zip(pictures, np.asarray(seen_vectors), strict=True)]
            )
        for id_ in there & set(sizes):
            delete_rows(client, card, id_, *sizes[id_])
            new -= sizes[id_] == (0, 0)
        tally.new += new


def _rows(
    document: Document, card: MilvusCard, tools: Any, notes: Notes
) -> tuple[list[dict[str, Any]], list[tuple[dict[str, Any], Image.Image]]]:
    text = document.text if document.text.strip() else document.title
    about = {"title": document.title[:2000], "url": document.url, "date": document.date, "images": [str(p) for p in document.images],
             "tags": list(document.tags), "attributes": dict(document.attributes)}  # fmt: skip
    key = key_of(document.id)
    base = {"document": document.id, "key": key, "row": about}
    rows = []
    for part, (start, end) in enumerate(chunks(text, card.size, card.overlap)):
        piece = text[start:end].strip()
        said = _cut(piece)
        if said != piece:
            notes.add("chunks cut at 60,000 bytes", document.id)
        rows.append({**base, "id": f"{key}#{part}", "text": said, "terms": _cut(_bag([*terms(document.title), *terms(said)]))})
    shown: list[tuple[dict[str, Any], Image.Image]] = []
    for path in document.images if tools.image is not None else ():
        try:
            shown.append(({**base, "id": f"{key}#p{len(shown)}", "text": rows[0]["text"] if rows else ""}, load(path, 512)))
        except BadPicture as error:
            notes.add("pictures that cannot be opened", str(error))
    return rows, shown


def _headed(row: Mapping[str, Any]) -> str:
    title, text = row["row"]["title"], row["text"]
    return str(text if text.startswith(title) else f"{title}. {text}")


def _bag(words: Sequence[str]) -> str:
    """Terms as plain ASCII words, so that the server's tokenizer changes nothing."""
    return " ".join(word if word.isascii() else "x" + word.encode("utf-8", "replace").hex() for word in words)


def _cut(text: str) -> str:
    raw = text.encode("utf-8", "replace")
    return raw[:_MAX_BYTES].decode("utf-8", "ignore") if len(raw) > _MAX_BYTES else raw.decode()


def _best(hits: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """document → its best hit, in the order of the hits."""
    out: dict[str, Mapping[str, Any]] = {}
    for hit in hits:
        out.setdefault(str(hit["entity"]["document"]), hit)
    return out
