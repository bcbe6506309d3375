"""Names a file by its content, and reads an unchanged file only once.

The digest of a file is remembered beside its size, times and inode. A file written less than ``RACY`` seconds before it was read is
read again next time: two writes within one tick of the clock would look alike (the reason of git's "racy" entries). Knows no pictures.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

from video.errors import ClipMissing, StoreError

RACY = 2.0
LENGTH = 32  # hex digits of a digest


def content_digest(path: Path, memory: Path) -> str:
    """32 hex digits over the bytes of ``path``.

    Args:
        memory: folder of remembered digests; may be deleted at any time.

    Raises:
        ClipMissing: no such file, a folder, or a file that may not be read.
    """
    stamp = fingerprint(path)
    note = memory / hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:LENGTH]
    try:
        known = json.loads(note.read_text())
        if known["stamp"] == stamp and known["settled"]:
            return str(known["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:LENGTH]
    except OSError as error:
        raise ClipMissing(f"cannot be read ({error.strerror})", where=str(path), remedy="check its permissions") from error
    settled = time.time() - max(stamp[1], stamp[2]) / 1e9 > RACY
    write_atomically(note, json.dumps({"stamp": stamp, "settled": settled, "digest": digest, "path": str(path)}).encode())
    return digest


def fingerprint(path: Path) -> list[int]:
    """Size, modification time, change time (ns) and inode: what a changed file cannot keep."""
    try:
        status = path.stat()
    except OSError as error:
        raise ClipMissing(f"no such file ({error.strerror})", where=str(path), remedy="check the path") from error
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "not a regular file"
        raise ClipMissing(f"is {kind}", where=str(path), remedy="give one video file, or a folder of pictures with --strategy human")
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def write_atomically(path: Path, data: bytes) -> None:
    """Write to a temporary name, flush to disk, rename: a reader sees the old file or the new one, never half."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StoreError(f"cannot write ({error.strerror})", where=str(path), remedy="free space, or choose another folder") from error
