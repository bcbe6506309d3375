"""Writes objects into volumes: each content once, no file and no volume above a size, and what is finished survives a kill.

A volume is a folder (volume-001, …) that fits on a medium of its own. Large contents become files of their own there, in parts where they
do not fit; small ones share pack files, because a stick takes seconds for thousands of files. Every file gets its name when it is whole
and on the disk; then the journal learns of it, and the next run does not write it again. Knows no manifest.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.sealed.items import Item, gone, look
from bench.sealed.unpacker.copying import Copier, Piece
from bench.sealed.unpacker.errors import BadPart
from bench.sealed.unpacker.manifest import Part
from models.errors import ConfigError, DataError
from models.progress import Tell

JOURNAL = ".bundle-journal.jsonl"
FAT32_FILE = 2**32 - 1  # the longest file that FAT32 holds
SMALL, PACK = 256 << 10, 64 << 20
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def parse_size(text: str) -> int:
    """Bytes of `4G`, `4.7GB`, `4GiB`, `700M`; a G is 10⁹, as media are sold. Raises ConfigError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?", text.strip(), re.I)
    size = int(float(found[1]) * UNITS[found[2].upper()]) if found and found[2].upper() in UNITS else 0
    if size < 64_000:
        raise ConfigError(f"volume size {text!r}", remedy="a number with K, M, G or T (or KiB … TiB), 64K at least: 4G, 4.7G, 25G")
    return size


@dataclass(frozen=True)
class Stored:
    """Where one content lies. `seen`: the source's path, inode, size and time when it was read, to know it again."""

    sha256: str
    parts: tuple[Part, ...]
    seen: tuple[str, int, int, int] | None = None

    @property
    def size(self) -> int:
        return sum(part.length for part in self.parts)


