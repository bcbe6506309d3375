"""Milvus's tables of a collection: places, cards, clients; a generation's two tables, and the row that names the one that counts.

The only file that imports pymilvus (extra `milvus`). Knows no document. Try: python -m pipeline index check milvus:./lite.db#docs
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from models.errors import DataError, ModelError
from pipeline.encoders import Nature

TABLE = "untamed_collections"
_PLACE = re.compile(r"milvus:(?P<uri>.+)#(?P<name>[A-Za-z_][A-Za-z0-9_]{0,63})")
MAX_ID = 400  # characters of a document's id


@dataclass(frozen=True, slots=True)
class Place:
    """Where a collection stands."""

    uri: str
    name: str

    def __str__(self) -> str:
        return f"milvus:{self.uri}#{self.name}"


def place_of(text: object) -> Place | None:
    """The place that a text names; None for a path. A path's joining of slashes (``http:/host``) is mended."""
    raw = str(text)
    if not raw.startswith("milvus:"):
        return None
    found = _PLACE.fullmatch(raw)
    if found is None:
        raise DataError(f"{raw!r} is no place on Milvus", remedy="milvus:http://host:19530#name or milvus:./file.db#name")
    return Place(re.sub(r"^(https?):/(?=[^/])", r"\1://", found["uri"]), found["name"])


@dataclass(frozen=True)
class MilvusCard:
    """What a collection says of itself; `stamp` changes with every edit."""

    version: int
    recipe: str
    generation: str
    size: int
    overlap: int
    text_encoder: Nature
    image_encoder: Nature | None
    stamp: str
    documents: int = 0

    def dump(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def load(row: Mapping[str, Any], where: str) -> MilvusCard:
        try:
            image = row["image_encoder"]
            return MilvusCard(**{**row, "text_encoder": Nature(**row["text_encoder"]), "image_encoder": Nature(**image) if image else None})
        except (KeyError, TypeError) as error:
            raise DataError(f"its card cannot be read: {error}", where=where, remedy="build it again") from None


def connect(uri: str) -> Any:
    try:
        from pymilvus import MilvusClient, MilvusException
    except ImportError:
        raise ModelError("pymilvus is not installed", remedy="pip install 'untamed[milvus]'") from None
    if "://" not in uri:
        logging.getLogger("grpc._server").setLevel(logging.CRITICAL)  # milvus-lite reports calls that it does without as errors
        Path(uri).absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        return MilvusClient(uri, token=os.environ.get("MILVUS_TOKEN", ""), timeout=30)
    except (MilvusException, OSError, ValueError) as error:
        raise ModelError(
            f"cannot be reached: {error}".splitlines()[0], where=uri, remedy="start the server, or correct the address"
        ) from None


@contextlib.contextmanager
def told(place: Place) -> Iterator[None]:
    """Milvus's own faults as ours."""
    from pymilvus import MilvusException

    try:
        yield
    except MilvusException as error:
        raise DataError(f"Milvus says: {error}".splitlines()[0], where=str(place), remedy="see the server's log") from None


def chunk_table(card: MilvusCard) -> str:
    return f"{card.generation}_chunks"


def picture_table(card: MilvusCard) -> str:
    return f"{card.generation}_pictures"


def make(client: Any, card: MilvusCard) -> None:
    """The two tables of a generation."""
    from pymilvus import DataType, Function, FunctionType

    for table, dimension in (
        (chunk_table(card), card.text_encoder.dimension),
        (picture_table(card), card.image_encoder.dimension if card.image_encoder else 2),
    ):
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=64)
        schema.add_field("key", DataType.VARCHAR, max_length=32)
        schema.add_field("document", DataType.VARCHAR, max_length=4 * MAX_ID)
        schema.add_field("text", DataType.VARCHAR, max_length=65_535)
        schema.add_field("dense", DataType.FLOAT_VECTOR, dim=dimension)
        schema.add_field("row", DataType.JSON)
        index = client.prepare_index_params()
        index.add_index("dense", index_type="AUTOINDEX", metric_type="IP")
        if table == chunk_table(card):
            schema.add_field("terms", DataType.VARCHAR, max_length=65_535, enable_analyzer=True, analyzer_params={"tokenizer": "standard"})
            schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
            made = Function(name="bm25", input_field_names=["terms"], output_field_names=["sparse"], function_type=FunctionType.BM25)
            schema.add_function(made)
            index.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
        client.create_collection(table, schema=schema, index_params=index, consistency_level="Strong")
        client.load_collection(table)


def known(client: Any, place: Place) -> MilvusCard | None:
    if not client.has_collection(TABLE):
        from pymilvus import DataType

        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("name", DataType.VARCHAR, is_primary=True, max_length=64)
        schema.add_field("card", DataType.JSON)
        schema.add_field("unused", DataType.FLOAT_VECTOR, dim=2)  # every table needs a vector
        index = client.prepare_index_params()
        index.add_index("unused", index_type="AUTOINDEX", metric_type="IP")
        client.create_collection(TABLE, schema=schema, index_params=index, consistency_level="Strong")
        client.load_collection(TABLE)
    found = client.get(TABLE, ids=[place.name])
    return MilvusCard.load(found[0]["card"], str(place)) if found else None


def switch(client: Any, place: Place, card: MilvusCard) -> MilvusCard:
    """From here on `card` is the collection: one row is written."""
    card = replace(card, stamp=uuid.uuid4().hex)
    client.upsert(TABLE, [{"name": place.name, "card": card.dump(), "unused": [1.0, 0.0]}])
    return card


def drop(client: Any, card: MilvusCard) -> None:
    for table in (chunk_table(card), picture_table(card)):
        if client.has_collection(table):
            client.drop_collection(table)


def documents_of(client: Any, card: MilvusCard) -> list[str]:
    """Every document's id."""
    out: dict[str, None] = {}
    for table in (chunk_table(card), picture_table(card)):
        rows = client.query_iterator(table, filter='id != ""', output_fields=["document"], batch_size=1000)
        while batch := rows.next():
            out.update((str(row["document"]), None) for row in batch)
        rows.close()
    return list(out)


def key_of(document: str) -> str:
    """A document's id as plain characters: filters of Milvus are texts, and an id may hold anything."""
    return hashlib.sha256(document.encode("utf-8", "replace")).hexdigest()[:32]


def known_ids(client: Any, card: MilvusCard, ids: Sequence[str]) -> set[str]:
    """Those of `ids` that are there."""
    if not ids:
        return set()
    listed = json.dumps([key_of(id_) for id_ in ids])
    found = [
        client.query(table, filter=f"key in {listed}", output_fields=["document"]) for table in (chunk_table(card), picture_table(card))
    ]
    return {str(row["document"]) for rows in found for row in rows}


def delete_rows(client: Any, card: MilvusCard, document: str, parts: int, pictures: int) -> None:
    """Rows of a document beyond its first `parts` chunks and `pictures` pictures."""
    key = key_of(document)
    keeps = ({f"{key}#{i}" for i in range(parts)}, {f"{key}#p{i}" for i in range(pictures)})
    for table, keep in zip((chunk_table(card), picture_table(card)), keeps, strict=True):
        found = client.query(table, filter=f'key == "{key}"', output_fields=["id"])
        gone = [row["id"] for row in found if row["id"] not in keep]
        if gone:
            client.delete(table, ids=gone)
