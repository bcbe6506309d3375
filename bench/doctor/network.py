"""Checks of what little network is needed: loopback, ports, proxies that could swallow it; and whether the offline proof can run."""

from __future__ import annotations

import os
import shutil
import socket
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from bench.doctor.rows import Asked, Line, fail, ok, unknown, warn

PORT = 8000  # vllm serve's own; ours takes another when it is taken


def loopback(asked: Asked) -> Iterator[Line]:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5) as client:
            server.settimeout(5)
            other, _ = server.accept()
            with other:
                client.sendall(b"x")
                if other.recv(1) != b"x":
                    raise OSError(0, "what was sent did not arrive")
    except OSError as error:
        yield fail(f"127.0.0.1 cannot be used: {error.strerror or error}", "ip link set lo up; a firewall must let loopback pass")
        return
    try:
        known = {str(row[4][0]) for row in socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)}
    except OSError:
        known = set()
    if known and known <= {"127.0.0.1", "::1"}:
        yield ok("127.0.0.1 answers; localhost means it")
    else:
        yield warn(
            f"localhost means {', '.join(sorted(known)) or 'nothing'}",
            "add `127.0.0.1 localhost` to /etc/hosts; write 127.0.0.1 until then",
        )


def ports(asked: Asked) -> Iterator[Line]:
    from models import processes

    stale = [one for one in processes.servers() if one.stale]
    for one in stale:
        yield warn(f"a server of an earlier run was left behind on port {one.port}", "python -m models serve --end-stale")
    if processes.port_free(PORT):
        yield ok(f"port {PORT} is free")
    else:
        yield ok(f"port {PORT} is taken; servers of ours take another")
    low, high = _range()
    if high - low < 1000:
        yield warn(f"only the ports {low} to {high} are free for servers", "sysctl net.ipv4.ip_local_port_range='32768 60999'")


def _range() -> tuple[int, int]:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:  # noqa: PTH123
            low, high = map(int, file.read().split())
    except (OSError, ValueError):
        return 32768, 60999
    return low, high


def variables(asked: Asked) -> Iterator[Line]:
    from models.switches import SWITCHES

    odd = [f"{one.name}={os.environ[one.name]}" for one in SWITCHES if not one.kept and os.environ.get(one.name, one.value) != one.value]
    odd = [said for said in odd if not said.lower().startswith("no_proxy=")]
    proxies = [name for name in ("http_proxy", "https_proxy", "all_proxy") if os.environ.get(name) or os.environ.get(name.upper())]
    if odd:
        yield ok(f"set elsewhere and overruled by our commands: {', '.join(odd[:5])}")
    if proxies:
        yield warn(f"{', '.join(proxies)} is set", "loopback is excepted by our commands; other clients need NO_PROXY=127.0.0.1,localhost")
    if not odd and not proxies:
        yield ok(f"no proxy; none of the {len(SWITCHES)} offline switches is contradicted (python -m models switches lists them)")
    if os.environ.get("PYTHONPATH"):
        yield warn(f"PYTHONPATH={os.environ['PYTHONPATH']}", "its modules come before those of the lock: unset it unless you know why")
    outside = [name for name in ("HF_ENDPOINT", "HF_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL") if os.environ.get(name)]
    if outside:
        yield warn(f"{', '.join(outside)} is set", "nothing here needs it: unset it on a sealed machine")


def proof(asked: Asked) -> Iterator[Line]:
    from bench.offline.run import available

    found = available()
    if found.namespace and found.strace:
        yield ok("make test-offline can watch packets and native calls")
    elif found.namespace or found.strace:
        lacks = "strace" if found.namespace else "network namespaces"
        yield ok(f"make test-offline can watch, without {lacks}")
    else:
        yield unknown(
            "whether native code stays silent cannot be told here: neither network namespaces nor strace",
            "install strace, or allow namespaces (sysctl kernel.unprivileged_userns_clone=1, or run as root)",
        )


def tools(asked: Asked) -> Iterator[Line]:
    lost = [name for name in ("make", "bash") if shutil.which(name) is None]
    if lost:
        yield warn(f"{' and '.join(lost)} not found", "install it, or use python -m … as `make help` lists it")
    if asked.gpus and not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        yield fail(
            "no C compiler", "Triton compiles a launcher for every kernel when vLLM starts: install gcc, or vllm serve with --enforce-eager"
        )
    elif asked.gpus and not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        yield warn("Python.h is missing", "Triton's launcher includes it: install python3-dev of this Python's version")
    elif not lost:
        yield ok("make, bash" + (" and a C compiler" if asked.gpus else ""))
