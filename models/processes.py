"""Servers of ours among this machine's processes: found by a mark in their environment, whoever started them. Reads /proc only.

The mark names the owner (process id and its start time, so that a reused id is not mistaken) and the port. A server whose owner is
gone is stale: left behind when owner and watchdog were both killed.

Try: python -c "from models.processes import servers; print(servers())"
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path

MARK = "UNTAMED_SERVER"


@dataclass(frozen=True)
class Found:
    """One server of ours: its processes, its port, its owner's process id, and whether the owner still lives."""

    pids: tuple[int, ...]
    port: int
    owner: int
    stale: bool


def mark(port: int) -> dict[str, str]:
    """The variable that marks a server which this process starts."""
    return {MARK: f"{os.getpid()}:{started(os.getpid())}:{port}"}


def started(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is no such process (a zombie counts as none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def servers() -> list[Found]:
    """Every server of ours that runs, of any owner whose processes this user may read."""
    groups: dict[str, list[int]] = {}
    needle = f"{MARK}=".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            for item in path.read_bytes().split(b"\0"):
                pid = int(path.parent.name)
                if item.startswith(needle) and started(pid) is not None:
                    groups.setdefault(item[len(needle) :].decode("ascii", "replace"), []).append(pid)
    found = []
    for value, pids in groups.items():
        parts = value.split(":")
        if len(parts) == 3 and all(part.isdigit() for part in parts):
            owner, born, port = map(int, parts)
            found.append(Found(tuple(sorted(pids)), port, owner, started(owner) != born))
    return sorted(found, key=lambda one: one.port)


def end_stale(grace: float = 10.0) -> list[Found]:
    """Ends every stale server: SIGTERM, then SIGKILL. Hands out those that were found."""
    stale = [one for one in servers() if one.stale]
    for one in stale:
        kill(one.pids, grace)
    return stale


def kill(pids: tuple[int, ...], grace: float) -> None:
    """SIGTERM to each, SIGKILL to those that still live after `grace` seconds."""
    born = {pid: started(pid) for pid in pids}

    def living() -> list[int]:
        return [pid for pid, since in born.items() if since is not None and started(pid) == since]

    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        for pid in living():
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while living() and time.monotonic() < deadline:
            time.sleep(0.05)


def port_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether `host`:`port` can be bound now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(wanted: int = 0, host: str = "127.0.0.1") -> int:
    """`wanted` if it can be bound, else a port that the system picks."""
    if wanted and port_free(wanted, host):
        return wanted
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
