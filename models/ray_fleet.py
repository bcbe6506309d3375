"""One managed vLLM on every node of a Ray cluster, asked by the ordinary client. The only file that imports ray.

An actor on each node plans for that node's GPUs, checks the folder there, starts the servers and watches them; calls go straight to the
servers and not through Ray. The model's folder and this project lie at the same paths on every node. A server listens on its node's
address in the cluster (on 127.0.0.1 where there is one node only), with one random key for the run.

Try: python -m models serve FOLDER --ray auto --gpus 8
"""

from __future__ import annotations

import importlib.util
import secrets
import socket
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from models import environment
from models.engines import Workload
from models.errors import ModelError, UserError
from models.fleet import serve
from models.managed import ManagedEngine
from models.placement import Placement
from models.server import Tell
from models.vllm_flags import HOST, ServeOptions

# Ray ends an actor's children with it, our watchdog among them, which then could not end the rest in order.
_LEFT_ALONE = {"RAY_kill_child_processes_on_worker_exit": "0"}
# Of a cluster that is started here. Ray runs its workers at niceness 15, and the servers that they start would inherit it.
_LOCAL: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 100 * 2**20, "_system_config": {"worker_niceness": 0}}
_NO_CLUSTER = "start one with `ray start --head`, name its head as host:port, or take `local`"
_POLL = 1.0  # seconds between two looks at the nodes
_ANSWER = 60.0  # seconds that an actor may take to say how its servers are


@dataclass(frozen=True)
class State:
    """How a node's servers are. `failure` is empty while they can go on."""

    restarting: bool = False
    crashes: int = 0
    failure: str = ""


class Node:
    """What runs in the actor of one node. Its methods hand out plain values, so that a fault is a sentence and not a traceback."""

    def __init__(self, folder: Path, where: Placement, options: ServeOptions, more: dict[str, Any]) -> None:
        self._folder, self._where, self._options, self._more = folder, where, options, more
        self._fleet: Any = None
        self._words = "planning"

    def _tell(self, line: str) -> None:
        self._words = line

    def start(self) -> tuple[tuple[str, ...], str, str]:
        """(addresses, identity, fault): either the first two or the last."""
        try:
            self._fleet = serve(self._folder, self._where, self._options, **self._more, tell=self._tell).__enter__()
            return self._fleet.urls, self._fleet.identity, ""
        except UserError as error:
            return (), "", str(error)

    def words(self) -> str:
        return self._words

    def state(self) -> State:
        try:
            self._fleet.check()
        except ModelError as error:
            return State(False, self._fleet.crashes, str(error))
        return State(self._fleet.restarting, self._fleet.crashes)

    def stop(self) -> None:
        if self._fleet is not None:
            self._fleet.stop()


