"""Starts one command in a process group of its own, and ends it with all its children when its owner is gone, however it went.

Run as a script by models/server.py, standard library only:

    python watchdog.py LIFELINE REPORT GRACE COMMAND ...

LIFELINE is the reading end of a pipe whose writing end the owner alone holds: kill -9 of the owner closes it. REPORT takes the
command's process id. GRACE is seconds between SIGTERM and SIGKILL. Exits with the command's own code (128 + signal).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main(argv: list[str]) -> int:
    lifeline, report, grace, command = int(argv[0]), int(argv[1]), float(argv[2]), argv[3:]
    # Orphans of the command become our children instead of init's, so that none escapes.
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    try:
        # The last resort, should someone kill -9 the watchdog itself: the command then gets a SIGKILL from the kernel.
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os.write(report, b"0\n")
        return 127
    os.write(report, b"%d\n" % child.pid)
    os.close(report)
    while child.poll() is None and not ended:
        with contextlib.suppress(InterruptedError):
            if select.select([lifeline], [], [], 0.2)[0]:
                break
    end_all(child, grace)
    code = child.returncode
    return code if code >= 0 else 128 - code


def end_all(child: subprocess.Popen[bytes], grace: float) -> None:
    """SIGTERM to the group, SIGKILL to every descendant that is left after `grace` seconds (or at once if the command is dead)."""
    deadline = time.monotonic() + grace
    if child.poll() is None:
        _signal_group(child.pid, signal.SIGTERM)
    while child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    crashed = time.monotonic() + min(grace, 2.0)  # workers notice by themselves that their server is gone, if let
    while descendants() and time.monotonic() < crashed:
        _reap(child)
        time.sleep(0.05)
    for _ in range(100):
        left = descendants()
        if not left:
            break
        _signal_group(child.pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        _reap(child)
        time.sleep(0.05)
    child.wait()


def descendants() -> list[int]:
    """Every living process below this one, by /proc (zombies are left out)."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(stat.parent.name)] = int(fields[1])
    found, fresh = set[int](), {os.getpid()}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh and pid not in found}
        found |= fresh
    return sorted(found)


def _reap(child: subprocess.Popen[bytes]) -> None:
    """Collects orphans that ended as our children; the command itself is left to its Popen."""
    child.poll()
    if child.returncode is None:
        return
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, number)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
