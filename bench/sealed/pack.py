"""Makes a bundle: gathers and checks everything first, then writes volumes, bill of materials, unpacker, manifest and signature.

Try: python -m bench bundle --out /tmp/bundle --volume 4G. What lies in a bundle: docs/airgapped.md.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.sealed.items import Component, Item, nearest
from bench.sealed.sbom import sbom
from bench.sealed.sign import public_of, sign
from bench.sealed.unpacker.check import LITTER
from bench.sealed.unpacker.errors import Refused
from bench.sealed.unpacker.manifest import FORMAT, VERSION, parse
from bench.sealed.volumes import JOURNAL, Volumes
from models.errors import ConfigError
from models.progress import progress

UNPACKER = ("bench/__init__.py", "bench/sealed/__init__.py", "bench/sealed/unpacker/")
README = """A bundle of the project untamed, for a machine without a network.

    python{python} unbundle.pyz --verify                  checks every byte, writes nothing
    python{python} unbundle.pyz --to /srv/untamed         checks, copies, installs; then: cd /srv/untamed && make bench

With a key that you have from its maker by another way: add --key public.pem (or its 64 hexadecimal digits).
unbundle.pyz came with the bundle: to trust it as well, compare its sha256 with the one that its maker tells you,
or check the bundle with a copy of your own: make verify FROM=this folder, in a clone.
"""


@dataclass(frozen=True)
class Contents:
    """Everything that a bundle will hold, checked. `target`: the manifest's row; `root`: the project as a component."""

    items: tuple[Item, ...]
    components: tuple[Component, ...]
    root: Component
    target: dict[str, Any]
    environments: tuple[tuple[str, str], ...]
    system: tuple[dict[str, str], ...]
    accepted: Mapping[str, str]
    uncommitted: int


@dataclass(frozen=True)
class Written:
    """What was written: bytes of the volumes, how many there are, and whether anything had changed since the last time."""

    bytes: int
    volumes: int
    files: int
    new: bool
    unpacker_sha256: str
    public: str


def refuse(out: Path, key: Path | None) -> None:
    """Raises ConfigError for a key or a folder that `write` would refuse; writes nothing: to be asked before a long download."""
    if key:
        public_of(key)
    nearest(out, "OUT")
    _empty_or_bundle(out)