def require_ray() -> None:
    """Raises ModelError where ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise ModelError("this Python has no ray", remedy="make setup GPU=1 installs it, or pip install '.[ray]'")


class RayFleet:
    """The servers of a whole cluster as one; used as a context manager. `address`: ``auto``, a head's ``host:port``, or ``local``."""

    def __init__(
        self,
        folder: Path,
        where: Placement,
        options: ServeOptions,
        *,
        address: str = "auto",
        log_folder: Path,
        work: Workload | None = None,
        vllm: str | None = None,
        ready_seconds: float = 1800.0,
        tell: Tell | None = None,
    ) -> None:
        require_ray()
        self.folder, self.options, self.key = folder.absolute(), replace(options, media=None), secrets.token_urlsafe(24)
        self.urls: tuple[str, ...] = ()
        self.identity = ""
        self._where, self._address, self._logs = where, address, log_folder.absolute()
        self._more = {"key": self.key, "vllm": vllm, "ready_seconds": ready_seconds, "work": work}
        self._tell = tell or (lambda line: None)
        self._names: list[str] = []
        self._actors: list[Any] = []
        self._states: list[State] = []
        self._ours = False
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> RayFleet:
        try:
            self._connect()
            self._spread()
            self._wait()
        except BaseException:
            self.stop()
            raise
        self._states = [State()] * len(self._actors)
        self._watcher = threading.Thread(target=self._watch, name="watch ray", daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _connect(self) -> None:
        environment.apply()
        import ray

        if ray.is_initialized():
            return
        _reachable(self._address)
        local = _LOCAL if self._address == "local" else {}
        try:
            ray.init(address=self._address, log_to_driver=False, logging_level="ERROR", configure_logging=False, **local)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ModelError(f"no Ray cluster at {self._address!r}: {said}", remedy=_NO_CLUSTER) from None
        self._ours = True

    def _spread(self) -> None:
        """An actor on every node that has what a node must have."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        kind, count = ("GPU", self._where.gpus) if self._where.device == "cuda" else ("CPU", 1)
        alive = [node for node in ray.nodes() if node["Alive"]]
        fit = [node for node in alive if node["Resources"].get(kind, 0) >= count]
        if not fit:
            held = ", ".join(f"{node['NodeManagerHostname']}: {node['Resources'].get(kind, 0):g}" for node in alive) or "none"
            raise ModelError(f"no node of the cluster has {count} {kind}s", where=self._address, remedy=f"nodes: {held}")
        if len(fit) < len(alive):
            self._tell(f"{len(alive) - len(fit)} of {len(alive)} nodes have fewer than {count} {kind}s and are left out")
        many = len({node["NodeManagerAddress"] for node in alive}) > 1
        actor = ray.remote(Node)
        for i, node in enumerate(fit):
            options = replace(self.options, host=node["NodeManagerAddress"] if many else HOST)
            placed = actor.options(
                num_gpus=count if kind == "GPU" else 0,
                num_cpus=0 if kind == "GPU" else 1,
                max_concurrency=4,  # it says how it is while it loads
                runtime_env={"env_vars": _LEFT_ALONE},
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            )
            self._names.append(f"node {i + 1} of {len(fit)} ({node['NodeManagerHostname']})")
            logs = self._logs / f"node-{i}"
            self._actors.append(placed.remote(self.folder, self._where, options, {**self._more, "log_folder": logs}))

    def _wait(self) -> None:
        """Until every node serves. Raises one ModelError with the faults of all nodes that do not."""
        import ray

        begun = time.monotonic()
        starts = {actor.start.remote(): i for i, actor in enumerate(self._actors)}
        found: dict[int, tuple[tuple[str, ...], str, str]] = {}
        while len(found) < len(starts):
            ready, _ = ray.wait([one for one, i in starts.items() if i not in found], timeout=1.0)
            for one in ready:
                try:
                    found[starts[one]] = ray.get(one)
                except ray.exceptions.RayError as error:
                    found[starts[one]] = (), "", f"lost: {_short(error)}"
            self._progress(found, time.monotonic() - begun)
        faults = [f"{self._names[i]}: {fault}" for i, (_, _, fault) in sorted(found.items()) if fault]
        if faults:
            raise ModelError("\n".join(faults), remedy="the model and this project lie at the same paths on every node")
        self.urls = tuple(url for i in sorted(found) for url in found[i][0])
        digests = {found[i][1] for i in found}
        if len(digests) > 1:
            raise ModelError("the nodes hold different files under the same model folder", where=str(self.folder), remedy="copy it to all")
        self.identity = digests.pop()

    def _progress(self, found: dict[int, Any], seconds: float) -> None:
        import ray

        waiting = next((i for i in range(len(self._actors)) if i not in found), None)
        if waiting is not None:
            try:
                words = ray.get(self._actors[waiting].words.remote(), timeout=5)
            except ray.exceptions.RayError:
                words = "no word yet"
            self._tell(f"{self._names[waiting]}: {words.rpartition(', ')[0] or words}, {seconds:.0f} s")

    def _watch(self) -> None:
        """Runs in a thread: asks every node how its servers are."""
        import ray

        while not self._stopping.wait(_POLL):
            for i, actor in enumerate(self._actors):
                try:
                    self._states[i] = ray.get(actor.state.remote(), timeout=_ANSWER)
                except ray.exceptions.GetTimeoutError:
                    continue
                except ray.exceptions.RayError as error:
                    if not self._stopping.is_set():
                        self._states[i] = State(False, self._states[i].crashes + 1, f"{self._names[i]} is lost: {_short(error)}")

    @property
    def restarting(self) -> bool:
        return all(state.restarting for state in self._states)

    @property
    def crashes(self) -> int:
        return sum(state.crashes for state in self._states)

    def check(self) -> None:
        """Raises the ModelError of the first node that is gone for good."""
        for state in self._states:
            if state.failure:
                raise ModelError(state.failure, remedy="the same command goes on from here")

    def engine(self, *, slots: int | None = None, timeout: float = 3600.0, stream: bool = False) -> ManagedEngine:
        """The client of all nodes' servers; pictures travel inside the calls."""
        from models.openai_server import OpenAIServer

        count = slots or self.options.sequences * len(self.urls)
        client = OpenAIServer(
            self.urls, self.options.name, key=self.key, identity=self.identity, slots=count, timeout=timeout, stream=stream
        )
        return ManagedEngine(client, self)

    def stop(self) -> None:
        """Ends every server and actor; returns when they are gone. May be called twice."""
        self._stopping.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(timeout=_ANSWER)
        actors, self._actors = self._actors, []
        if not actors and not self._ours:
            return
        import ray

        ended = [actor.stop.remote() for actor in actors]
        ray.wait(ended, num_returns=len(ended), timeout=_ANSWER) if ended else None
        for actor in actors:
            ray.kill(actor)
        if self._ours:
            ray.shutdown()
            self._ours = False


def _reachable(address: str) -> None:
    """That a head named as host:port takes connections: ray itself would try for minutes. Raises ModelError."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, ValueError) as error:
        raise ModelError(f"no Ray cluster at {address!r}: {error}", remedy=_NO_CLUSTER) from None


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
