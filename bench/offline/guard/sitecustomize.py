"""An audit hook in every Python process below: what would connect or look up a name outside loopback is written down and refused.

Python imports this at its start, because the folder leads PYTHONPATH while `make test-offline` runs; without $UNTAMED_GUARD_FILE it does
nothing. Standard library only, and little of it. Blind to native code (libuv, zmq, ctypes): bench/offline/watch.py sees that.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import sys

_LOCAL = frozenset({"", "localhost", "localhost.localdomain", "ip6-localhost", "0.0.0.0", "::"})
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16  # Linux's numbers of address families
_DNS = (53, 853)


def stray(host: object, port: object = None) -> str:
    """What is wrong with this host (and port): empty when it is loopback, or a family without a network."""
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if name is None:
        return ""
    if not isinstance(name, str):
        return f"{name!r}"
    said = f"{name}:{port}" if port not in (None, 0, "") else name
    if port in _DNS:
        return f"{said} (a name server)"
    if name.lower() in _LOCAL:
        return ""
    try:
        address = ipaddress.ip_address(name.split("%")[0])
    except ValueError:
        return f"{said} (a name)"
    mapped = getattr(address, "ipv4_mapped", None) or address
    return "" if mapped.is_loopback else said


def judge(event: str, args: tuple[object, ...]) -> str:
    """What is wrong with one audit event of the socket module; empty when nothing is."""
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        sock, address = args[0], args[1]
        family = int(getattr(sock, "family", 0))
        if address is None or family in (_UNIX, _NETLINK):
            return ""
        if family in (_INET, _INET6) and isinstance(address, tuple) and len(address) >= 2:
            return stray(address[0], address[1])
        return f"address family {family}: {address!r}"
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = args[0]
        if isinstance(host, (str, bytes)) and _numeric(host):
            return ""  # no look-up; the connection that follows is judged
        return stray(host)
    if event == "socket.getnameinfo" and isinstance(args[0], tuple):
        return stray(args[0][0])
    return ""


def _numeric(host: str | bytes) -> bool:
    try:
        ipaddress.ip_address((host.decode("ascii", "replace") if isinstance(host, bytes) else host).split("%")[0])
    except ValueError:
        return False
    return True


def _write(path: str, row: dict[str, object]) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, json.dumps(row).encode() + b"\n")
        finally:
            os.close(descriptor)
    except OSError:
        pass


def _stack() -> list[str]:
    """The innermost places outside this file."""
    places: list[str] = []
    frame = sys._getframe(1)
    while frame is not None and len(places) < 6:
        if frame.f_code.co_filename != __file__:
            places.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return places


def install(path: str) -> None:
    """Adds the hook; it cannot be taken away again."""

    def hook(event: str, args: tuple[object, ...]) -> None:
        if not event.startswith("socket."):
            return
        wrong = judge(event, args)
        if wrong:
            _write(path, {"event": event, "what": wrong, "pid": os.getpid(), "program": sys.argv[:3], "stack": _stack()})
            raise OSError(errno.ENETUNREACH, f"{event} {wrong}: refused, only loopback is allowed here")

    sys.addaudithook(hook)
    _write(path, {"event": "start", "pid": os.getpid(), "program": sys.orig_argv[:4]})


def _next() -> None:
    """Runs the sitecustomize that this one stands before, if there is one."""
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would cost every start
    places = [place for place in sys.path if os.path.abspath(place or ".") != here]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    if os.environ.get("UNTAMED_GUARD_FILE"):
        install(os.environ["UNTAMED_GUARD_FILE"])
    _next()
