"""The engine of a managed fleet: the client for any OpenAI-compatible server, which also waits while a replica is started again.

Loading takes minutes, far longer than a client's own retries; calls that were in flight when a server died are sent once more when it
is back. Knows no process: it asks the fleet. Try: python -m models serve FOLDER, or models.fleet.serve(...).engine()
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from models.engines import ServerEngine, Workload
from models.errors import CallFailed, ModelError
from models.requests import Completion, Request

_PAUSE = 0.2
_TRIES = 3  # a restart is allowed once; two replicas can each take one
# What a call comes back with when its server is gone.
_GONE = ("unreachable", "cut-off", "http-500", "http-502", "http-503", "aborted")


class Replicas(Protocol):
    """What the engine has to know of the fleet. `restarting`: no replica can be asked now; `crashes`: how many were noticed."""

    @property
    def restarting(self) -> bool: ...
    @property
    def crashes(self) -> int: ...
    def check(self) -> None: ...
    def stop(self) -> None: ...


class ManagedEngine:
    """A `ServerEngine` over `inner`. Raises ModelError, with the server's last words, once a replica is gone for good."""

    def __init__(self, inner: ServerEngine, fleet: Replicas, *, notice_seconds: float = 5.0) -> None:
        self._inner, self._fleet, self._notice = inner, fleet, notice_seconds
        self.name, self.digest, self.can_constrain = inner.name, inner.digest, inner.can_constrain

    @property
    def slots(self) -> int:
        return self._inner.slots

    def check(self, work: Workload) -> None:
        self._inner.check(work)

    async def open(self) -> None:
        await self._inner.open()

    async def close(self) -> None:
        await self._inner.close()

    def stop(self) -> None:
        """Ends the servers. The next call would raise."""
        self._fleet.stop()

    async def complete(self, request: Request) -> Completion:
        """The reply. A call that was lost with its server is sent again when the server is back."""
        for _ in range(_TRIES):
            await self._ready()
            before = self._fleet.crashes
            try:
                return await self._inner.complete(request)
            except (CallFailed, ModelError) as error:
                if isinstance(error, CallFailed) and error.reason not in _GONE:
                    raise
                failure: CallFailed | ModelError = error
            if not await self._died(before):
                raise failure
        raise failure

    async def _ready(self) -> None:
        """Until a replica can be asked."""
        self._fleet.check()
        while self._fleet.restarting:
            await asyncio.sleep(_PAUSE)
            self._fleet.check()

    async def _died(self, crashes: int) -> bool:
        """Whether a replica died under the call: the watcher notices within a second or two."""
        for _ in range(max(1, int(self._notice / _PAUSE))):
            self._fleet.check()
            if self._fleet.crashes != crashes:
                return True
            await asyncio.sleep(_PAUSE)
        return False
