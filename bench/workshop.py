"""What the rows of a run share: agents by prompt set, frames by option, captions, engines by backend; each made once, on first use.

Knows no episode. Engines come from a factory, so that a test brings its own. Try: python -m bench run --limit 4
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.config import ROLES, Backend, RunConfig
from bench.episode import World
from bench.frames import Showing
from bench.rows import Row
from bench.settings import SETTINGS, Album, Scene
from kg.agents import Agents
from kg.dataset import Dataset, Question
from kg.frames import NoFrames
from models.engines import Engine, EngineSpec, Stoppable, Workload, make_engine
from models.environment import server_key
from models.locate import at_home, locate
from models.placement import Placement
from models.progress import console
from models.vllm_flags import ServeOptions, split_args

__all__ = ["NoFrames", "OpenEngine", "Workshop", "open_engine"]

CACHE = Path(".cache")
OpenEngine = Callable[..., Engine]  # of a Backend and a RunConfig


_LONGEST_REPLY = 400  # tokens: the longest that a prompt of ours asks for
OWN_VLLM = ("vllm", "vllm-offline", "vllm-ray")  # engines of ours that hold the GPUs for as long as they are open


def spec_of(backend: Backend, config: RunConfig, media: Path = CACHE, logs: Path = CACHE) -> EngineSpec:
    """What opens a backend. `media` is the only folder that a server of ours may read pictures from. Raises ConfigError."""
    kind = config.engine_of(backend)
    serving = None
    if kind in OWN_VLLM:
        media.mkdir(parents=True, exist_ok=True)  # a server refuses a folder that is not there yet, as in a fresh checkout
        name = at_home(backend.model).absolute().name
        serving = ServeOptions(
            name,
            pictures=config.max_frames,
            media=media.absolute(),
            max_pixels=config.max_pixels,
            max_tiles=config.max_tiles,
            own_code=config.trust_local_code,
            extra=split_args(config.vllm_args),
        )
    return EngineSpec(
        kind=kind,
        model=backend.model,
        urls=tuple(url.strip() for url in (backend.endpoint or "").split(",") if url.strip()),
        key=server_key() if backend.endpoint else "",
        slots=config.slots,
        batch=config.batch,
        timeout=config.timeout,
        max_pixels=config.max_pixels,
        where=Placement(gpus=config.gpu, replicas=config.gpu, device=config.served_on, context=config.context),
        work=Workload(pictures_of(config), max_tokens=_LONGEST_REPLY, pixels=config.max_side**2),
        serving=serving,
        ray=config.ray,
        logs=logs,
        tell=_say,
    )


def pictures_of(config: RunConfig) -> int:
    """Pictures in one call at most: none where no setting of the run shows any."""
    sighted = (SETTINGS[name] for name in config.settings)
    return config.max_frames if any(s.needs_query_media or s.needs_node_media or s.needs_offline_captions for s in sighted) else 0


def open_engine(backend: Backend, config: RunConfig, media: Path = CACHE, logs: Path = CACHE) -> Engine:
    """The engine of a backend, opened; a vLLM of ours runs from then on. Raises ModelError when it cannot be used."""
    return make_engine(spec_of(backend, config, media, logs))


def _say(line: str) -> None:
    console().print(line, highlight=False, markup=False)


def identify(backend: Backend, config: RunConfig) -> str:
    """What names a backend in a run's manifest, without loading it. Raises ModelError for a folder that is not whole."""
    if backend.endpoint:
        return f"server:{backend.endpoint}:{backend.model}"
    from models.checkpoint import inspect

    kind = config.engine_of(backend)  # engines may differ in what they answer
    return f"{'folder' if kind == 'transformers' else kind}:{inspect(locate(backend.model)).digest}"


@dataclass
class Workshop:
    """One per process and data set. `logs` is where servers that it starts write; `close` stops them."""

    dataset: Dataset
    cache: Path
    factory: OpenEngine = open_engine
    logs: Path = CACHE / "servers"
    offline: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    _agents: dict[str, Agents] = field(default_factory=dict)
    _engines: dict[Backend, Engine] = field(default_factory=dict)
    _identities: dict[Backend, str] = field(default_factory=dict)
    _showing: Showing | None = None

    def agents(self, config: RunConfig) -> Agents:
        """The prompt set of these options. Raises ConfigError."""
        name = config.prompt_set
        if name not in self._agents:
            self._agents[name] = Agents.load(self.dataset.card, name)
        return self._agents[name]

    def engine(self, backend: Backend, config: RunConfig) -> Engine:
        """The backend's engine; one for every backend, however many roles it serves."""
        if backend not in self._engines:
            usual = self.factory is open_engine
            self._engines[backend] = open_engine(backend, config, self.frames, self.logs) if usual else self.factory(backend, config)
        return self._engines[backend]

    @property
    def frames(self) -> Path:
        """Where prepared frames lie: the only folder that a server may read pictures from."""
        return self.cache / "frames"

    def holds_gpus(self, backend: Backend, config: RunConfig) -> bool:
        """Whether the backend is a vLLM of ours, which has the GPUs for itself until `close`."""
        return self.factory is open_engine and config.engine_of(backend) in OWN_VLLM

    def close(self) -> None:
        """Stops every vLLM and every preparation of frames that was started here; what is used again is opened again."""
        if self._showing is not None:
            self._showing.close()
            self._showing = None
        for backend, engine in list(self._engines.items()):
            if isinstance(engine, Stoppable):
                del self._engines[backend]
                engine.stop()

    def identity(self, backend: Backend, config: RunConfig) -> str:
        """The backend's name in a manifest; loads nothing where the engine is the usual one."""
        if backend not in self._identities:
            usual = self.factory is open_engine
            self._identities[backend] = identify(backend, config) if usual else self.engine(backend, config).digest
        return self._identities[backend]

    def roles(self, config: RunConfig, judge: Backend | None = None) -> dict[str, Engine]:
        """role → engine; what has no backend of its own is answered by ``agent``."""
        known = config.backends
        return {role: self.engine(known.get(role, judge if role == "judge" and judge else known["agent"]), config) for role in ROLES}

    def prepare(self, rows: Sequence[Row], questions: Sequence[Question], captioning: Collection[str] = ()) -> Showing:
        """Starts on every frame that these rows will show; see `Showing.prepare`."""
        if self._showing is None:
            self._showing = Showing(self.dataset, self.frames)
        self._showing.prepare(rows, questions, captioning)
        return self._showing

    def scene(self, row: Row, question: Question) -> Scene | NoFrames:
        """What there is to see of this question in this row; NoFrames when its media cannot be used."""
        assert self._showing is not None, "prepare comes first"
        return self._showing.scene(row, question)

    def world(self, row: Row) -> World:
        """What all samples of this row share. An entity whose clip cannot be used shows nothing."""
        frames = self._showing.seen(row) if self._showing is not None else {}
        return World(self.dataset.graph, self.agents(row.config), Album(frames, self.offline.get(row.label, {})), row.search)
