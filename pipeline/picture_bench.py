"""Similar-picture search measured: transformed copies of some pictures in many, and strangers, which must stay below the threshold.

Pictures are seeded and made, or a folder's own (`--folder`) with made ones around them. Vectors are kept in blocks (`--keep`), so that
a long encoding goes on where it ended. Try: python -m pipeline index bench-pictures --pictures 500 --queries 20
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from models.errors import DataError
from pipeline.copies import COPY, DIMENSION, layouts, views, with_copies
from pipeline.documents import PICTURES
from pipeline.encoders import ImageEncoder
from pipeline.files import replace
from pipeline.images import BadPicture, load
from pipeline.safety.variants import TRANSFORMATIONS, made_picture
from pipeline.tags import SIMILAR, VERY_SIMILAR
from pipeline.vectors import Floats, Vectors, write

BLOCK = 250
SIDE = 160  # pixels of a made picture
STRANGERS = 1_000_000  # first seed of the strangers


def bench_pictures(
    work: Path, keep: Path, encoder: ImageEncoder, count: int, queries: int, folder: Path | None, tell: Callable[[str], None]
) -> dict[str, Any]:
    """top-1 of every transformation and of all, with copies by layout and by the encoder alone, and the shares of strangers below the
    thresholds. Raises DataError."""
    own = _own(folder, queries) if folder is not None else []
    if folder is not None and len(own) < queries:
        raise DataError(
            f"holds {len(own)} pictures that can be opened", where=str(folder), remedy=f"give {queries}, or a smaller --queries"
        )
    made = count - len(own)
    code, size = encoder.nature.digest[:12], encoder.nature.dimension
    vectors = np.concatenate([encoder.encode(own), *_made(keep, code, size, encoder.encode, 0, made, tell)])
    laid = np.concatenate([layouts(own), *_made(keep, "layout", DIMENSION, layouts, 0, made, tell)])
    numbers = np.arange(len(vectors), dtype=np.int64)
    for name, rows in (("pictures", vectors), ("layouts", laid)):
        write(work, name, rows.shape[1], [(numbers, rows)])
    index, copies = Vectors(work, "pictures"), Vectors(work, "layouts")
    asked = own or [made_picture(i, SIDE) for i in range(queries)]
    top, alone = {}, {}
    for name, transform in TRANSFORMATIONS.items():
        changed = [transform(picture) for picture in asked]
        found = index.search(encoder.encode(changed), 4)
        alone[name] = float(np.mean([row[0][0] == i for i, row in enumerate(found)]))
        joined = [with_copies(row, picture, copies, 4) for row, picture in zip(found, changed, strict=True)]
        top[name] = float(np.mean([row[0][0] == i for i, row in enumerate(joined)]))
    strangers = np.concatenate(list(_made(keep, code, size, encoder.encode, STRANGERS, queries, tell)))
    nearest = np.array([row[0][1] for row in index.search(strangers, 1)])
    strange = [made_picture(STRANGERS + i, SIDE) for i in range(queries)]
    copied = np.array([max(row[0][1] for row in copies.search(views(picture), 1)) for picture in strange])
    return {
        "pictures": len(vectors),
        "queries": len(asked),
        "encoder": encoder.nature.name,
        "top-1": {name: round(value, 4) for name, value in top.items()},
        "top-1 of all": round(float(np.mean(list(top.values()))), 4),
        "top-1 of all by the encoder alone": round(float(np.mean(list(alone.values()))), 4),
        f"strangers below {COPY} (copy)": round(float((copied < COPY).mean()), 4),
        "highest stranger by layout": round(float(copied.max()), 4),
        f"strangers below {VERY_SIMILAR} (very similar)": round(float((nearest < VERY_SIMILAR).mean()), 4),
        f"strangers below {SIMILAR} (similar)": round(float((nearest < SIMILAR).mean()), 4),
        "highest stranger": round(float(nearest.max()), 4),
        "search": index.plan.reason,
    }


def _own(folder: Path, most: int) -> list[Image.Image]:
    out: list[Image.Image] = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in PICTURES and len(out) < most:
            try:
                out.append(load(path, 512))
            except BadPicture:
                continue
    return out


def _made(
    keep: Path, name: str, size: int, encode: Callable[[list[Image.Image]], Floats], first: int, count: int, tell: Callable[[str], None]
) -> Sequence[Floats]:
    """Vectors of the made pictures with seeds first … first + count − 1, in blocks that are kept."""
    blocks: list[Floats] = []
    for at in range(0, count, BLOCK):
        part = min(BLOCK, count - at)
        path = keep / f"{name}-{SIDE}-{first + at}-{part}.f32"
        if not path.exists():
            made = encode([made_picture(first + at + i, SIDE) for i in range(part)])
            replace(path, np.ascontiguousarray(made, np.float32).tobytes())
            tell(f"{at + part} of {count} pictures encoded")
        blocks.append(np.frombuffer(path.read_bytes(), np.float32).reshape(part, size))
    return blocks or [np.zeros((0, size), np.float32)]
