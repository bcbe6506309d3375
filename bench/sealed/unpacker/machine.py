"""This machine against what a bundle was made for: Python, platform, glibc, CPU, NVIDIA driver, disk. All misfits are told at once.

Reads /proc and asks the C library; starts and writes nothing.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
from pathlib import Path
from typing import Any

SPARE = 200 << 20


def misfits(target: dict[str, Any]) -> list[str]:
    """What stands in the way of installing, one sentence each with its remedy; empty: go."""
    found = []
    have, want = platform.python_version(), str(target["python"])
    if ".".join(have.split(".")[:2]) != want or platform.python_implementation() != "CPython":
        other = shutil.which(f"python{want}")
        way = f"run it with {other}" if other else f"install Python {want}, or make the bundle with PYTHON={'.'.join(have.split('.')[:2])}"
        found.append(f"Python: this is {platform.python_implementation()} {have}, the wheels are for CPython {want} — {way}")
    elif importlib.util.find_spec("venv") is None:
        found.append("Python: its module venv is missing — install your distribution's package for it (python3-venv)")
    here, there = f"{platform.system()} {platform.machine()}", f"{target['system']} {target['machine']}"
    if here != there:
        found.append(f"platform: this is {here}, the bundle is for {there} — make one on or for such a machine")
    found += _glibc(str(target["glibc"])) if here == there else []
    flags = cpu_flags()
    lacking = [flag for flag in target["cpu"] if flags and flag not in flags]
    if lacking:
        found.append(f"CPU: it lacks {', '.join(lacking)}, which the wheels use — another machine, or a bundle without that target")
    if target["driver"]:
        found += _driver(str(target["driver"]), str(target["cuda"]))
    return found


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _glibc(want: str) -> list[str]:
    try:
        have = (os.confstr("CS_GNU_LIBC_VERSION") or "").replace("glibc ", "")
    except (ValueError, OSError):
        have = ""
    if not have:
        return [f"C library: no glibc here (musl?), the wheels need glibc {want} or newer — a distribution with glibc"]
    if _number(have) < _number(want):
        return [f"C library: glibc {have}, the wheels need {want} or newer — a newer distribution, or a bundle made with GLIBC={have}"]
    return []


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """The processor's feature names; empty when they cannot be read, which is no misfit."""
    try:
        found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo.read_text(encoding="utf-8"), re.M)
    except OSError:
        return set()
    return set(found[1].split()) if found else set()


def _driver(want: str, cuda: str, proc: Path = Path("/proc/driver/nvidia/version")) -> list[str]:
    try:
        found = re.search(r"Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)", proc.read_text(encoding="utf-8"))
    except OSError:
        found = None
    if found is None:
        return [f"NVIDIA driver: none is loaded, CUDA {cuda} needs {want} or newer — install one, or unpack a bundle of TARGET=cpu"]
    if _number(found[1]) < _number(want):
        return [f"NVIDIA driver: {found[1]}, CUDA {cuda} needs {want} or newer — a newer driver"]
    return []


def disk(folder: Path, needed: int) -> list[str]:
    """A misfit when the disk under `folder` holds less than `needed` bytes and some to spare."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    if free >= needed + SPARE:
        return []
    return [
        f"disk: {(needed + SPARE) / 1e9:.2f} GB are needed at {there}, {free / 1e9:.2f} GB are free — make room, or give another folder"
    ]


def notes(system: list[dict[str, str]]) -> list[str]:
    """System programs that the bundle names and does not hold, as far as they are missing here."""
    return [
        f"{one['name']} is not installed here: {one['use']}" for one in system if one.get("program") and not shutil.which(one["program"])
    ]
