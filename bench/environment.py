"""The machine and the versions under which a run was made, for the report. Reads files and package metadata; imports nothing heavy.

Try: python -c "from bench.environment import environment; print(environment())"
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

PACKAGES = ("untamed", "torch", "transformers", "vllm", "av", "decord2", "pillow", "numpy", "pydantic", "aiohttp", "python-calamine")


def environment() -> dict[str, object]:
    """Versions, commit, processor, memory and GPUs of this machine, now."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": _versions(),
        "commit": _output("git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD") or _carried(),
        "changed files": _changed(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory GiB": _memory(),
        "gpus": _gpus(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _carried() -> str:
    """The commit of a tree that was unpacked from a bundle, which has no git; empty elsewhere."""
    try:
        held = json.loads((Path(__file__).parents[1] / "carried/manifest.json").read_bytes())
        return str(held["project"]["commit"])[:12]
    except (OSError, ValueError, KeyError):
        return ""


def _changed() -> int | None:
    """Tracked files that differ from the commit; None where there is no git."""
    root = str(Path(__file__).parent)
    if not _output("git", "-C", root, "rev-parse", "HEAD"):
        return None
    return len(_output("git", "-C", root, "status", "--porcelain", "--untracked-files=no").splitlines())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None


def _gpus() -> list[str]:
    return _output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader").splitlines()
