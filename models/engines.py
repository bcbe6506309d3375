"""What an engine must be able to do, and the table of those that exist.

Two kinds, because they are driven differently: a `ServerEngine` takes single calls and batches them itself (the streaming
driver), a `BatchEngine` takes a whole round at once (the lock-step driver). Knows no library; a row imports its engine on use.

Try: python -c "from models.engines import ENGINES; print(list(ENGINES))"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from models.errors import CallFailed, ConfigError
from models.placement import Placement
from models.requests import Completion, Request
from models.vllm_flags import ServeOptions


@dataclass(frozen=True)
class Workload:
    """What a run will ask of an engine, as far as it is known before it starts; `check` holds it against what the engine can.

    Attributes:
        pictures: the most pictures in one call.
        constraints: of ``choices``, ``pattern``, ``probe``, those that decoding will use.
        prompt_chars: the longest prompt's characters (0 where not known), for a first look at the context length.
        max_tokens: the longest reply asked for.
        pixels: the most pixels of one picture (0 where not known: then the model's own budget counts).
    """

    pictures: int = 0
    constraints: frozenset[str] = frozenset()
    prompt_chars: int = 0
    max_tokens: int = 0
    pixels: int = 0


class Engine(Protocol):
    """What both kinds share.

    `digest` is part of every call's key: weights and config for a folder, address and declared model for a server. `can_constrain`
    holds those of ``choices``, ``pattern``, ``probe`` that decoding honours (empty means none, so it reads as a truth value too).
    """

    @property
    def name(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def can_constrain(self) -> frozenset[str]: ...

    def check(self, work: Workload) -> None:
        """Raises ModelError, naming every misfit and its remedy, when the work cannot be done."""
        ...


@runtime_checkable
class ServerEngine(Engine, Protocol):
    """An engine that answers single calls concurrently."""

    @property
    def slots(self) -> int:
        """How many calls may be in flight now; may change while a run goes on."""
        ...

    async def open(self) -> None:
        """Called once in the driver's event loop before the first call. Raises ModelError when nothing usable answers."""
        ...

    async def complete(self, request: Request) -> Completion:
        """The reply. Raises CallFailed for this call alone, ModelError when no further call can succeed."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class BatchEngine(Engine, Protocol):
    """An engine that answers a list of calls."""

    def complete_batch(self, requests: Sequence[Request]) -> Iterator[tuple[int, Completion | CallFailed]]:
        """(position in `requests`, reply) as they finish, each position once, in any order."""
        ...


@runtime_checkable
class Stoppable(Protocol):
    """An engine that holds a server or a GPU of its own until it is told to let go. It cannot be asked afterwards."""

    def stop(self) -> None: ...


@dataclass(frozen=True)
class EngineSpec:
    """Everything that a factory may need; what an engine does not know it ignores.

    Attributes:
        kind: a row of `ENGINES`.
        model: a folder or a name that `models.locate` knows, or (openai) the name that a server serves.
        urls: base addresses of an OpenAI-compatible server, ``http://host:port/v1``; several are replicas of one model.
        key: the server's API key.
        device: ``cpu``, ``cuda`` or ``auto``.
        slots: calls in flight, for all URLs together.
        batch: rows of a batch at most (transformers).
        threads: CPU threads (0: the library's own choice).
        min_pixels, max_pixels: the picture budget of Qwen2.5-VL, in pixels; None takes the folder's.
        timeout: seconds for one call, retries included.
        picture_urls: ``data`` (works everywhere) or ``file`` (the server reads the same disk).
        identity: what a server's model is, for the calls' keys (a weights digest): a run then finds its calls again on other addresses.
        where: the hardware of an engine of ours (vllm, vllm-offline).
        serving: what is decided about a vLLM of ours; None takes the defaults and the folder's name.
        ray: the Ray cluster of vllm-ray: ``auto``, the head's ``host:port``, or ``local``.
        work: what the run will ask, for the pre-flight and the context of a vLLM of ours.
        logs: where a server of ours writes.
        tell: takes progress lines while a model is loaded.
    """

    kind: str
    model: str
    urls: tuple[str, ...] = ()
    key: str = field(default="", repr=False)
    device: str = "auto"
    slots: int = 64
    batch: int = 32
    threads: int = 0
    min_pixels: int | None = None
    max_pixels: int | None = None
    timeout: float = 600.0
    picture_urls: str = "data"
    identity: str = ""
    where: Placement = field(default_factory=Placement)
    serving: ServeOptions | None = None
    ray: str = "auto"
    work: Workload | None = None
    logs: Path = Path(".cache/servers")
    tell: Callable[[str], None] | None = field(default=None, compare=False, repr=False)


def _transformers(spec: EngineSpec) -> Engine:
    from models.hf_engine import TransformersEngine
    from models.locate import locate

    return TransformersEngine(
        Path(locate(spec.model)),
        device=spec.device,
        batch=spec.batch,
        threads=spec.threads,
        min_pixels=spec.min_pixels,
        max_pixels=spec.max_pixels,
    )


def _openai(spec: EngineSpec) -> Engine:
    from models.openai_server import OpenAIServer

    files = spec.picture_urls == "file"
    return OpenAIServer(
        spec.urls, spec.model, key=spec.key, identity=spec.identity, slots=spec.slots, timeout=spec.timeout, file_urls=files
    )


def _vllm(spec: EngineSpec) -> Engine:
    from models.fleet import serve
    from models.locate import locate

    fleet = serve(Path(locate(spec.model)), spec.where, spec.serving, log_folder=spec.logs, work=spec.work, tell=spec.tell)
    return fleet.__enter__().engine(slots=spec.slots, timeout=spec.timeout)


def _vllm_offline(spec: EngineSpec) -> Engine:
    from models.locate import locate
    from models.vllm_offline import offline

    return offline(Path(locate(spec.model)), spec.where, spec.serving, work=spec.work)


def _vllm_ray(spec: EngineSpec) -> Engine:
    from models.locate import locate
    from models.ray_fleet import RayFleet

    folder = Path(locate(spec.model))
    fleet = RayFleet(
        folder,
        spec.where,
        spec.serving or ServeOptions(folder.name),
        address=spec.ray,
        log_folder=spec.logs,
        work=spec.work,
        tell=spec.tell,
    )
    return fleet.__enter__().engine(slots=spec.slots, timeout=spec.timeout)


# What opens an engine: it may take minutes, and a server of ours runs from then on until `stop` or this process's end.
ENGINES: dict[str, Callable[[EngineSpec], Engine]] = {
    "transformers": _transformers,
    "openai": _openai,
    "vllm": _vllm,
    "vllm-offline": _vllm_offline,
    "vllm-ray": _vllm_ray,
}


def make_engine(spec: EngineSpec) -> Engine:
    """The engine of this row. Raises ConfigError for an unknown kind, ModelError for a model that cannot be used."""
    return ENGINES[_known(spec)](spec)


def _inspect(spec: EngineSpec) -> None:
    from models.checkpoint import inspect
    from models.locate import locate

    inspect(locate(spec.model))


def _plan_servers(spec: EngineSpec) -> None:
    from models.fleet import serve
    from models.locate import locate

    serve(Path(locate(spec.model)), spec.where, spec.serving, log_folder=spec.logs, work=spec.work)


def _plan_offline(spec: EngineSpec) -> None:
    from models.locate import locate
    from models.vllm_offline import prepared

    prepared(Path(locate(spec.model)), spec.where, spec.serving, work=spec.work)


def _plan_nodes(spec: EngineSpec) -> None:
    from models.ray_fleet import require_ray

    require_ray()
    _inspect(spec)  # each node plans for itself


def _addresses(spec: EngineSpec) -> None:
    for url in spec.urls:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"endpoint {url!r} is no address", remedy="for example http://127.0.0.1:8000/v1")


# What can be known to be wrong before anything is loaded or asked.
CHECKS: dict[str, Callable[[EngineSpec], None]] = {
    "transformers": _inspect,
    "openai": _addresses,
    "vllm": _plan_servers,
    "vllm-offline": _plan_offline,
    "vllm-ray": _plan_nodes,
}


def check_spec(spec: EngineSpec) -> None:
    """Loads nothing, starts nothing, asks nobody. Raises the UserError that `make_engine` would end with, all misfits in it."""
    CHECKS[_known(spec)](spec)


def _known(spec: EngineSpec) -> str:
    if spec.kind not in ENGINES:
        raise ConfigError(f"unknown engine {spec.kind!r}", remedy=f"one of: {', '.join(sorted(ENGINES))}")
    return spec.kind