class Volumes:
    """The volumes of one bundle folder, continued where an earlier run stopped.

    Args:
        limit: bytes of one volume.
        tell: (bytes done so far, words) for a progress bar.
    """

    def __init__(self, out: Path, limit: int, tell: Tell) -> None:
        self.out, self.limit, self.tell, self.done = out, limit, tell, 0
        self.copier = Copier()
        self.stored: dict[str, Stored] = {}
        self.by_source: dict[tuple[str, int, int, int], Stored] = {}
        self.media: dict[str, int] = {}
        self.sizes: set[int] = set()
        self.pack, self.waiting = io.BytesIO(), list[tuple[str, int, int]]()
        self.used: dict[str, int] = {}
        self._resume()

    def add(self, item: Item) -> str:
        """Stores an item's contents unless they are there; its sha256. Raises DataError when it changes or cannot be read meanwhile."""
        size = item.size
        if size <= min(SMALL, self.limit // 8):
            sha = self._small(_raw(item.source))
        elif isinstance(item.source, bytes):
            half = self.out / ".half-source"
            half.write_bytes(item.source)
            sha = self._large(half, size, Path(item.path).name)
            half.unlink()
        else:
            sha = self._large(item.source, size, item.source.name)
        self.done += size
        self.tell(self.done, item.path)
        return sha

    def finish(self, needed: set[str]) -> None:
        """Writes what waits, and removes files that none of the needed contents lies in."""
        self._close_pack()
        self.stored = {sha: one for sha, one in self.stored.items() if sha in needed}
        keep = {part.medium for one in self.stored.values() for part in one.parts}
        for medium in [one for one in self.media if one not in keep]:
            self._forget(medium)
        for path in self.out.glob("volume-*/*"):
            if path.relative_to(self.out).as_posix() not in keep and not path.is_dir():
                path.unlink()
        for folder in self.out.glob("volume-*"):
            if not any(folder.iterdir()):
                folder.rmdir()

    # ---- small contents ----

    def _small(self, contents: bytes) -> str:
        sha = hashlib.sha256(contents).hexdigest()
        if sha in self.stored or any(sha == one for one, _, _ in self.waiting):
            return sha
        if self.pack.tell() + len(contents) > min(PACK, self.limit // 4):
            self._close_pack()
        self.waiting.append((sha, self.pack.tell(), len(contents)))
        self.pack.write(contents)
        return sha

    def _close_pack(self) -> None:
        if not self.waiting:
            return
        contents = self.pack.getvalue()
        volume, _ = self._room(len(contents))
        medium = f"{volume}/{hashlib.sha256(contents).hexdigest()[:12]}-pack"
        self._write_small(medium, contents)
        for sha, offset, length in self.waiting:
            self._remember(Stored(sha, (Part(medium, offset, length),) if length else ()))
        self.pack, self.waiting = io.BytesIO(), []

    def _write_small(self, medium: str, contents: bytes) -> None:
        path = self.out / medium
        half = path.with_name(".half")
        with half.open("wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
        self._count(medium, len(contents))

    # ---- large ones ----

    def _large(self, source: Path, size: int, name: str) -> str:
        stat = look(source)
        seen = (str(source.resolve()), stat.st_ino, size, stat.st_mtime_ns)
        if seen in self.by_source:
            return self.by_source[seen].sha256
        try:
            if size in self.sizes:  # perhaps the same contents: reading twice is cheaper than writing twice
                sha = self.copier.pour([Piece(source, 0, size)])
                if sha in self.stored:
                    self._remember(Stored(sha, self.stored[sha].parts, seen))
                    return sha
            plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[-150:].rstrip(".")  # FAT drops dots at the end
            stored = self._write_large(source, size, plain, seen)
        except BadPart as error:
            raise DataError(str(error), where=str(source), remedy="is it being written? run the same command again") from None
        after = look(source)
        if (after.st_size, after.st_mtime_ns) != (size, stat.st_mtime_ns):
            raise DataError("changed while it was being read", where=str(source), remedy="run the same command again")
        self._remember(stored)
        return stored.sha256

    def _write_large(self, source: Path, size: int, name: str, seen: tuple[str, int, int, int]) -> Stored:
        halves, offset = list[tuple[str, Path, int]](), 0
        digest = hashlib.sha256()
        while offset < size:
            volume, room = self._room(min(size - offset, 1 << 20))
            length = min(size - offset, room, FAT32_FILE)
            half = self.out / volume / f".half-{len(halves)}"
            with half.open("wb") as file:
                self.copier.pour([Piece(source, offset, length)], file, digest=digest)
                os.fsync(file.fileno())
            self._count(f"{volume}/{half.name}", length)  # takes the volume's room until it has its name
            halves.append((volume, half, length))
            offset += length
        sha, parts = digest.hexdigest(), []
        for number, (volume, half, length) in enumerate(halves, 1):
            medium = f"{volume}/{sha[:12]}-{name}" + (f".{number:03}" if len(halves) > 1 else "")
            half.replace(self.out / medium)
            self._forget(f"{volume}/{half.name}")
            self._count(medium, length)
            parts.append(Part(medium, 0, length))
        return Stored(sha, tuple(parts), seen)

    # ---- room, and memory of what is there ----

    def _room(self, least: int) -> tuple[str, int]:
        """The first volume that has room for `least` bytes (or is empty), made if need be, and how many it has."""
        for number in itertools.count(1):
            volume = f"volume-{number:03}"
            room = self.limit - self.used.get(volume, 0)
            if room >= min(least, self.limit):
                (self.out / volume).mkdir(parents=True, exist_ok=True)
                return volume, room
        raise AssertionError("a new volume is empty")

    def _count(self, medium: str, size: int) -> None:
        self._forget(medium)
        self.media[medium] = size
        self.used[medium.split("/")[0]] = self.used.get(medium.split("/")[0], 0) + size

    def _forget(self, medium: str) -> None:
        self.used[medium.split("/")[0]] = self.used.get(medium.split("/")[0], 0) - self.media.pop(medium, 0)

    def _remember(self, one: Stored) -> None:
        self._know(one)
        row = {"sha256": one.sha256, "parts": one.parts, "seen": one.seen}
        with (self.out / JOURNAL).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _know(self, one: Stored) -> None:
        self.stored[one.sha256] = one
        self.sizes.add(one.size)
        if one.seen:
            self.by_source[one.seen] = one

    def _resume(self) -> None:
        """Takes up what the journal names and the disk holds; a line that a kill cut off is no line."""
        journal = self.out / JOURNAL
        ends: dict[str, int] = {}
        found = []
        for line in journal.read_text(encoding="utf-8").splitlines() if journal.is_file() else []:
            try:
                row: dict[str, Any] = json.loads(line)
                one = Stored(row["sha256"], tuple(Part(*part) for part in row["parts"]), tuple(row["seen"]) if row["seen"] else None)
            except (ValueError, KeyError, TypeError):
                continue
            found.append(one)
            for part in one.parts:
                ends[part.medium] = max(ends.get(part.medium, 0), part.offset + part.length)
        for path in self.out.glob("volume-*/*"):
            medium = path.relative_to(self.out).as_posix()
            if medium in ends and path.stat().st_size == ends[medium]:
                self._count(medium, ends[medium])
            elif not path.is_dir():
                path.unlink()  # half-written, or not ours
        for medium in [one for one in self.media if self.used[one.split("/")[0]] > self.limit]:  # made for a larger size
            (self.out / medium).unlink()
            self._forget(medium)
        for one in found:
            if all(part.medium in self.media for part in one.parts):
                self._know(one)


def _raw(source: Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return source.read_bytes()
    except OSError as error:
        raise gone(source, error) from None
