"""Hashing while copying, in big blocks, with progress. Opens plain files only: a link on a medium could lead anywhere.

Knows no manifest. Its speed beside `cp` and `sha256sum`: python -m bench.sealed.speed
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple

from bench.sealed.unpacker.errors import BadPart

BLOCK = 4 << 20


class Piece(NamedTuple):
    """`length` bytes of a file from `offset` on."""

    path: Path
    offset: int
    length: int


def _open(path: Path) -> BinaryIO:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe would wait for a writer
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise BadPart(f"{path.name} is no plain file")
    except FileNotFoundError:
        raise BadPart(f"{path.name} is missing") from None
    except OSError as error:
        raise BadPart(f"{path.name} cannot be read: {'it is a link' if path.is_symlink() else error.strerror}") from None
    return os.fdopen(handle, "rb", buffering=0)


def blocks(pieces: Iterable[Piece], buffers: Sequence[memoryview]) -> Iterator[memoryview]:
    """The bytes of these pieces in turn, in the buffers in turn: a block stays good until as many more have been taken. Raises BadPart."""
    turn = 0
    for path, offset, length in pieces:
        with _open(path) as file:
            file.seek(offset)
            while length:
                view = buffers[turn][: min(length, len(buffers[turn]))]
                turn = (turn + 1) % len(buffers)
                try:
                    got = file.readinto(view)  # type: ignore[attr-defined]
                except OSError as error:
                    raise BadPart(f"{path.name} cannot be read: {error.strerror}") from None
                if not got:
                    raise BadPart(f"{path.name} is cut short")
                yield view[:got]
                length -= got


class Copier:
    """Copies and hashes in one pass: a second thread hashes a block (hashlib lets go of the interpreter) while the next is on its way."""

    def __init__(self) -> None:
        self.buffers = [memoryview(bytearray(BLOCK)) for _ in range(4)]
        self.pool = ThreadPoolExecutor(1)

    def pour(
        self, pieces: Sequence[Piece], target: BinaryIO | None = None, meter: Meter | None = None, digest: hashlib._Hash | None = None
    ) -> str:
        """The sha256 of the pieces (of all that `digest` has seen), which are written to `target` as well.

        Raises BadPart for the pieces, OSError for the target.
        """
        digest = digest or hashlib.sha256()
        busy: deque[Future[None]] = deque()
        try:
            for block in blocks(pieces, self.buffers):
                busy.append(self.pool.submit(digest.update, block))
                if target is not None:
                    target.write(block)
                if meter is not None:
                    meter.add(len(block))
                while len(busy) > len(self.buffers) - 2:
                    busy.popleft().result()
        finally:
            for one in busy:
                one.result()
        return str(digest.hexdigest())


class Meter:
    """Bytes, rate and time left on a terminal's last line; nothing elsewhere."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done, self.begun, self.told = title, total, 0, time.monotonic(), 0.0
        self.shown = sys.stderr.isatty()

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if self.shown and now - self.told > 0.2:
            self.told, rate = now, self.done / max(1e-6, now - self.begun)
            left = (self.total - self.done) / max(1.0, rate)
            done, clock = f"{self.done / 1e9:.2f} of {self.total / 1e9:.2f} GB", f"{left // 60:.0f}:{left % 60:02.0f} left"
            text = f"{self.title} {done}, {rate / 1e6:.0f} MB/s, {clock}"
            print(f"\r{text:<76}", end="\n" if self.done >= self.total else "", file=sys.stderr, flush=True)
