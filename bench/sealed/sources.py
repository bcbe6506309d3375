"""What a bundle is made from: the project at its commit, model folders, data sets. Each is checked before anything is written.

Knows git, model folders and data sets; no bundle, no wheel.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from bench.sealed.items import Component, Item
from bench.sealed.licences import of_folder
from bench.sealed.unpacker.manifest import check_place
from kg.check import check
from models import checkpoint
from models.errors import ConfigError, DataError, ModelError
from models.locate import locate
from models.shape import read_config
from models.weights import PICKLES, look

# role → what it is for. The first two are chat models and must have tokenizer and template.
ROLES = {
    "answer": "answers questions",
    "judge": "judges answers",
    "text-encoder": "text encoder",
    "image-encoder": "picture encoder",
    "relevance": "relevance classifier",
    "metric": "metric model",
    "ner": "finds names in text",
}
LEFT_OUT = (*PICKLES, "*.h5", "*.msgpack", "*.ot", "*.onnx", ".git", ".cache", "__pycache__", ".DS_Store", "*.lock", "*.incomplete")


def project(root: Path) -> tuple[list[Item], Component, dict[str, str], int]:
    """HEAD's files, the project as a component, the locks as HEAD has them, and how many files differ from HEAD (they are not carried)."""
    commit = _git(root, "rev-parse", "HEAD").decode().strip()
    changed = len(_git(root, "status", "--porcelain").splitlines())
    items, locks, version = [], {}, ""
    with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", "--format=tar", "HEAD"))) as archive:
        for member in archive:
            if member.isdir():
                continue
            if member.name.split("/")[0] == "carried":
                raise ConfigError(f"{member.name} is in the commit", remedy="carried/ is where a bundle's models and data go: git mv it")
            if not member.isfile():
                raise ConfigError(f"{member.name} in the commit is a link", remedy="a bundle carries plain files only: replace it")
            contents = archive.extractfile(member)
            raw = contents.read() if contents else b""
            items.append(Item(_named(member.name, root), raw, "project:untamed", bool(member.mode & 0o100)))
            if member.name.startswith("locks/"):
                locks[member.name.removeprefix("locks/")] = raw.decode()
            if member.name == "pyproject.toml":
                version = next(line.split('"')[1] for line in raw.decode().splitlines() if line.startswith("version"))
    if "pip.txt" not in locks:
        raise ConfigError("this commit has no locks/pip.txt", remedy="commit the locks, or take a newer commit")
    use = "the project itself, with its embedded model"
    return items, Component("project", "untamed", version, "Apache-2.0", "LICENSE", use, {"commit": commit}), locks, changed


def _git(root: Path, *words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, check=False)
    if done.returncode:
        said = (done.stderr.decode(errors="replace").strip().splitlines() or ["git said nothing"])[0]
        raise ConfigError(f"git {words[0]} failed: {said}", remedy="a bundle is made from a git clone with a commit")
    return done.stdout


def models(given: str) -> tuple[list[Item], list[Component]]:
    """Model folders, `[ROLE=]FOLDER` with colons between; a folder without a role answers. Raises ModelError or ConfigError."""
    roles: dict[Path, list[str]] = {}
    for one in filter(None, given.split(":")):
        role, mark, name = one.rpartition("=")
        if mark and role not in ROLES:
            raise ConfigError(f"unknown role {role!r} of {name}", remedy=f"one of: {', '.join(ROLES)}")
        if not name:  # an empty path would be the working folder
            raise ConfigError(f"MODELS holds {one!r}, without a folder", remedy="ROLE=FOLDER, or a folder")
        roles.setdefault(locate(name).resolve(), []).append(role or "answer")
    items, components = list[Item](), list[Component]()
    for folder, named in roles.items():
        found, component = _model(folder, sorted(set(named), key=named.index))
        items += found
        components.append(component)
    return items, components


def _model(folder: Path, roles: list[str]) -> tuple[list[Item], Component]:
    facts = {"role": ", ".join(roles)}
    if {"answer", "judge"} & set(roles):
        facts["digest"] = checkpoint.inspect(folder).digest
    elif faults := [*look(folder).faults]:
        raise ModelError("; ".join(faults), where=str(folder), remedy="copy the whole folder again; only safetensors weights are carried")
    read_config(folder)
    label = label_of(folder)
    licence, where = of_folder(folder, label)
    one = Component("model", label, "", licence, where, "; ".join(ROLES[role] for role in roles), facts)
    return files(folder, f"carried/models/{label}", one.id, LEFT_OUT), one


