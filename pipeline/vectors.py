"""Nearest vectors by inner product. The only file that imports faiss.

Vectors lie raw in a file of their own (float32, memory-mapped), beside their ids. Below `FLAT_LIMIT` they are searched one by one,
which is exact; above, an inverted file (IVF, float16 lists, memory-mapped) is built, and its number of probed lists is chosen by
measuring recall against the exact search on vectors of the collection itself. Knows no text and no picture.
Try: python -m pipeline index bench --vectors 20000
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import DataError

FLAT_LIMIT = 100_000
RECALL = 0.97  # of the ten nearest, on held-out vectors; the number of probed lists is the smallest power of two that reaches it
_BLOCK = 16_384
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Plan:
    """How a file of vectors is searched, and why: part of the collection's card."""

    kind: str  # flat | ivf
    count: int
    dimension: int
    lists: int = 0
    probes: int = 0
    recall: float = 1.0
    reason: str = ""


def write(folder: Path, name: str, dimension: int, blocks: Iterable[tuple[Ints, Floats]], flat_limit: int = FLAT_LIMIT) -> Plan:
    """Write vectors (n, dimension) with their ids as `name`.* into `folder`; blocks are read once, so memory does not grow with them."""
    count = 0
    with (folder / f"{name}.f32").open("wb") as raw, (folder / f"{name}.ids").open("wb") as ids:
        for numbers, vectors in blocks:
            if vectors.shape != (len(numbers), dimension):
                raise DataError(f"vectors of shape {vectors.shape} where ({len(numbers)}, {dimension}) is due", where=str(folder))
            if not np.isfinite(vectors).all():
                raise DataError("an encoder gave a vector that is not finite", where=str(folder), remedy="check the encoder's weights")
            raw.write(np.ascontiguousarray(vectors, np.float32).tobytes())
            ids.write(np.ascontiguousarray(numbers, np.int64).tobytes())
            count += len(numbers)
    if count < flat_limit:
        plan = Plan("flat", count, dimension, reason=f"fewer than {flat_limit} vectors: exact search")
    else:
        plan = _build_ivf(folder, name, count, dimension)
    (folder / f"{name}.plan").write_text(json.dumps(asdict(plan)), encoding="utf-8")
    return plan


def _build_ivf(folder: Path, name: str, count: int, dimension: int) -> Plan:
    import faiss

    raw, ids = _map(folder, name, count, dimension)
    lists = 2 ** round(math.log2(4 * math.sqrt(count)))
    rng = np.random.default_rng(0)
    sample = np.sort(rng.choice(count, min(count, 40 * lists), replace=False))
    index: Any = faiss.index_factory(dimension, f"IVF{lists},SQfp16", faiss.METRIC_INNER_PRODUCT)
    index.cp.niter = 8
    index.train(np.concatenate([_taken(raw, part) for part in np.array_split(sample, 16)]))
    for at in range(0, count, _BLOCK):
        index.add_with_ids(np.ascontiguousarray(raw[at : at + _BLOCK]), np.ascontiguousarray(ids[at : at + _BLOCK]))
        _forget(raw)
    faiss.write_index(index, str(folder / f"{name}.ivf"))
    probes, recall = _calibrate(index, raw, ids, rng)
    del index
    reason = f"{count} vectors: inverted file, {probes} of {lists} lists probed, recall@10 {recall:.3f} on its own vectors"
    return Plan("ivf", count, dimension, lists, probes, recall, reason)


def _calibrate(index: Any, raw: Floats, ids: Ints, rng: np.random.Generator) -> tuple[int, float]:
    """The smallest number of probed lists that reaches `RECALL` on slightly moved vectors of the collection."""
    queries = _taken(raw, np.sort(rng.choice(len(raw), min(200, len(raw)), replace=False)))
    scale = np.linalg.norm(queries, axis=1, keepdims=True) / math.sqrt(queries.shape[1])
    queries = (queries + 0.3 * scale * rng.standard_normal(queries.shape)).astype(np.float32)
    exact = _flat_in_blocks(raw, ids, queries, 10)
    probes, recall = 1, 0.0
    while True:
        index.nprobe = probes
        found = index.search(queries, 10)[1]
        recall = float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), exact.tolist(), strict=True)]))
        if recall >= RECALL or probes * 2 > index.nlist:
            return probes, recall
        probes *= 2


def _map(folder: Path, name: str, count: int, dimension: int) -> tuple[Floats, Ints]:
    if not count:
        return np.zeros((0, dimension), np.float32), np.zeros(0, np.int64)
    raw: Floats = np.memmap(folder / f"{name}.f32", np.float32, "r", shape=(count, dimension))
    ids: Ints = np.memmap(folder / f"{name}.ids", np.int64, "r", shape=(count,))
    return raw, ids


