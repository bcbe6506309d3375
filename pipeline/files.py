"""What the collections, heads and policies of this room need of files: one writer at a time, and models/files.py's writes and digests.

Try: python -c "from pathlib import Path; from pipeline.files import replace; replace(Path('x'), b'new')"
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from models.errors import DataError
from models.files import replace, sha256, sync

__all__ = ["only_writer", "replace", "sha256", "sync", "sync_all"]


def sync_all(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        sync(path)
    sync(folder)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder against a second writer; a killed one lets go. Raises DataError when it is taken or cannot be written.

    Where the block fails, what was made for it goes: the lock's file, and the folder and its parents where they were not there."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]  # innermost first
    first = not (folder / ".lock").exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror}", where=str(folder), remedy="give another folder") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError("another process is writing to it", where=str(folder), remedy="wait for it, then run again") from None
        try:
            yield
        except BaseException:
            if first:
                (folder / ".lock").unlink(missing_ok=True)
                with suppress(OSError):  # something else lies there by now: it stays
                    for path in missing:
                        path.rmdir()
            raise
