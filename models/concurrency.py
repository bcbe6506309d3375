"""How many calls to have in flight at a server whose best number nobody knows: grown while throughput grows, cut when it refuses.

A doubling that gains less than 5 % is taken back and left alone for a while; a 429 or 503 halves. Only counts calls, and only while there
are more than may be sent, for else the rate says nothing about the server. Knows no network and no clock but the one it is given.
Try: python -m pytest tests/models/test_concurrency.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

START, MOST = 32, 1024
GAIN = 1.05  # a doubling has to bring this much
_REST = 16  # windows until the next try
_TURNS = 4  # a rate is read from so many times the limit: replies come in bursts


class Pace:
    """`limit` calls may be in flight now. Tell it of every call that began and ended.

    Args:
        start, most: the limit at first, and at most.
        clock: seconds, monotonic.
    """

    def __init__(self, start: int = START, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self._most, self._clock = min(start, most), most, clock
        self._before = self.limit  # what to go back to
        self._best = 0.0
        self._trying = False
        self._rest = 0
        self._in_flight = self._skip = self._count = self._old = 0
        self._since = clock()

    def began(self) -> None:
        self._in_flight += 1

    def ended(self) -> None:
        """A call is back, whatever came back."""
        full = self._in_flight >= self.limit
        self._in_flight -= 1
        self._old = max(0, self._old - 1)
        if not full:  # too few calls were there to be sent: the window would measure them, not the server
            self._restart()
            return
        if self._skip:  # these began under the limit before
            self._skip -= 1
            if not self._skip:
                self._since = self._clock()
            return
        self._count += 1
        if self._count >= _TURNS * max(2, self.limit):
            self._judge(self._count / max(1e-9, self._clock() - self._since))

    def refused(self) -> None:
        """The server said that it has too much to do."""
        if not self._old:  # refusals come in bursts: what was in flight when the first of them came halves no more
            self._old = self._in_flight
            self._set(max(1, self.limit // 2))
            self._trying, self._rest = False, _REST

    def _judge(self, rate: float) -> None:
        if self._trying and rate < self._best * GAIN:
            self._trying, self._rest = False, _REST
            self._set(self._before)
            return
        self._best = rate
        self._rest -= 1
        if (self._trying or self._rest <= 0) and self.limit < self._most:
            self._before, self._trying = self.limit, True
            self._set(min(self._most, 2 * self.limit))
        else:
            self._trying = False
            self._restart(0)

    def _set(self, limit: int) -> None:
        self.limit = limit
        self._restart()

    def _restart(self, skip: int | None = None) -> None:
        self._skip, self._count, self._since = self.limit if skip is None else skip, 0, self._clock()
