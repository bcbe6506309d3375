"""Runs parts under three watches and adds up what they saw: Python's audit hook, strace, and the packets of a namespace of their own.

Each part gets an empty folder, an empty HOME and an environment of nothing but PATH and the guard: no cache, no switch, so that what
keeps a library quiet is what our own commands set. Where a watch cannot be had, its column says so; that is no zero.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.offline import traced
from bench.offline.parts import ROOT, Part, planted
from bench.sealed.items import nearest
from models.environment import GUARD
from models.errors import ConfigError

_HERE = Path(__file__).resolve().parent
# Where processes have a namespace too, none of them outlives the part, however it ends.
_NAMESPACES = (
    ("unshare", "-rnmpf", "--mount-proc", "--kill-child"),
    ("unshare", "-rnm"),
    ("unshare", "-rn"),
    ("unshare", "-nm"),
    ("unshare", "-n"),
)


@dataclass(frozen=True)
class Watches:
    """What this machine allows: the command that makes a namespace (empty: none), and whether strace is there and may trace."""

    namespace: tuple[str, ...]
    strace: bool


@dataclass
class Seen:
    """One part's result. `python`, `calls`, `packets`: what went elsewhere, by each watch, → how often; None: that watch was not there."""

    name: str
    codes: list[int] = field(default_factory=list)
    processes: int = 0
    python: dict[str, int] | None = None
    calls: dict[str, int] | None = None
    packets: dict[str, int] | None = None
    judged_calls: int = 0
    carried: int = 0
    skipped: str = ""
    failed: str = ""
    log: str = ""
    home: tuple[str, ...] = ()

    @property
    def strays(self) -> int:
        return sum(sum(found.values()) for found in (self.python, self.calls, self.packets) if found)


def available() -> Watches:
    """Asks this machine, by trying."""
    namespace = next((way for way in _NAMESPACES if shutil.which("unshare") and _works([*way, sys.executable, "-I", "-c", _LOOP])), ())
    return Watches(namespace, bool(shutil.which("strace")) and _works(["strace", "-f", "-qq", "-o", os.devnull, "true"]))


_LOOP = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from bench.offline import netns; netns.bring_up(); netns.Ears().close()"


