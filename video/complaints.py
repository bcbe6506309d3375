"""What native decoders write to standard error: the only way in which some of them tell that a picture was patched up.

Knows no decoder. The process's file descriptor 2 is turned aside inside the block, so this belongs into a worker process.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO


class Complaints:
    """`new()` tells whether anything was written since it was last asked; `lines` are all of them so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._seen = file, 0

    def new(self) -> bool:
        size = os.fstat(self._file.fileno()).st_size
        fresh, self._seen = size > self._seen, size
        return fresh

    @property
    def lines(self) -> list[str]:
        return os.pread(self._file.fileno(), os.fstat(self._file.fileno()).st_size, 0).decode(errors="replace").splitlines()


@contextmanager
def complaints() -> Iterator[Complaints]:
    """Listens while the block runs."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield Complaints(file)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
