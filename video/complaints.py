"""What native decoders write to standard error: the only way in which some of them tell that a picture was patched up.

Knows no decoder. The process's file descriptor 2 is turned aside inside the block, so this belongs into a worker process.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

# Said of H.264 after every seek into an open group: its leading pictures lack a reference and are not wanted. No sign of damage there,
# and the plainest one everywhere else: HEVC's decoder leaves such pictures out without a word.
_HARMLESS = re.compile(
    "co located POCs|mmco:|eference picture|issing reference|Could not find ref|Frame num gap|first_slice|RPS|last message repeated", re.I
)


class Complaints:
    """`new()` tells whether damage was spoken of since it was last asked; `lines` are all complaints so far."""

    def __init__(self, file: IO[bytes], excused: re.Pattern[str] | None = None) -> None:
        self._file, self._seen, self._excused = file, 0, excused

    def new(self) -> bool:
        size = os.fstat(self._file.fileno()).st_size
        fresh = self._read(self._seen, size) if size > self._seen else []
        self._seen = size
        return any(self._excused is None or not self._excused.search(line) for line in fresh)

    @property
    def lines(self) -> list[str]:
        return self._read(0, os.fstat(self._file.fileno()).st_size)

    def _read(self, begin: int, end: int) -> list[str]:
        text = os.pread(self._file.fileno(), end - begin, begin).decode(errors="replace")
        return [line for line in text.splitlines() if line.strip()]


@contextmanager
def complaints(seeks_into_open_groups: bool = False) -> Iterator[Complaints]:
    """Listens while the block runs. What only a seek into an open group explains is excused where there can be one."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield Complaints(file, _HARMLESS if seeks_into_open_groups else None)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
