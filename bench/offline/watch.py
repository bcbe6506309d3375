"""Runs commands under watch and says what left: a script of the standard library, started by bench/offline/run.py in a namespace.

    python -I watch.py ORDERS.json RESULT.json

ORDERS: {"commands": [[…], …], "sealed": bool, "strace": FILE or null, "seconds": limit of all}. The environment is the commands' own.
RESULT: {"codes": […], "sealed": bool or why not, "strays": {where: packets}, "carried": packets, "lost": packets, "traced": bool}.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.offline import netns

# Daemons outside the namespace that would look a name up for us: their sockets are covered with nothing.
RESOLVERS = ("/run/nscd/socket", "/run/systemd/resolve/io.systemd.Resolve", "/run/dbus/system_bus_socket")
STRACE = ("strace", "-f", "-qq", "-s", "0", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-e", "signal=none")
_BIND = 4096


def main(orders: Path, result: Path) -> int:
    asked = json.loads(orders.read_text(encoding="utf-8"))
    told: dict[str, object] = {"sealed": False, "strays": {}, "carried": 0, "lost": 0, "codes": [], "traced": bool(asked["strace"])}
    ears = None
    if asked["sealed"]:
        try:
            netns.bring_up()
            ears = netns.Ears()
            told["sealed"] = True
        except OSError as error:
            told["sealed"] = f"no loopback of its own: {error}"
        _cover()
    threading.Thread(target=_lifeline, daemon=True).start()
    deadline = time.monotonic() + float(asked["seconds"])
    codes: list[int] = []
    for command in asked["commands"]:
        traced = [*STRACE, *_seccomp(), "-A", "-o", asked["strace"], *command] if asked["strace"] else command
        codes.append(_run(traced, deadline))
        if codes[-1] not in (0, 2):
            break
    if ears is not None:
        time.sleep(0.3)  # the last packets
        told["carried"], told["lost"] = netns.carried(), ears.close()
        told["strays"] = ears.strays
    told["codes"] = codes
    result.write_text(json.dumps(told), encoding="utf-8")
    return 0


_children: list[subprocess.Popen[bytes]] = []


def _lifeline() -> None:
    """Ends all when whoever started this is gone."""
    while os.read(0, 1):
        pass
    for child in _children:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
    os._exit(125)  # the first process of a namespace takes all others with it


def _run(command: list[str], deadline: float) -> int:
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    _children[:] = [child]
    try:
        return child.wait(timeout=max(1.0, deadline - time.monotonic()))
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        for number, seconds in ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(OSError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=seconds)
        return 124


def _seccomp() -> list[str]:
    """Only the traced calls stop a process, where this strace knows how."""
    said = subprocess.run(["strace", "--help"], capture_output=True, text=True, check=False)
    return ["--seccomp-bpf"] if "--seccomp-bpf" in said.stdout + said.stderr else []


def _cover() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for name in RESOLVERS:
        if Path(name).exists():
            libc.mount(b"/dev/null", name.encode(), None, _BIND, None)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
