"""sha256 of large files, computed once: kept by device, inode, name, size and time of change. And what a folder says its files should be.

A digest is asked for again only when one of the five differs (or with `again`). Knows no model, only files.

Try: python -m models list --in FOLDER
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from models.errors import ModelError

KEPT = Path(".cache/digests.jsonl")
_PIECE = 4 << 20
_METADATA = Path(".cache/huggingface/download")  # written by `hf download --local-dir`: commit, etag, time, one a line
_SUMS = ("SHA256SUMS", "SHA256SUM", "sha256sums.txt", "checksums.sha256")
_HEX = frozenset("0123456789abcdef")
Tell = Callable[[int], None]
"""Takes the bytes that were read since it was last called."""


class Digests:
    """The kept digests: one JSON line each, appended in one write, so that a kill costs at most the last one.

    Args:
        path: where they are kept; a folder that cannot be written means that they are computed each time.
        again: ask every file again.
    """

    def __init__(self, path: Path = KEPT, *, again: bool = False) -> None:
        self.path, self._known = path, {} if again else _read(path)

    def known(self, path: Path) -> str | None:
        """The digest, if it has been computed for this very state of the file."""
        return self._known.get(_key(path))

    def of(self, path: Path, tell: Tell | None = None) -> str:
        """sha256 of the file as hexadecimal. Raises ModelError when the file changes meanwhile, OSError when it cannot be read."""
        key = _key(path)
        if key in self._known:
            return self._known[key]
        found, sha256 = hashlib.sha256(), b""
        with path.open("rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                found.update(piece)
                if tell is not None:
                    tell(len(piece))
        sha256 = found.digest()
        if _key(path) != key:
            raise ModelError("changed while it was read", where=str(path), remedy="wait until it is copied, then ask again")
        self._known[key] = sha256.hex()
        self._keep(key, sha256.hex())
        return sha256.hex()

    def _keep(self, key: str, digest: str) -> None:
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, f"\n{json.dumps([key, digest])}".encode())
            finally:
                os.close(descriptor)


def _key(path: Path) -> str:
    seen = path.stat()
    return f"{seen.st_dev}:{seen.st_ino}:{path.name}:{seen.st_size}:{seen.st_mtime_ns}"


def _read(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, TypeError):
                key, digest = json.loads(line)
                if isinstance(key, str) and _is_hex(digest, 64):
                    found[key] = digest
    return found


def published(folder: Path) -> dict[str, str]:
    """File name → what it should be, as the folder itself tells: a sha256 (64 digits) or a git blob's sha1 (40), lower case.

    Read from the notes that `hf download --local-dir` leaves, from the names of the blobs in a hub's cache, and from SHA256SUMS files.
    """
    found: dict[str, str] = {}
    for name in _SUMS:
        with contextlib.suppress(OSError):
            for line in (folder / name).read_text(encoding="utf-8", errors="replace").splitlines():
                digest, _, file = line.strip().partition(" ")
                file = file.strip().lstrip("*").removeprefix("./")
                if _is_hex(digest.lower(), 64) and file:
                    found[file] = digest.lower()
    for note in sorted((folder / _METADATA).glob("**/*.metadata")):
        with contextlib.suppress(OSError, IndexError):
            etag = note.read_text(encoding="utf-8", errors="replace").splitlines()[1].strip().strip('"').lower()
            if _is_hex(etag, 64) or _is_hex(etag, 40):
                found[str(note.relative_to(folder / _METADATA)).removesuffix(".metadata")] = etag
    for path in _links(folder):
        blob = path.resolve()
        if blob.parent.name == "blobs" and (_is_hex(blob.name, 64) or _is_hex(blob.name, 40)):
            found[path.name] = blob.name
    return found


def differing(folder: Path, wanted: Mapping[str, str], digests: Digests, tell: Tell | None = None) -> list[str]:
    """The files of `wanted` that are missing or are not what they should be, one clause each."""
    faults = []
    for name, digest in sorted(wanted.items()):
        path = folder / name
        if path.name != name and not path.resolve().is_relative_to(folder.resolve()):
            continue
        try:
            found = digests.of(path, tell) if len(digest) == 64 else _blob(path)
        except FileNotFoundError:
            faults.append(f"{name} is missing")
            continue
        except (OSError, ModelError) as error:
            faults.append(f"{name} cannot be read: {error}")
            continue
        if found != digest:
            faults.append(f"{name} is not the published file ({found[:12]}… instead of {digest[:12]}…)")
    return faults


def _blob(path: Path) -> str:
    data = path.read_bytes()  # git keeps only small files under this digest
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _links(folder: Path) -> Iterable[Path]:
    with contextlib.suppress(OSError):
        yield from (path for path in folder.iterdir() if path.is_symlink() and path.is_file())


def _is_hex(text: object, digits: int) -> bool:
    return isinstance(text, str) and len(text) == digits and set(text) <= _HEX
