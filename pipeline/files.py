"""Writing so that a kill or a power cut leaves the old or the new, never a half: flush to disk, then rename.

Try: python -c "from pathlib import Path; from pipeline.files import replace; replace(Path('x'), b'new')"
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.errors import DataError


def sync(path: Path) -> None:
    """Flush a file or a folder's list of names to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        sync(path)
    sync(folder)


def replace(path: Path, content: bytes) -> None:
    """`path` holds `content`, whole; whoever reads it meanwhile sees the old bytes or the new ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder against a second writer; a killed holder lets go by itself. Raises DataError when it is taken."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError("another process is writing to it", where=str(folder), remedy="wait for it, then run again") from None
        yield
