"""Which replica gets a call: the one that has seen the longest part of its beginning, unless it is much busier than another.

Calls about the same pictures and question begin alike, so they find their prefix in that replica's cache. Knows no network.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from models.requests import Request

_BLOCK = 256  # characters: near the 16 to 128 tokens of a server's cache block
_KEPT = 200_000  # blocks remembered for one replica
_SLACK = 4  # calls by which a replica may be busier and still be chosen for its cache


class Router:
    """Replicas are numbers from 0. One instance per client; not for several threads."""

    def __init__(self, replicas: int) -> None:
        self._seen: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(replicas)]

    def pick(self, request: Request, load: Sequence[int], usable: Sequence[int]) -> int:
        """A replica of `usable`; `load` holds the calls in flight of every replica."""
        if len(self._seen) == 1:
            return 0
        chain = _chain(request)
        least = min(load[i] for i in usable)
        near = [i for i in usable if load[i] <= 1.5 * least + _SLACK]
        best = max(near, key=lambda i: (self._known(i, chain), -load[i], -i))
        seen = self._seen[best]
        for block in chain:
            seen[block] = None
            seen.move_to_end(block)
        while len(seen) > _KEPT:
            seen.popitem(last=False)
        return best

    def _known(self, replica: int, chain: Sequence[int]) -> int:
        seen = self._seen[replica]
        return next((n for n, block in enumerate(chain) if block not in seen), len(chain))


def _chain(request: Request) -> list[int]:
    """One hash per block of the prompt, each covering everything before it."""
    chain: list[int] = []
    last = 0
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, str):
                for at in range(0, len(part), _BLOCK):
                    last = hash((last, message.role, part[at : at + _BLOCK]))
                    chain.append(last)
            else:
                last = hash((last, part.digest))
                chain.append(last)
    return chain
