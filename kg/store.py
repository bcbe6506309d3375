"""A compiled data set: one file of arrays that is mapped, not read (`python -m kg compile DATA`).

    line "untamed-kg 2", line with the next line's digest, line of JSON (card, questions, findings, digests, table of arrays),
    newlines up to the next 64 bytes, arrays aligned to 64 bytes

Written to a temporary name and renamed; stamped with the digest of the sheets that it was made from and with that of its own arrays.
Nothing is pickled. Knows no layout of sheets. Try: python -m kg compile DATA --out data.kgc && python -m kg show data.kgc NAME
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from kg.arrays import LAYOUT, Array, ArrayGraph
from kg.dataset import Card, Dataset, Finding, Question
from models.errors import DataError
from models.files import replacing

MAGIC = b"untamed-kg 2\n"
SUFFIX = ".kgc"
_ALIGN = 64


def save(dataset: Dataset, path: Path) -> None:
    """Write the compiled file. Raises: DataError when the graph is of another kind or the disk refuses."""
    graph = dataset.graph
    if not isinstance(graph, ArrayGraph):
        raise DataError(f"a {type(graph).__name__} cannot be compiled", where=str(path))
    table, offset, content = {}, 0, hashlib.sha256()
    for name, dtype in LAYOUT.items():
        array = np.ascontiguousarray(graph.arrays[name], dtype)
        table[name] = [dtype, len(array), offset]
        offset += -(-array.nbytes // _ALIGN) * _ALIGN
        content.update(array.view(np.uint8).data)
    header = {
        "folder": str(dataset.folder), "digest": dataset.digest, "content": content.hexdigest(), "arrays": table, "bytes": offset,
        "card": asdict(dataset.card), "findings": [asdict(f) for f in dataset.findings],
        "questions": [_packed(q, dataset.folder) for q in dataset.questions],
    }  # fmt: skip
    line = json.dumps(header, ensure_ascii=True).encode()
    head = MAGIC + hashlib.sha256(line).hexdigest().encode() + b"\n" + line + b"\n"
    try:
        with replacing(path) as f:
            f.write(head + b"\n" * (-len(head) % _ALIGN))
            for name, dtype in LAYOUT.items():
                array = np.ascontiguousarray(graph.arrays[name], dtype)
                f.write(array.view(np.uint8).data)
                f.write(bytes(-array.nbytes % _ALIGN))
    except OSError as e:
        raise DataError(f"cannot be written: {e.strerror or e}", where=str(path), remedy="choose another --out or make room") from e


def open_compiled(path: Path, verify: bool = True) -> Dataset:
    """The data set in a compiled file; its arrays stay on disk until they are touched.

    Args:
        verify: compare the arrays with their digest (reads the file once).

    Raises:
        DataError: no such file, cut short, damaged, or compiled by another version.
    """
    again = "compile it again: python -m kg compile DATA"
    try:
        with path.open("rb") as f:
            if f.readline(len(MAGIC)) != MAGIC:
                raise DataError("is no compiled data set of this version", where=str(path), remedy=again)
            digest, line = f.readline(65).strip(), f.readline().rstrip(b"\n")
            if hashlib.sha256(line).hexdigest().encode() != digest:
                raise DataError("is damaged: its header does not have its digest", where=str(path), remedy=again)
            header: dict[str, Any] = json.loads(line)
            start = -(-f.tell() // _ALIGN) * _ALIGN
            size = os.fstat(f.fileno()).st_size
        if size != start + header["bytes"]:
            raise DataError(f"is cut short: {size} bytes instead of {start + header['bytes']}", where=str(path), remedy=again)
        arrays = _mapped(path, start, header["arrays"])
        if verify and _content(arrays) != header["content"]:
            raise DataError("is damaged: its arrays do not have their digest", where=str(path), remedy=again)
        folder = Path(header["folder"])
        fields = {**header["card"], "tasks": tuple(header["card"]["tasks"])}
        questions = tuple(_unpacked(q, folder) for q in header["questions"])
        findings = tuple(Finding(**f) for f in header["findings"])
        return Dataset(folder, Card(**fields), ArrayGraph(arrays, folder), questions, header["digest"], findings)
    except OSError as e:
        raise DataError(f"cannot be read: {e.strerror or e}", where=str(path), remedy=again) from e
    except (ValueError, KeyError, TypeError) as e:
        raise DataError(f"is damaged: {e}", where=str(path), remedy=again) from e


def _mapped(path: Path, start: int, table: Mapping[str, Sequence[Any]]) -> dict[str, Array]:
    whole = np.memmap(path, np.uint8, mode="r")
    out: dict[str, Array] = {}
    for name, dtype in LAYOUT.items():
        stored, count, offset = table[name]
        if stored != dtype:
            raise ValueError(f"array {name} is {stored}, not {dtype}")
        first = start + offset
        piece = whole[first : first + count * np.dtype(dtype).itemsize]
        out[name] = np.frombuffer(piece, dtype) if count else np.zeros(0, dtype)
    return out


def _content(arrays: Mapping[str, Array]) -> str:
    content = hashlib.sha256()
    for name in LAYOUT:
        content.update(arrays[name].view(np.uint8).data)
    return content.hexdigest()


def _packed(question: Question, folder: Path) -> dict[str, Any]:
    images = [p.relative_to(folder).as_posix() for p in question.images]
    video = question.video.relative_to(folder).as_posix() if question.video else ""
    return {**asdict(question), "images": images, "video": video}


def _unpacked(values: Mapping[str, Any], folder: Path) -> Question:
    images = tuple(folder / p for p in values["images"])
    video = folder / values["video"] if values["video"] else None
    routes = tuple(tuple(route) for route in values["routes"])
    return Question(**{**values, "images": images, "video": video, "routes": routes})
