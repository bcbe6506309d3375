"""What a profile measures: servers of ours, servers that run already, or a model in this process; opened once, asked at any concurrency.

Knows options and engines, no questions. Try: python -m bench profile --limit 4
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.config import RunConfig
from bench.workshop import spec_of
from models.engines import BatchEngine, Engine, EngineSpec, ServerEngine, Stoppable, Workload, make_engine
from models.errors import CallFailed, ConfigError
from models.profile_cli import Served, reset_caches
from models.requests import Completion, Request


@dataclass(frozen=True)
class Target:
    """`engine(slots, extra)`: the engine with so many calls in flight; `extra` are more keys of a request's body, for servers only."""

    served: Served
    engine: Callable[[int, Mapping[str, Any]], Engine]
    folder: Path


class Portion:
    """A batch engine that takes at most `size` calls at once, as a server with so many slots would."""

    def __init__(self, inner: BatchEngine, size: int) -> None:
        self._inner, self._size = inner, size
        self.name, self.digest, self.can_constrain = inner.name, inner.digest, inner.can_constrain

    def check(self, work: Workload) -> None:
        self._inner.check(work)

    def complete_batch(self, requests: Sequence[Request]) -> Iterator[tuple[int, Completion | CallFailed]]:
        for start in range(0, len(requests), self._size):
            for i, reply in self._inner.complete_batch(requests[start : start + self._size]):
                yield start + i, reply


@contextmanager
def opened(config: RunConfig, frames: Path, logs: Path) -> Iterator[Target]:
    """The one model that these options name. Raises ConfigError for several, ModelError for one that cannot be used."""
    backends = dict.fromkeys(config.backends.values())
    if len(backends) > 1:
        names = ", ".join(backend.model for backend in backends)
        raise ConfigError(f"a profile measures one model, and the roles name {names}", remedy="leave --set roles.… out")
    spec = spec_of(next(iter(backends)), config, frames, logs)
    with _OPEN.get(spec.kind, _inside)(spec) as target:
        yield target


@contextmanager
def _servers(spec: EngineSpec) -> Iterator[Target]:
    from models.openai_server import OpenAIServer

    def engine(slots: int, extra: Mapping[str, Any]) -> ServerEngine:
        return OpenAIServer(spec.urls, spec.model, key=spec.key, slots=slots, timeout=spec.timeout, stream=True, extra=extra)

    served = Served(spec.urls, spec.key, spec.model, False, lambda: reset_caches(spec.urls, spec.key))
    yield Target(served, engine, Path(spec.model))


@contextmanager
def _managed(spec: EngineSpec) -> Iterator[Target]:
    from models.fleet import serve
    from models.locate import locate
    from models.openai_server import OpenAIServer
    from models.serve_cli import progress

    folder = Path(locate(spec.model))
    assert spec.serving is not None, "spec_of decides about a server of ours"
    options = replace(spec.serving, profiling=True)  # caches that can be emptied
    with serve(folder, spec.where, options, log_folder=spec.logs, work=spec.work, tell=progress()) as fleet:

        def engine(slots: int, extra: Mapping[str, Any]) -> ServerEngine:
            how: dict[str, Any] = {"key": fleet.key, "identity": fleet.identity, "timeout": spec.timeout, "file_urls": True}
            return OpenAIServer(fleet.urls, options.name, slots=slots, stream=True, extra=extra, **how)

        yield Target(Served(fleet.urls, fleet.key, options.name, True, fleet.reset_caches), engine, folder)


@contextmanager
def _inside(spec: EngineSpec) -> Iterator[Target]:
    from models.locate import locate

    inner = make_engine(spec)
    try:

        def engine(slots: int, extra: Mapping[str, Any]) -> Engine:
            return Portion(inner, slots) if isinstance(inner, BatchEngine) else inner

        # nothing is kept from one call to the next, so there is nothing to empty
        yield Target(Served(reset=lambda: True), engine, Path(locate(spec.model)))
    finally:
        if isinstance(inner, Stoppable):
            inner.stop()


_OPEN: Mapping[str, Callable[[EngineSpec], Any]] = {"openai": _servers, "vllm": _managed}
