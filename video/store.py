"""The frame store on disk: one folder per clip and options, complete or absent.

    <root>/frames/<clip digest>-<options digest>/   0001.jpg … index.json
    <root>/index/<clip digest>.json                 what the demux pass learned
    <root>/digests/                                 digests of unchanged files

An entry is made under a temporary name while its lock is held, and renamed when whole; a second process that wants it waits and finds
it. The lock goes when its process dies. Everything here may be deleted at any time. Knows files, not decoders.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from video.errors import StoreError


@dataclass(frozen=True)
class FrameRecord:
    """One written frame. ``time`` in seconds since the clip's first frame, ``number`` in presentation order, ``pts`` in the clip's own
    unit; all None for a still picture. ``flags``: ``damaged`` where the decoder or the file's own soundness casts doubt on the
    pixels."""

    file: str
    bytes: int
    width: int
    height: int
    source: str
    time: float | None = None
    number: int | None = None
    pts: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """What ``index.json`` says: the frames, how they were made, and what to know about them."""

    source: str
    strategy: str
    decoder: str
    reason: str
    frames: tuple[FrameRecord, ...]
    missing: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1)

    @staticmethod
    def from_json(text: str) -> Entry:
        data: dict[str, Any] = json.loads(text)
        frames = tuple(FrameRecord(**{**frame, "flags": tuple(frame["flags"])}) for frame in data.pop("frames"))
        return Entry(**{**data, "frames": frames, "missing": tuple(data["missing"]), "notes": tuple(data["notes"])})


def folder(root: Path, key: str) -> Path:
    return root / "frames" / key


def read(root: Path, key: str) -> Entry | None:
    """The entry if it is whole; None if it is absent, or if somebody took files out of it."""
    place = folder(root, key)
    try:
        entry = Entry.from_json((place / "index.json").read_text())
        whole = all((place / frame.file).stat().st_size == frame.bytes for frame in entry.frames)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return entry if whole else None


@contextmanager
def locked(root: Path, key: str) -> Iterator[None]:
    """Alone with one entry, among all processes of this machine; waits for whoever has it."""
    try:
        lock = root / "locks" / key
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = lock.open("ab")
    except OSError as error:
        raise StoreError(f"cannot write ({error.strerror})", where=str(root), remedy="choose a folder that can be written") from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def building(root: Path, key: str) -> Iterator[Path]:
    """A fresh temporary folder, which becomes the entry when the block ends well and vanishes when it does not. Hold the lock."""
    final, temporary = folder(root, key), root / "frames" / f".{key}.part"
    try:
        shutil.rmtree(temporary, ignore_errors=True)  # left by a process that was killed; the lock says that nobody is at work on it
        temporary.mkdir(parents=True)
        yield temporary
        sync(temporary)
        if final.exists():
            shutil.rmtree(final)  # incomplete, or it would have been used
        temporary.rename(final)
        sync(final.parent)
    except OSError as error:
        raise StoreError(f"cannot write ({error.strerror})", where=str(root), remedy="free space, or choose another folder") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def put(place: Path, name: str, data: bytes) -> int:
    """Write one file of an entry that is being built, through to the disk; returns its size in bytes."""
    with (place / name).open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return len(data)


def sync(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def paths(root: Path, key: str, frames: Sequence[FrameRecord]) -> tuple[Path, ...]:
    return tuple(folder(root, key) / frame.file for frame in frames)
