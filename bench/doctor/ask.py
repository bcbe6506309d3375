"""Asks a fresh Python, so that a library that crashes, hangs or cannot be imported takes only its own line with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from models import environment

ROOT = Path(__file__).resolve().parents[2]

_IMPORTS = """
import importlib, json, sys, time
for name in sys.argv[1:]:
    print(json.dumps({"begin": name}), flush=True)
    begun = time.perf_counter()
    try:
        module = importlib.import_module(name)
        told = {"module": name, "version": str(getattr(module, "__version__", "")), "seconds": time.perf_counter() - begun}
    except BaseException as error:
        told = {"module": name, "error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    print(json.dumps(told), flush=True)
"""


def python(arguments: Sequence[str | Path], seconds: float) -> tuple[list[dict[str, Any]], str]:
    """Runs this Python with these arguments; hands out the JSON lines that it printed, and how it ended if not well."""
    env = {**environment.environment(), "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH"), str(ROOT), os.environ.get("PYTHONPATH")]))
    try:
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=env,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return _rows(error.stdout or b""), f"no answer within {seconds:.0f} s"
    except OSError as error:
        return [], f"{sys.executable} cannot be started: {error.strerror}"
    if done.returncode == 0:
        return _rows(done.stdout), ""
    if done.returncode < 0:
        return _rows(done.stdout), f"ended by signal {-done.returncode}"
    last = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return _rows(done.stdout), last[-1][:300] if last else f"ended with exit code {done.returncode}"


def imports(names: Sequence[str], seconds: float = 120.0) -> Iterator[tuple[str, str, str]]:
    """(module, version, what went wrong) for each name. A crash is told of the module that was being imported; the rest go on."""
    left = list(names)
    while left:
        rows, ended = python(["-c", _IMPORTS, *left], seconds)
        told = [row for row in rows if "module" in row]
        for row in told:
            yield row["module"], row.get("version", ""), row.get("error", "")
        left = left[len(told) :]
        if left:
            yield left[0], "", ended or "ended without a word"
            left = left[1:]


def _rows(output: bytes) -> list[dict[str, Any]]:
    found = []
    for line in output.decode("utf-8", "replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            found.append(row)
    return found
