"""`python -m pipeline index …`: build, grow, shrink, check and search collections.

python -m pipeline index build docs.jsonl my-collection
python -m pipeline index search my-collection "how do lifting bodies behave"
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from models.errors import ConfigError, DataError
from pipeline import build as building
from pipeline import milvus
from pipeline.collection import Card, Collection
from pipeline.documents import Document, Notes, read
from pipeline.encoders import IMAGE, TEXT, image_encoder, text_encoder
from pipeline.milvus import MilvusCollection, place_of
from pipeline.milvus_tables import MilvusCard
from pipeline.picture_bench import bench_pictures
from pipeline.vectors import Floats, Ints, Vectors, write


def add_parser(parent: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    index = parent.add_parser("index", help="collections of documents, products and places")
    sub = index.add_subparsers(dest="action", required=True)
    for name, about in (("build", "make a collection anew"), ("add", "add or replace documents")):
        made = sub.add_parser(name, help=about)
        made.add_argument("documents", nargs="+", type=Path, help=".jsonl, a folder, or Encyclopedic-VQA's knowledge base .json")
        made.add_argument("collection", help="a folder, or milvus:URI#name (extra milvus)")
        made.add_argument("--text-encoder", default="minilm", help=f"{', '.join(TEXT)}, or a folder")
        made.add_argument("--image-encoder", default="efficientnet-lite0", help=f"{', '.join(IMAGE)}, a folder, or none")
        if name == "build":
            made.add_argument("--size", type=int, default=180, help="words in a chunk")
            made.add_argument("--overlap", type=int, default=30, help="words that neighbouring chunks share")
        made.set_defaults(run=_write)
    gone = sub.add_parser("remove", help="remove documents by id")
    gone.add_argument("collection")
    gone.add_argument("ids", nargs="+")
    gone.set_defaults(run=_remove)
    check = sub.add_parser("check", help="read every byte and compare it with the card")
    check.add_argument("collection")
    check.set_defaults(run=_check)
    search = sub.add_parser("search", help="the best passages for a query")
    search.add_argument("collection")
    search.add_argument("query")
    search.add_argument("-k", type=int, default=5)
    search.set_defaults(run=_search)
    encoders = sub.add_parser("encoders", help="the embedded encoders and their digests")
    encoders.set_defaults(run=_encoders)
    bench = sub.add_parser("bench", help="made vectors: recall against exact search, milliseconds, memory")
    bench.add_argument("--vectors", type=int, default=1_000_000)
    bench.add_argument("--dimension", type=int, default=384)
    bench.set_defaults(run=_bench)
    _picture_options(sub.add_parser("bench-pictures", help="similar-picture search: transformed copies among many, and strangers"))


def _picture_options(shown: argparse.ArgumentParser) -> None:
    shown.add_argument("--pictures", type=int, default=10_000)
    shown.add_argument("--queries", type=int, default=200)
    shown.add_argument("--folder", type=Path, help="its pictures are asked for, among made ones")
    shown.add_argument("--keep", type=Path, default=Path(".cache/picture-bench"), help="vectors of made pictures, kept between runs")
    shown.add_argument("--image-encoder", default="efficientnet-lite0", help=f"{', '.join(IMAGE)}, or a folder")
    shown.set_defaults(run=_bench_pictures)


def open_collection(folder: Path | str) -> Collection | MilvusCollection:
    """The collection of a folder or a place on Milvus, with the encoders that its card names. Raises DataError when one has changed."""
    place = place_of(folder)
    card = MilvusCollection(place).card if place else Collection(Path(folder)).card
    encoders = (text_encoder(card.text_encoder.name), image_encoder(card.image_encoder.name) if card.image_encoder else None)
    return MilvusCollection(place, *encoders) if place else Collection(Path(folder), *encoders)


def open_folder(folder: Path) -> Collection:
    """The same for what needs a collection on this machine. Raises ConfigError."""
    opened = open_collection(folder)
    if not isinstance(opened, Collection):
        raise ConfigError(f"{folder} is no folder", remedy="this needs a collection on this machine")
    return opened


def _write(args: argparse.Namespace) -> int:
    image = None if args.image_encoder == "none" else image_encoder(args.image_encoder)
    notes, place = Notes(), place_of(args.collection)
    documents = _some(args.documents, notes)
    tools = building.Tools(text_encoder(args.text_encoder), image)
    if args.action == "build":
        tools = replace(tools, size=args.size, overlap=args.overlap)
    if place is not None:
        made = (milvus.build if args.action == "build" else milvus.add)(place, documents, tools, notes)
        _report_place(args.collection, made, notes)
    else:
        card = (building.build if args.action == "build" else building.add)(Path(args.collection), documents, tools, notes)
        _report(args.collection, card, notes)
    return 0


def _some(paths: list[Path], notes: Notes) -> Iterator[Document]:
    """The documents of all paths. Raises DataError when none of them holds anything, before a folder is made."""
    documents, blank = chain.from_iterable(read(path, notes) for path in paths), []
    for document in documents:
        blank.append(document)
        if document.text.strip() or document.title.strip() or document.images:
            return chain(blank, documents)
    remedy = "give a .jsonl with a document a line, or a folder of texts and pictures; nothing was changed"
    raise DataError("no document in it", where=", ".join(map(str, paths)), remedy=remedy)


def _remove(args: argparse.Namespace) -> int:
    notes, place = Notes(), place_of(args.collection)
    if place is not None:
        _report_place(args.collection, milvus.remove(place, args.ids), notes)
    else:
        _report(args.collection, building.remove(Path(args.collection), args.ids, notes), notes)
    return 0


def _report_place(where: str, card: MilvusCard, notes: Notes) -> None:
    print(f"{where}: generation {card.generation}, {card.documents} documents")
    print(f"text: {card.text_encoder}" + (f"; pictures: {card.image_encoder}" if card.image_encoder else ""))
    for line in notes.lines():
        print(f"note: {line}")


def _report(folder: Path | str, card: Card, notes: Notes) -> None:
    print(f"{folder}: generation {card.generation}, {card.documents} documents, {card.chunks} chunks, {card.pictures} pictures")
    print(f"text: {card.text_encoder}; {card.plans.get('text', '')}")
    if card.image_encoder:
        print(f"pictures: {card.image_encoder}; {card.plans.get('image', '')}")
    for line in notes.lines():
        print(f"note: {line}")


def _check(args: argparse.Namespace) -> int:
    place = place_of(args.collection)
    faults = MilvusCollection(place).check() if place else Collection(Path(args.collection)).check()
    if faults:
        raise DataError("; ".join(faults), where=str(args.collection), remedy="build it again with `python -m pipeline index build`")
    print(f"{args.collection}: sound")
    return 0


def _search(args: argparse.Namespace) -> int:
    for passage in open_collection(args.collection).search([args.query], args.k)[0]:
        print(f"{passage.score:.4f}  {passage.id}  {passage.title}: {' '.join(passage.text.split())[:160]}")
    return 0


def _encoders(args: argparse.Namespace) -> int:
    for name in TEXT:
        print(f"text   {text_encoder(name).nature}")
    for name in IMAGE:
        print(f"image  {image_encoder(name).nature}")
    return 0


def _bench_pictures(args: argparse.Namespace) -> int:
    if not 1 <= args.queries <= args.pictures:
        raise ConfigError(f"--queries {args.queries} --pictures {args.pictures}", remedy="1 ≤ queries ≤ pictures")
    encoder = image_encoder(args.image_encoder)
    with tempfile.TemporaryDirectory(prefix="pictures-") as made:
        result = bench_pictures(
            Path(made), args.keep, encoder, args.pictures, args.queries, args.folder, lambda line: print(line, flush=True)
        )
    print(json.dumps(result))
    return 0


def _bench(args: argparse.Namespace) -> int:
    if args.vectors < 1000:
        raise ConfigError(f"--vectors {args.vectors} is too few", remedy="give 1000 or more")
    with tempfile.TemporaryDirectory(prefix="vectors-") as made:
        result = bench_vectors(Path(made), args.vectors, args.dimension)
    print(json.dumps(result))
    return 0


def bench_vectors(folder: Path, count: int, dimension: int, queries: int = 500) -> dict[str, object]:
    """Seeded vectors as encoders make them (clusters of clusters, unit length); queries are moved copies of the collection's own."""
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    plan = write(folder, "made", dimension, _made(count, dimension))
    built = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    vectors = Vectors(folder, "made")
    rng = np.random.default_rng(1)
    asked = np.asarray(vectors.raw[np.sort(rng.choice(count, queries, replace=False))])
    asked = _unit(asked + 0.3 / dimension**0.5 * rng.standard_normal(asked.shape))
    times: list[float] = []
    hits: list[float] = []
    for row in asked:
        begun = time.perf_counter()
        found = vectors.search(row[None], 10)[0]
        times.append(time.perf_counter() - begun)
        exact = np.argpartition(-(vectors.raw @ row), 9)[:10] if len(hits) < 100 else None
        if exact is not None:
            hits.append(len({i for i, _ in found} & set(vectors.ids[exact].tolist())) / 10)
    return {
        "plan": plan.reason,
        "vectors": count,
        "dimension": dimension,
        "recall@10": round(float(np.mean(hits)), 4),
        "p50_ms": round(1000 * float(np.median(times)), 3),
        "p95_ms": round(1000 * float(np.quantile(times, 0.95)), 3),
        "build_s": round(built, 1),
        "build_memory_mb": round((peak - base) / 1024),
    }


def _made(count: int, dimension: int) -> Iterator[tuple[Ints, Floats]]:
    rng = np.random.default_rng(0)
    centres = _unit(rng.standard_normal((max(count // 500, 10), dimension)))
    for at in range(0, count, 10_000):
        size = min(10_000, count - at)
        near = centres[rng.integers(len(centres), size=size)]
        yield np.arange(at, at + size, dtype=np.int64), _unit(near + 0.8 / dimension**0.5 * rng.standard_normal((size, dimension)))


def _unit(vectors: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Floats:
    made: Floats = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)
    return made
