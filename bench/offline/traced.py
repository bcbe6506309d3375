"""What strace wrote, read for connections and messages that are not for loopback. Knows lines, starts nothing."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable

# family, then port and address as strace spells them (in either order of fields that it has had)
_ADDRESS = re.compile(
    r"sa_family=(?P<family>AF_\w+|0x[0-9a-f]+|\d+)"
    r"(?:, sin6?_port=htons\((?P<port>\d+)\))?"
    r"(?:.*?(?:inet_addr\(\"(?P<v4>[^\"]*)\"\)|inet_pton\(AF_INET6, \"(?P<v6>[^\"]*)\"))?"
)
_CALL = re.compile(r"^(?:(?P<pid>\d+) +)?(?P<call>connect|sendto|sendmsg|sendmmsg)\(")
LOCAL = frozenset({"AF_UNIX", "AF_LOCAL", "AF_NETLINK", "AF_UNSPEC"})


def strays(lines: Iterable[str]) -> tuple[int, Counter[str]]:
    """(calls seen with an address, what went elsewhere → how often)."""
    seen, found = 0, Counter[str]()
    for line in lines:
        call = _CALL.match(line)
        if call is None:
            continue
        for address in _ADDRESS.finditer(line):
            seen += 1
            family, port = address["family"], address["port"] or "?"
            if family in LOCAL:
                continue
            host = address["v4"] or address["v6"]
            if family not in ("AF_INET", "AF_INET6") or not host:
                found[f"{call['call']} of {family}"] += 1
            elif port == "53":
                found[f"{call['call']} {host}:53 (a name server)"] += 1
            elif not _loopback(host):
                found[f"{call['call']} {host}:{port}"] += 1
    return seen, found


def _loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    inner = getattr(address, "ipv4_mapped", None) or address
    return bool(inner.is_loopback or inner.is_unspecified)