def write(contents: Contents, out: Path, limit: int, key: Path | None = None) -> Written:
    """The bundle at `out`, continued where an earlier run stopped. Raises ConfigError, DataError, OSError."""
    public = public_of(key).hex() if key else ""  # a wrong key is told before hours of copying
    names = [item.path for item in contents.items]
    if doubled := sorted({name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()):
        raise ConfigError(f"two sources would become {doubled[0]}", remedy="rename one of the folders")
    with _mine(out):
        total = sum(item.size for item in contents.items)
        with progress("bundle, MB", total // 10**6) as bar:
            volumes = Volumes(out, limit, lambda done, words: bar(done // 10**6, words[-50:]))
            _room(contents.items, volumes, out)
            rows: list[dict[str, Any]] = []
            for item in contents.items:
                sha = volumes.add(item)
                rows.append({"path": item.path, "sha256": sha, "component": item.component, **({"x": True} if item.executable else {})})
            volumes.finish({str(row["sha256"]) for row in rows})
        old = _old(out)
        beside, manifest = _describe(contents, rows, volumes, public, str(old.get("made", "")))
        new = manifest != old
        if new:
            beside, manifest = _describe(contents, rows, volumes, public, datetime.now(UTC).isoformat(timespec="seconds"))
        raw = (json.dumps(manifest, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
        try:
            parse(raw)  # what we write, every unpacker must be able to read
        except Refused as error:
            raise ConfigError(f"no unpacker would read this bundle: {error}", remedy="rename what is named there") from None
        for name, blob in beside.items():
            _put(out / name, blob)
        (out / "manifest.sig").unlink(missing_ok=True)
        if key:
            _put(out / "manifest.sig", sign(key, raw).hex().encode() + b"\n")
        _put(out / "manifest.json", raw)
        _put(out / "manifest.sha256", f"{hashlib.sha256(raw).hexdigest()}  manifest.json\n".encode())
    unpacker = hashlib.sha256(beside["unbundle.pyz"]).hexdigest()
    return Written(sum(volumes.media.values()), len({one.split("/")[0] for one in volumes.media}), len(rows), new, unpacker, public)


def _describe(
    contents: Contents, rows: Sequence[Mapping[str, Any]], volumes: Volumes, public: str, made: str
) -> tuple[dict[str, bytes], dict[str, Any]]:
    digests: dict[str, dict[str, str]] = {}
    for row in rows:
        digests.setdefault(row["component"], {})[row["path"]] = row["sha256"]
    beside = {
        "unbundle.pyz": unpacker(contents.items),
        "README.txt": README.format(python=contents.target["python"]).encode(),
        "sbom.cdx.json": sbom(contents.root, contents.components, digests, made),
    }
    uses = {"unbundle.pyz": "checks and unpacks the bundle", "README.txt": "says how", "sbom.cdx.json": "bill of materials (CycloneDX)"}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "made": made,
        "project": {**contents.root.facts, "version": contents.root.version, "uncommitted_files": contents.uncommitted},
        "target": contents.target,
        "environments": [{"extra": extra, "folder": folder} for extra, folder in contents.environments],
        "system": list(contents.system),
        "accepted_licences": dict(contents.accepted),
        "signed_by": public,
        "components": [
            {
                "id": one.id,
                "kind": one.kind,
                "name": one.name,
                "version": one.version,
                "licence": one.licence,
                "licence_from": one.licence_from,
                "use": one.use,
                **({"facts": one.facts} if one.facts else {}),
            }
            for one in sorted((contents.root, *contents.components), key=lambda one: one.id)
        ],
        "files": sorted(rows, key=lambda row: str(row["path"])),
        "objects": {sha: {"size": one.size, "parts": [list(part) for part in one.parts]} for sha, one in volumes.stored.items()},
        "media": volumes.media,
        "beside": {
            name: {"size": len(blob), "sha256": hashlib.sha256(blob).hexdigest(), "use": uses[name]} for name, blob in beside.items()
        },
    }
    return beside, manifest


def unpacker(items: Sequence[Item]) -> bytes:
    """unbundle.pyz from the commit's own sources: a zip that Python runs, uncompressed so that it can be read, the same every time."""
    sources = {item.path: item.source for item in items if item.path.startswith(UNPACKER) and item.path.endswith(".py")}
    sources["__main__.py"] = sources["bench/sealed/unpacker/__main__.py"]
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, raw in sorted(sources.items()):
            assert isinstance(raw, bytes)
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), raw)
    return target.getvalue()


@contextmanager
def _mine(out: Path) -> Iterator[None]:
    """The folder, made or known as a bundle's, and held by this process alone."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        _empty_or_bundle(out)
        (out / JOURNAL).touch()
    except FileExistsError:
        raise ConfigError(f"OUT={out} is a file", remedy="give a folder") from None
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES):
            raise ConfigError(f"OUT={out} cannot be written: {error.strerror}", remedy="is the medium write-protected?") from None
        raise
    handle = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ConfigError(f"another process is writing to OUT={out}", remedy="wait for it") from None
    finally:
        os.close(handle)


def _empty_or_bundle(out: Path) -> None:
    there = [one.name for one in out.iterdir() if not LITTER.fullmatch(one.name)] if out.is_dir() else []
    if there and not (out / JOURNAL).exists() and _old(out).get("format") != FORMAT:
        raise ConfigError(f"OUT={out} is not empty ({sorted(there)[0]} …) and no bundle", remedy=f"give a folder of its own: {out}/bundle")


def _room(items: Sequence[Item], volumes: Volumes, out: Path) -> None:
    """Refuses when not even contents of different sizes fit: the least that must be written."""
    least = sum({item.size for item in items}) - sum(volumes.media.values())
    free = shutil.disk_usage(out).free
    if least > free:
        raise ConfigError(f"{least / 1e9:.2f} GB are to be written to OUT={out}, {free / 1e9:.2f} GB are free", remedy="a larger medium")


def _old(out: Path) -> dict[str, Any]:
    try:
        held = json.loads((out / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}


def _put(path: Path, blob: bytes) -> None:
    half = path.with_name(f".half-{path.name}")
    with half.open("wb") as file:
        file.write(blob)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)
