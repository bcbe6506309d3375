"""A small bundle with everything a large one has: a project that installs, wheels, a sharded model, data with odd names, splits, packs."""

from __future__ import annotations

import ensurepip
import hashlib
import json
import random
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.sealed import wheels
from bench.sealed.items import Component, Item
from bench.sealed.pack import Contents, write
from bench.sealed.volumes import SMALL

ROOT = Path(__file__).parents[3]
VOLUME = 700_000  # bytes: the model's shards are larger than what a volume has left
COMPONENTS = (
    Component("model", "heron", "", "MIT", "LICENSE", "answers questions"),
    Component("data", "Flüsse", "", "CC0-1.0", "LICENSE", "data set"),
    Component("package", "torch", "9.0+cpu", "BSD-3-Clause", "License", "Python package"),
    Component("package", "pip", "1", "MIT", "License", "Python package"),
)
PROJECT = Component("project", "untamed", "0.0", "Apache-2.0", "LICENSE", "the project itself", {"commit": "0123456789abcdef"})


def make_wheel(folder: Path, name: str, version: str, code: bytes) -> Path:
    """A wheel that pip installs: one module."""
    stem = f"{name}-{version}"
    files = {
        f"{name}.py": code,
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense: MIT\n".encode(),
    }
    files[f"{stem}.dist-info/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{stem}.dist-info/RECORD"] = "".join(f"{one},,\n" for one in [*files, f"{stem}.dist-info/RECORD"]).encode()
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for one, raw in files.items():
            archive.writestr(one, raw)
    return path


def shard(seed: int, size: int) -> bytes:
    """A safetensors file of random bytes."""
    header = json.dumps({f"t{seed}": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + random.Random(seed).randbytes(size)


def contents_of(work: Path, seed: int = 0) -> Contents:
    """Everything that the small bundle holds; another seed is another bundle."""
    house = work / "house"
    house.mkdir(parents=True)
    pip = next(Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl"))
    torch = make_wheel(house, "torch", "9.0+cpu", f"seed = {seed}\n".encode())
    heron = make_wheel(house, "heron", "1.0", b"wings = 2\n")
    lock = lambda name, version, wheel: f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"  # noqa: E731
    source = {one.relative_to(ROOT).as_posix(): one.read_bytes() for one in sorted((ROOT / "bench/sealed/unpacker").glob("*.py"))}
    for name in ("bench/__init__.py", "bench/sealed/__init__.py", "scripts/install.py"):
        source[name] = (ROOT / name).read_bytes()
    empty = "nothing==0 ; sys_platform == 'win32' --hash=sha256:" + "0" * 64
    source |= {
        "locks/pip.txt": empty.encode(),  # pip runs out of its wheel; installing it as well would only cost time here
        "locks/cpu.txt": lock("heron", "1.0", heron).encode(),
        "locks/torch-cpu.txt": lock("torch", "9.0+cpu", torch).encode(),
        "locks/torch.txt": empty.encode(),
        "locks/torch-cuda-runtime.txt": empty.encode(),
        "run.sh": b"#!/bin/sh\n",
        "empty.txt": b"",
    }
    items = [Item(path, raw, PROJECT.id, path == "run.sh") for path, raw in source.items()]
    model, data = work / "heron", work / "Flüsse"
    for folder in (model, data):
        folder.mkdir()
    for number, size in enumerate((SMALL + 100_000, 1_500_000, SMALL + 100_000), 1):
        (model / f"model-{number}.safetensors").write_bytes(shard(seed * 10 + number, size))
    (model / "copy.safetensors").write_bytes((model / "model-2.safetensors").read_bytes())
    for name in ("Donau ≈ Дунай.csv", "a.TXT", "A.txt", "con.txt", "what?*.txt", "tail. "):
        (data / name).write_text(f"{name} {seed}\n", encoding="utf-8")
    (data / "large...").write_bytes(shard(seed * 10 + 4, SMALL + 1000))
    items += [Item(f"carried/models/heron/{one.name}", one, "model:heron") for one in sorted(model.iterdir())]
    items += [Item(f"carried/data/Flüsse/{one.name}", one, "data:Flüsse") for one in sorted(data.iterdir())]
    for name, wheel in (("pip@1", pip), ("torch@9.0+cpu", torch), ("torch@9.0+cpu", heron)):
        items.append(Item(f"carried/wheels/{wheel.name}", wheel, f"package:{name}"))
    target = {
        "kind": "cpu",
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "system": "Linux",
        "machine": wheels.MACHINE,
        "glibc": "2.17",
        "cpu": [],
        "cuda": "",
        "driver": "",
        "install_bytes": 1000,
    }
    system = ({"name": "make", "program": "make", "use": "short commands"},)
    return Contents(tuple(items), COMPONENTS, PROJECT, target, (("", ".venv"),), system, {}, 0)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Contents]:
    """A bundle that no test changes, and what it was made from."""
    work = tmp_path_factory.mktemp("sealed")
    contents = contents_of(work / "source")
    write(contents, work / "bundle", VOLUME)
    return work / "bundle", contents


@pytest.fixture
def bundle(made: tuple[Path, Contents], tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(made[0], tmp_path / "bundle"))


@pytest.fixture
def contents(made: tuple[Path, Contents]) -> Contents:
    return made[1]


Unbundle = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def unbundle(tmp_path: Path) -> Unbundle:
    """Runs the unpacker that the bundle itself carries, as a person does, in an empty folder with an empty HOME."""

    def run(bundle: Path, *words: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        (tmp_path / "home").mkdir(exist_ok=True)
        command = [sys.executable, str(bundle / "unbundle.pyz"), *words]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home"), "LANG": "C.UTF-8"},
        )
        assert not check or done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run