def _flat(raw: Floats, ids: Ints, queries: Floats, k: int) -> tuple[Floats, Ints]:
    """Exact search in blocks, so that no copy of the file is made."""
    import faiss

    scores, rows = faiss.knn(queries, raw, k, metric=faiss.METRIC_INNER_PRODUCT)
    return scores, np.asarray(ids)[rows]


def _flat_in_blocks(raw: Floats, ids: Ints, queries: Floats, k: int) -> Ints:
    """Ids of the exact search, with one block of the file in memory at a time."""
    scores, found = np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
    for at in range(0, len(raw), _BLOCK):
        part = _flat(raw[at : at + _BLOCK], ids[at : at + _BLOCK], queries, min(k, len(raw) - at))
        scores, found = np.concatenate([scores, part[0]], axis=1), np.concatenate([found, part[1]], axis=1)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores, found = np.take_along_axis(scores, best, 1), np.take_along_axis(found, best, 1)
        _forget(raw)
    return found


def _taken(raw: Floats, rows: Ints) -> Floats:
    """A copy of these rows. Reading one row maps its whole neighbourhood."""
    made = np.ascontiguousarray(raw[rows])
    _forget(raw)
    return made


def _forget(raw: Floats) -> None:
    """Let go of a mapped file's pages: what was read counts as this process's memory until then, and stays in the system's cache."""
    mapped = getattr(raw, "_mmap", None)
    if mapped is not None:
        mapped.madvise(mmap.MADV_DONTNEED)


class Vectors:
    """Vectors on disk, opened for searching."""

    def __init__(self, folder: Path, name: str) -> None:
        try:
            self.plan = Plan(**json.loads((folder / f"{name}.plan").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise DataError(f"its {name}.plan cannot be read: {error}", where=str(folder), remedy="build the collection again") from None
        for suffix, width in (("f32", 4 * self.plan.dimension), ("ids", 8)):
            file, due = folder / f"{name}.{suffix}", self.plan.count * width
            size = file.stat().st_size if file.exists() else -1
            if size != due:
                what = f"{file.name} has {size} bytes where {due} are due"
                raise DataError(what, where=str(folder), remedy="it is damaged: build the collection again")
        self.raw, self.ids = _map(folder, name, self.plan.count, self.plan.dimension)
        self._ivf: Any = None
        if self.plan.kind == "ivf":
            import faiss

            try:
                self._ivf = faiss.read_index(str(folder / f"{name}.ivf"), faiss.IO_FLAG_MMAP)
            except RuntimeError as error:
                raise DataError(f"{name}.ivf cannot be read: {error}", where=str(folder), remedy="build the collection again") from None
            self._ivf.nprobe = self.plan.probes

    def __len__(self) -> int:
        return self.plan.count

    def search(self, queries: Floats, k: int) -> list[list[tuple[int, float]]]:
        """For each row of `queries` (n, dimension): (id, inner product) of at most `k`, best first. `k` is clipped, never −1."""
        k = min(k, self.plan.count)
        if not len(queries) or k < 1:
            return [[] for _ in range(len(queries))]
        if queries.shape[1] != self.plan.dimension:
            raise DataError(f"queries have {queries.shape[1]} dimensions, the vectors {self.plan.dimension}", remedy="use the same encoder")
        queries = np.ascontiguousarray(queries, np.float32)
        if self._ivf is not None:
            scores, ids = self._ivf.search(queries, k)
        else:
            scores, ids = _flat(self.raw, self.ids, queries, k)
        return [
            [(int(i), float(s)) for i, s in zip(id_row, score_row, strict=True) if i >= 0]
            for id_row, score_row in zip(ids, scores, strict=True)
        ]

    def blocks(self, without: frozenset[int] = frozenset()) -> Iterable[tuple[Ints, Floats]]:
        """Everything but the ids in `without`, for building a successor."""
        for at in range(0, len(self), _BLOCK):
            ids, raw = np.asarray(self.ids[at : at + _BLOCK]), np.asarray(self.raw[at : at + _BLOCK])
            keep = np.array([int(i) not in without for i in ids], bool)
            if keep.any():
                yield ids[keep], raw[keep]


def set_threads(count: int) -> None:
    """Threads of the search; 0 leaves the library's choice."""
    import faiss

    if count:
        faiss.omp_set_num_threads(min(count, os.cpu_count() or 1))
