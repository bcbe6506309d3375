"""Writing so that a kill or a power cut leaves the old or the new, never a half: a name aside, flush to disk, rename.

Everything outside of video/ (which imports no other room) writes its files, and tells them by their sha256, through here.
Try: python -c "from pathlib import Path; from models.files import replace; replace(Path('x'), 'new')"
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from models.errors import ConfigError


def sha256(path: Path) -> str:
    """The file's digest in hex, read in blocks. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file or a folder's list of names to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that becomes `path` when the block ends well, whole and on the disk, and vanishes when it does not. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:80]}.", suffix=".part")
    aside = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o666 & ~_umask())
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def replace(path: Path, content: bytes | str) -> None:
    """`path` holds `content`, whole; whoever reads it meanwhile sees the old bytes or the new ones. Text is written as UTF-8.

    Lone surrogates, which a model's reply may hold, are written as they are. Raises OSError.
    """
    with replacing(path) as file:
        file.write(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)


def writable(path: Path) -> None:
    """Raises ConfigError when a file of this name could not be written: for the beginning of long work whose end writes it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(21, "is a folder")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", where=str(path), remedy="give another place with --out") from None


def _umask() -> int:
    """This process's mask for new files, which can only be read by setting it; mkstemp's own mode would keep other users out."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
