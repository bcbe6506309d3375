"""Inside a network namespace of its own: brings loopback up, sends every other address there too, and hears what goes there.

With `local default dev lo` a stray packet, a native library's DNS question too, is no error but a packet that can be counted; nobody
listens, so it is refused at once. A filter in the kernel lets only strays through to us. Linux, no tool needed. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import ipaddress
import socket
import struct
import threading
from pathlib import Path

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_RTM_NEWROUTE, _REQUEST_CREATE_ACK = 24, 0x1 | 0x4 | 0x200 | 0x400
_TABLE_LOCAL, _STATIC, _SCOPE_HOST, _TYPE_LOCAL, _OIF = 255, 4, 254, 2, 4
_ALL, _OUTGOING, _ATTACH_FILTER, _PACKET, _STATISTICS = 0x0003, 4, 26, 263, 6
# Classic BPF on the network header: 127/8 and ::1 are dropped here unless the port is a name server's, everything else is let through.
_LD_B, _LD_H, _LD_W, _LDX_MSH, _LD_H_X, _AND, _JEQ, _RET = 0x30, 0x28, 0x20, 0xB1, 0x48, 0x54, 0x15, 0x06
FILTER: tuple[tuple[int, int, int, int], ...] = (
    (_LD_B, 0, 0, 0),
    (_AND, 0, 0, 0xF0),
    (_JEQ, 0, 8, 0x40),  # 2: not IPv4 → 11
    (_LD_B, 0, 0, 16),
    (_JEQ, 0, 16, 127),  # 4: destination not 127.… → 21 accept
    (_LD_B, 0, 0, 9),
    (_JEQ, 1, 0, 17),  # 6: UDP → 8
    (_JEQ, 0, 14, 6),  # 7: neither UDP nor TCP → 22 drop
    (_LDX_MSH, 0, 0, 0),
    (_LD_H_X, 0, 0, 2),  # destination port
    (_JEQ, 10, 11, 53),  # 10: → 21 accept, else 22 drop
    (_JEQ, 0, 9, 0x60),  # 11: not IPv6 → 21 accept
    (_LD_W, 0, 0, 24),
    (_JEQ, 0, 7, 0),
    (_LD_W, 0, 0, 28),
    (_JEQ, 0, 5, 0),
    (_LD_W, 0, 0, 32),
    (_JEQ, 0, 3, 0),
    (_LD_W, 0, 0, 36),
    (_JEQ, 0, 1, 1),  # 19: not ::1 → 21 accept
    (_JEQ, 1, 1, 0),  # 20: → 22 drop
    (_RET, 0, 0, 0xFFFF),  # 21: accept
    (_RET, 0, 0, 0),  # 22: drop
)


def bring_up() -> None:
    """Loopback up, and every address a local one. Raises OSError where this process may not."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        flags = struct.unpack("16sh", fcntl.ioctl(probe, _SIOCGIFFLAGS, struct.pack("16sh", b"lo", 0))[:18])[1]
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | _IFF_UP))
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            _route(family)
        except OSError:
            if family == socket.AF_INET:  # a kernel without IPv6 needs no second route
                raise


def _route(family: int) -> None:
    body = struct.pack("BBBBBBBBI", family, 0, 0, 0, _TABLE_LOCAL, _STATIC, _SCOPE_HOST, _TYPE_LOCAL, 0)
    body += struct.pack("HHI", 8, _OIF, socket.if_nametoindex("lo"))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.sendto(struct.pack("IHHII", 16 + len(body), _RTM_NEWROUTE, _REQUEST_CREATE_ACK, 1, 0) + body, (0, 0))
        code = struct.unpack("i", link.recv(4096)[16:20])[0]
    if code not in (0, -17):  # there already
        raise OSError(-code, "no route to loopback")


class Ears:
    """Hears stray packets on loopback from the moment that it is made until `close`."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL))
        program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in FILTER))
        self._socket.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HL", len(FILTER), ctypes.addressof(program)))
        self._socket.bind(("lo", _ALL))
        self._socket.settimeout(0.2)
        self._stop = threading.Event()
        self.strays: dict[str, int] = {}
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        while True:
            try:
                packet, address = self._socket.recvfrom(65536)
            except TimeoutError:
                if self._stop.is_set():
                    return
                continue
            if address[2] == _OUTGOING and (said := describe(packet)):  # each is seen again when it comes in
                self.strays[said] = self.strays.get(said, 0) + 1

    def close(self) -> int:
        """Stops; returns how many packets were too many to be heard (0 but in a storm)."""
        self._stop.set()
        self._thread.join()
        lost = 0
        with contextlib.suppress(OSError):
            lost = int(struct.unpack("II", self._socket.getsockopt(_PACKET, _STATISTICS, 8))[1])
        self._socket.close()
        return lost


def describe(packet: bytes) -> str:
    """Where a packet goes, for people; a DNS question with the name asked for; empty when it stays on loopback after all."""
    if len(packet) < 20:
        return "a short packet"
    if packet[0] >> 4 == 4:
        target, protocol, rest = ipaddress.ip_address(packet[16:20]), packet[9], packet[(packet[0] & 15) * 4 :]
    elif packet[0] >> 4 == 6 and len(packet) >= 40:
        target, protocol, rest = ipaddress.ip_address(packet[24:40]), packet[6], packet[40:]
    else:
        return "a packet of another protocol"
    kind = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6"}.get(protocol, f"protocol {protocol}")
    port = int.from_bytes(rest[2:4], "big") if protocol in (6, 17) and len(rest) >= 4 else 0
    if target.is_loopback and port != 53:
        return ""
    if protocol in (1, 58) and rest[:1] not in (b"\x08", b"\x80"):
        return ""  # the kernel's own answer that a port is closed; an echo request is somebody's
    if protocol == 6 and len(rest) >= 14 and rest[13] & 0x12 != 0x02:
        return ""  # what follows on a first SYN, and the refusal that comes back
    asked = f", asks for {name}" if port == 53 and protocol == 17 and (name := question(rest[8:])) else ""
    return f"{kind} to {target}{f' port {port}' if port else ''}{asked}"


def question(message: bytes) -> str:
    """The name in a DNS question; empty when there is none."""
    labels, at = list[str](), 12
    while at < len(message) and 0 < message[at] < 64:
        labels.append(message[at + 1 : at + 1 + message[at]].decode("ascii", "replace"))
        at += 1 + message[at]
    return ".".join(labels)


def carried() -> int:
    """Packets that loopback has carried in this namespace so far."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name.strip() == "lo":
                return int(rest.split()[9])
    return 0