def label_of(folder: Path) -> str:
    """What a folder will be called: its name, or the model's where it lies in a hub's cache (models--OWNER--NAME/snapshots/REVISION)."""
    hub = folder.parent.parent.name
    return hub.split("--")[-1] if folder.parent.name == "snapshots" and hub.startswith("models--") else folder.name


def data(given: str) -> tuple[list[Item], Component]:
    """A data set, which is linted first; `files=PATH` carries a folder or file as it is. Raises DataError."""
    kind, mark, name = given.partition("=")
    plain = bool(mark) and kind == "files"
    if mark and not plain:
        raise ConfigError(f"DATA holds {given!r}", remedy="a data set's folder, or files=PATH for anything else")
    if not name and mark:
        raise ConfigError(f"DATA holds {given!r}, without a path", remedy="files=PATH takes a folder or a file")
    path = Path(os.path.expanduser(name if mark else given))  # noqa: PTH111 (Path's own raises for a user who is not there)
    if not path.exists():
        what, remedy = (
            ("this folder or file", "files=PATH takes a folder or a file")
            if plain
            else ("this data set", "give a folder, or a compiled .kgc file")
        )
        raise DataError(f"{what} is not there", where=str(path), remedy=remedy)
    facts = {}
    if not plain:
        seen = check(path)
        errors = [str(one) for one in seen.findings if one.level == "error"]
        if errors:
            raise DataError(f"{len(errors)} errors, the first: {errors[0]}", where=str(path), remedy=f"python -m kg check {path}")
        facts["digest"] = seen.digest
    licence, where = of_folder(path if path.is_dir() else path.parent)
    label = path.resolve().name
    one = Component("files" if plain else "data", label, "", licence, where, "carried as it is" if plain else "data set", facts)
    if path.is_file():
        return [Item(_named(f"carried/data/{label}", path.parent), path, one.id)], one
    return files(path, f"carried/data/{label}", one.id), one


def files(folder: Path, place: str, component: str, left_out: Sequence[str] = ()) -> list[Item]:
    """All plain files below but those of these patterns, links to files inside resolved. Raises DataError naming what cannot be carried."""
    found, wrong = [], []
    inside = [folder.resolve()]
    if folder.resolve().parent.name == "snapshots":  # a hub's cache: snapshots/<revision>/file → blobs/<digest>
        inside.append(folder.resolve().parent.parent / "blobs")
    shut = lambda error: wrong.append(f"{os.path.relpath(error.filename, folder)[-200:]} cannot be read ({error.strerror})")  # noqa: E731
    for base, folders, names in os.walk(folder, onerror=shut):
        folders[:] = sorted(one for one in folders if not any(Path(one).match(pattern) for pattern in left_out))
        for name in sorted([*names, *(one for one in folders if (Path(base) / one).is_symlink())]):
            path = Path(base) / name
            if any(Path(name).match(pattern) for pattern in left_out):
                continue
            relative = path.relative_to(folder)
            if path.is_symlink() and not path.exists():
                wrong.append(f"{relative} is a link to nothing")
            elif path.is_symlink() and not any(path.resolve().is_relative_to(one) for one in inside):
                wrong.append(f"{relative} is a link that leaves the folder ({path.resolve()})")
            elif not path.is_file():
                wrong.append(f"{relative} is a link to a folder, or no plain file")
            elif not os.access(path, os.R_OK):
                wrong.append(f"{relative} cannot be read (Permission denied)")
            else:
                found.append(Item(_named(f"{place}/{relative.as_posix()}", folder), path.resolve(), component, os.access(path, os.X_OK)))
    if wrong:
        more = f" … and {len(wrong) - 10} more" if len(wrong) > 10 else ""
        remedy = "put the files themselves there, readable (cp -L, chmod)"
        raise DataError(f"{'; '.join(wrong[:10])}{more}", where=str(folder), remedy=remedy)
    if not found:
        raise DataError("holds no file to be carried", where=str(folder), remedy="give another folder, or leave it out")
    return found


def _named(path: str, where: Path) -> str:
    try:
        path.encode("utf-8")
        check_place(path)
    except (ValueError, UnicodeEncodeError) as error:
        shown = path.encode("utf-8", "backslashreplace").decode()
        raise DataError(f"the name {shown!r} cannot be carried: {error}", where=str(where), remedy="rename the file") from None
    return path