def _works(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def run_part(part: Part, watches: Watches, keep: Path | None = None) -> Seen:
    """Runs one part's commands and reads what the watches wrote. `keep`: where the folder stays afterwards."""
    why = part.why_not()
    if why:
        return Seen(part.name, skipped=why)
    if keep is not None:
        check_keep(keep, [part])
    with tempfile.TemporaryDirectory(prefix=f"offline-{part.name}-", ignore_cleanup_errors=True) as made:
        folder = _emptied(keep / part.name) if keep is not None else Path(made)
        seen = _watched(part.name, folder, lambda work: part.commands(sys.executable, work), watches, part.seconds)
    allowed = (0, 2) if part.lenient else (0,)
    if not seen.failed and any(code not in allowed for code in seen.codes):
        seen.failed = f"command {len(seen.codes)} ended with exit code {seen.codes[-1]}: {seen.log}"
    return seen


def self_test(watches: Watches) -> dict[str, bool | None]:
    """Whether a planted attempt is seen, by (kind of attempt, watch); None where the watch is not there.

    Python's must be seen by all three, C's by the last two: that the hook is blind to it is why there are three.
    """
    found: dict[str, bool | None] = {}
    for kind, host in (("python", "192.0.2.7"), ("native", "192.0.2.9")):
        with tempfile.TemporaryDirectory(prefix="offline-planted-") as made:
            seen = _watched(f"planted {kind}", Path(made), lambda work, kind=kind: planted(sys.executable, kind), watches, 120.0)
        if kind == "python":  # refused by the hook before the kernel hears of it, so the others have nothing to see
            found["Python connect, by the hook"] = any(host in what for what in seen.python or ())
            found["Python look-up, by the hook"] = any("planted.invalid" in what for what in seen.python or ())
        else:
            found["native connect, by strace"] = _saw(seen.calls, host)
            found["native look-up, by strace"] = _saw(seen.calls, ":53 ")
            found["native connect, by its packets"] = _saw(seen.packets, host)
            found["native look-up, by its packets"] = _saw(seen.packets, "planted-native.invalid")
    return found


def check_keep(keep: Path, parts: Sequence[Part]) -> None:
    """Raises ConfigError for a place where the parts' folders cannot be kept: before the first part has run, not after the last."""
    nearest(keep, "--keep")
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--keep={keep} cannot be made: {error.strerror}", remedy="give another folder") from None
    for part in parts:
        folder = keep / part.name
        nearest(folder, "--keep")
        if folder.exists() and any(folder.iterdir()) and not (folder / "notes" / "orders.json").is_file():
            raise ConfigError("is not empty, and no earlier proof's", where=str(folder), remedy="give --keep a new folder")


def _emptied(folder: Path) -> Path:
    """The folder, without what an earlier proof left in it."""
    if folder.exists():
        shutil.rmtree(folder)
    return folder


def _saw(found: dict[str, int] | None, words: str) -> bool | None:
    return None if found is None else any(words in what for what in found)


def _watched(name: str, folder: Path, commands: object, watches: Watches, seconds: float) -> Seen:
    assert callable(commands)
    work, home, notes = folder / "work", folder / "home", folder / "notes"
    for path in (work, home, notes, folder / "tmp"):
        path.mkdir(parents=True, exist_ok=True)
    trace = notes / "strace" if watches.strace else None
    orders = {
        "commands": [list(map(str, command)) for command in commands(work)],
        "sealed": bool(watches.namespace),
        "strace": str(trace) if trace else None,
        "seconds": seconds,
    }
    (notes / "orders.json").write_text(json.dumps(orders), encoding="utf-8")
    command = [*watches.namespace, sys.executable, "-I", str(_HERE / "watch.py"), str(notes / "orders.json"), str(notes / "result.json")]
    environment = bare(folder)
    # Its standard input is a lifeline: it ends with everything below when this process is gone, however it went.
    with (
        (notes / "log").open("wb") as log,
        subprocess.Popen(command, cwd=work, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log) as watch,
    ):
        try:
            watch.wait()
        except BaseException:
            watch.communicate()
            raise
    return _read(name, notes, home)


def bare(folder: Path) -> dict[str, str]:
    """The environment of a part: where to find programs, empty homes, the guard. Nothing of the caller's, no switch of ours."""
    guard = str(_HERE / "guard")
    vllm = ROOT / ".venv-vllm" / "bin" / "vllm"
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "LANG": "C.UTF-8",
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": os.pathsep.join([guard, str(ROOT)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0)))),
        "UNTAMED_GUARD_FILE": str(folder / "notes" / "guard"),
        GUARD: guard,
        **({"VLLM": str(vllm)} if vllm.is_file() else {}),
    }


def _read(name: str, notes: Path, home: Path) -> Seen:
    seen = Seen(name, log=_last(notes / "log"))
    try:
        told = json.loads((notes / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        seen.failed = f"the watch itself ended: {seen.log}"
        return seen
    seen.codes = told["codes"]
    rows = [json.loads(line) for line in (notes / "guard").read_text(encoding="utf-8").splitlines()] if (notes / "guard").exists() else []
    seen.processes = sum(row["event"] == "start" for row in rows)
    seen.python = dict(Counter(_line(row) for row in rows if row["event"] != "start")) if seen.processes else None
    if told["traced"]:
        with (notes / "strace").open(encoding="utf-8", errors="replace") as lines:
            seen.judged_calls, calls = traced.strays(lines)
        seen.calls = dict(calls)
    if told["sealed"] is True:
        seen.packets, seen.carried = dict(told["strays"]), told["carried"]
        if told["lost"]:
            seen.packets["packets too many to be told apart"] = told["lost"]
    elif told["sealed"]:
        seen.failed = str(told["sealed"])
    seen.home = tuple(sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()))
    return seen


def _line(row: dict[str, object]) -> str:
    stack = row.get("stack")
    where = (
        next((place for place in stack if "/lib/python3" not in place or "site-packages" in place), "") if isinstance(stack, list) else ""
    )
    return f"{row['event']} {row['what']}{f' at {where}' if where else ''}"


def _last(log: Path) -> str:
    try:
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return " / ".join(lines[-3:])[-600:]
