"""A data set from one layout into the other, media included: `python -m kg convert DATA --to plain|mh --out DIR`.

Everything that both layouts can hold survives; what the target cannot hold is refused with the names, before anything is written.
The result appears under its name only when it is complete. Knows no spreadsheet library.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from kg.card import CardFile
from kg.dataset import Dataset
from kg.load import card_of, layout_of, load
from kg.write_mh import write_mh
from kg.write_plain import write_plain
from models.errors import DataError

Writer = Callable[[Dataset, CardFile, Path], None]
TARGETS: dict[str, Writer] = {
    "mh": write_mh,
    "plain": lambda dataset, card, out: write_plain(dataset, card, out, "csv"),
    "plain-jsonl": lambda dataset, card, out: write_plain(dataset, card, out, "jsonl"),
}


def convert(source: Path, target: str, out: Path) -> Dataset:
    """Read `source`, write it as `target` into the new folder `out`, and read it back.

    Raises:
        DataError: the source has errors, `out` is there already, or the target layout cannot hold a name.
    """
    if target not in TARGETS:
        raise DataError(f"no layout {target!r}", remedy=f"choose one of {', '.join(TARGETS)}")
    source, out = source.resolve(), out.absolute()
    card = card_of(source, layout_of(source))
    dataset = load(source)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError("is there already", where=str(out), remedy="give a new folder to --out")
    temporary = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        temporary.mkdir(parents=True)
        TARGETS[target](dataset, card, temporary)
        written = load(temporary)
        if out.exists():
            out.rmdir()
        temporary.rename(out)
    except OSError as e:
        raise DataError(f"cannot be written: {e.strerror or e}", where=str(out), remedy="choose another --out or make room") from e
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _same_size(dataset, written, out)
    return load(out)


def _same_size(before: Dataset, after: Dataset, out: Path) -> None:
    """A last guard: what was read is what was written."""
    sizes = [(len(d.graph.roots), len(d.questions), sum(len(q.routes) for q in d.questions)) for d in (before, after)]
    if sizes[0] != sizes[1]:
        raise AssertionError(f"{out}: converted {sizes[0]} roots, questions, routes into {sizes[1]}")
