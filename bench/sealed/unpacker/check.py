"""Every byte of a bundle against its manifest; every fault named with what it is for. Writes nothing.

Knows manifest and medium, no machine. Try: python3 unbundle.pyz --verify
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.sealed.unpacker.copying import Copier, Meter, Piece, blocks
from bench.sealed.unpacker.errors import BadPart, Refused
from bench.sealed.unpacker.manifest import Bundle

# What operating systems put onto a medium, and the maker's notes; none of it is ever read here.
LITTER = re.compile(
    r"System Volume Information|\.Trash.*|\$RECYCLE\.BIN|lost\+found|\.DS_Store|\.fseventsd|\.Spotlight-V100|\._.*"
    r"|\.bundle-journal\.jsonl"
)
MANIFEST = ("manifest.json", "manifest.sha256", "manifest.sig")
SHOWN = 8  # files named for one fault of the medium; how many more there are stands beside them


class Fault(NamedTuple):
    """What is wrong, where on the medium, and which files of the bundle that touches."""

    where: str
    what: str
    files: tuple[str, ...] = ()


def verify(bundle: Bundle, copier: Copier) -> list[Fault]:
    """All faults, everything read once. Empty: the bundle is whole."""
    found = around(bundle)
    broken = broken_media(bundle)
    meter = Meter("checking", sum(one["size"] for one in bundle.held["objects"].values()))
    for sha in in_order(bundle):
        why = fault_of(bundle, sha, broken)
        if not why:
            try:
                why = (
                    ""
                    if copier.pour(pieces(bundle, sha), meter=meter) == sha
                    else "is damaged: its contents are not those that were written"
                )
            except BadPart as error:
                why = str(error)
        if why:
            found.append(object_fault(bundle, sha, why))
    return found


def require(faults: list[Fault], after: str, of: str = "bundle") -> None:
    """Raises one Refused that names every fault; returns when there is none."""
    if not faults:
        return
    together: dict[tuple[str, str], list[str]] = {}
    for fault in faults:
        together.setdefault((fault.where, fault.what), []).extend(fault.files)
    lines = []
    for (where, what), files in sorted(together.items()):
        lines += [f"  {where} {what}", *(f"      {one}" for one in files[:SHOWN])]
        lines += [f"      … and {len(files) - SHOWN} more"] if len(files) > SHOWN else []
    count = f"{len(together)} fault{'s' if len(together) > 1 else ''}"
    raise Refused(f"the {of} is not whole, {count}:\n" + "\n".join(lines) + f"\n{after}")


def around(bundle: Bundle) -> list[Fault]:
    """The files beside the volumes, by digest; and what lies there without being of the bundle."""
    found = []
    for name, row in bundle.held["beside"].items():
        if why := _beside(bundle.find(name), row["size"], row["sha256"]):
            found.append(Fault(name, why, (row["use"],)))
    known = {*MANIFEST, *bundle.held["beside"], *bundle.held["media"]}
    volumes = {name.split("/")[0] for name in bundle.held["media"]}
    for place in bundle.places:
        for name in _walk(place, "", volumes):
            if name in volumes:
                found.append(Fault(name, "is a link or a file, a folder was written; links are not followed: put the folder itself there"))
            elif name not in known:
                found.append(Fault(name, "does not belong to the bundle: take it away", ()))
    return found


def _beside(path: Path, size: int, sha256: str) -> str:
    """What is wrong with a file beside the volumes; looked at before it is opened, read in blocks: it may be anything by now."""
    try:
        seen = os.lstat(path)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size != size:
            return "is damaged or was exchanged"
        digest = hashlib.sha256()
        for block in blocks([Piece(path, 0, size)], [memoryview(bytearray(1 << 20))]):
            digest.update(block)
    except OSError as error:
        return f"is missing or cannot be read: {error.strerror}"
    except BadPart as error:
        return str(error)
    return "" if digest.hexdigest() == sha256 else "is damaged or was exchanged"


def _walk(place: Path, under: str, volumes: set[str]) -> Iterator[str]:
    """Files and links below a place. Folders at its top that are no volumes are named themselves, what is in them is not read."""
    for entry in sorted(os.scandir(place / under), key=lambda one: one.name):
        name = f"{under}/{entry.name}" if under else entry.name
        if LITTER.fullmatch(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False) and (under or name in volumes):
            yield from _walk(place, name, volumes)
        else:
            yield name


def broken_media(bundle: Bundle) -> dict[str, str]:
    """Files of the medium that a look at their size already rules out → why."""
    broken = {}
    for medium, size in bundle.held["media"].items():
        try:
            seen = os.lstat(bundle.find(medium))
        except OSError as error:
            broken[medium] = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
            continue
        if not stat.S_ISREG(seen.st_mode):
            broken[medium] = "is a link or no plain file; links are not followed"
        elif seen.st_size != size:
            broken[medium] = f"is {seen.st_size:,} bytes long, {size:,} were written"
    return broken


def fault_of(bundle: Bundle, sha: str, broken: dict[str, str]) -> str:
    """Why this object cannot be whole; empty when it may be."""
    return next((broken[part.medium] for part in bundle.objects[sha] if part.medium in broken), "")


def object_fault(bundle: Bundle, sha: str, what: str) -> Fault:
    """The fault of one object: which files of the medium, and each file that it stands for with its use."""
    media = list(dict.fromkeys(part.medium for part in bundle.objects[sha]))
    return Fault(
        " or ".join(media) or "(empty)", what, tuple(f"{row['path']} ({bundle.used_for[row['component']]})" for row in bundle.rows[sha])
    )


def in_order(bundle: Bundle) -> Iterable[str]:
    """Objects as they lie on the medium, so that it is read from beginning to end."""
    return sorted(bundle.objects, key=lambda sha: bundle.objects[sha][:1])


def pieces(bundle: Bundle, sha: str) -> list[Piece]:
    """An object's parts as pieces of files."""
    return [Piece(bundle.find(part.medium), part.offset, part.length) for part in bundle.objects[sha]]


def verify_unpacked(folder: Path, bundle: Bundle, copier: Copier) -> list[Fault]:
    """Faults of a folder into which this bundle was unpacked: carried files against their digests, the project's own files too."""
    found = []
    meter = Meter("checking", sum(bundle.held["objects"][row["sha256"]]["size"] for row in bundle.held["files"]))
    for row in bundle.held["files"]:
        path = folder / row["path"]
        try:
            size = bundle.held["objects"][row["sha256"]]["size"]
            same = os.lstat(path).st_size == size and copier.pour([Piece(path, 0, size)], meter=meter) == row["sha256"]
            why = "" if same else "is not as it was unpacked"
        except (OSError, BadPart):
            why = "is missing or cannot be read"
        if why:
            found.append(Fault(row["path"], why, (bundle.used_for[row["component"]],)))
    return found
