"""A managed `vllm serve`: plan, checks, one server a replica, one key for the run; used as a context manager.

    with serve(Path(folder), Placement(gpus=2), log_folder=run / "logs") as fleet:
        engine = fleet.engine()

Try: python -m models serve FOLDER --gpus 1
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from models import gpus as nvml
from models import preflight, vllm_flags
from models.checkpoint import digest
from models.engines import EngineSpec, Workload
from models.errors import ModelError
from models.placement import Placement, plan_for
from models.planner import Plan
from models.server import ManagedServer, Tell
from models.shape import Shape, read_shape
from models.vllm_flags import ServeOptions
from models.weights import look

if TYPE_CHECKING:
    from models.managed import ManagedEngine


_TEXT = 4096  # tokens of text, where a run cannot say how long its prompts get


def find_vllm(given: str | None = None) -> Path:
    """The `vllm` command: the one given, that of $VLLM, the one beside this Python, or the first on PATH. Raises ModelError."""
    wanted = given or os.environ.get("VLLM")
    beside = Path(sys.executable).with_name("vllm")
    found = shutil.which(wanted) if wanted else (str(beside) if beside.is_file() else shutil.which("vllm"))
    if found is None:
        said = f"no executable {wanted}" if wanted else "no `vllm` command"
        remedy = "install the lock of the vLLM extra (make setup GPU=1), name the command in $VLLM, or leave the GPUs out"
        raise ModelError(said, remedy=remedy)
    return Path(found)


class Fleet:
    """The replicas of one model. `key` is random for each fleet and handed to the servers through their environment."""

    def __init__(
        self,
        folder: Path,
        shape: Shape,
        chosen: Plan,
        options: ServeOptions,
        vllm: Path,
        log_folder: Path,
        *,
        port: int = 0,
        key: str = "",
        ready_seconds: float = 1800.0,
        grace: float = 15.0,
        restarts: int = 1,
        variables: Mapping[str, str] | None = None,
        tell: Tell | None = None,
    ) -> None:
        self.folder, self.plan, self.options = folder, chosen, options
        self.key = key or secrets.token_urlsafe(24)
        ids = nvml.visible_ids(sum(map(len, chosen.replicas)) + len(chosen.idle))
        self.servers = [
            ManagedServer(
                lambda number: [str(vllm), "serve", str(folder), *vllm_flags.arguments(shape, chosen, options, number)],
                log_folder / f"vllm-{i}.log",
                variables={
                    **vllm_flags.environment(chosen, self.key, [ids[g] for g in devices], profiling=options.profiling),
                    **(variables or {}),
                },
                port=port + i if port else 0,
                ready_seconds=ready_seconds,
                grace=grace,
                restarts=restarts,
                tell=tell,
                host=options.host,
                label=f"replica {i + 1} of {len(chosen.replicas)}" if len(chosen.replicas) > 1 else "vllm",
            )
            for i, devices in enumerate(chosen.replicas)
        ]

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(server.url for server in self.servers)

    def spec(self, *, slots: int | None = None, timeout: float = 600.0) -> EngineSpec:
        """The row for `make_engine` that asks these servers."""
        files = self.options.media is not None
        count = slots or self.options.sequences * len(self.servers)
        urls = "file" if files else "data"
        return EngineSpec("openai", self.options.name, self.urls, key=self.key, slots=count, timeout=timeout, picture_urls=urls)

    def engine(self, *, slots: int | None = None, timeout: float = 3600.0, stream: bool = False) -> ManagedEngine:
        """A server engine that asks these servers, and waits while one is started again. Its digest holds the weights and the picture
        budget, not ports or keys, so that a later run on other ports finds this run's calls in its journal."""
        from models.managed import ManagedEngine
        from models.openai_server import OpenAIServer

        spec = self.spec(slots=slots, timeout=timeout)
        files = spec.picture_urls == "file"
        client = OpenAIServer(
            spec.urls, spec.model, key=spec.key, identity=self.identity, slots=spec.slots, timeout=timeout, file_urls=files, stream=stream
        )
        return ManagedEngine(client, self)

    @cached_property
    def identity(self) -> str:
        """sha256 over the folder's weights, tokenizer and templates, and the options that change what the model sees."""
        options = self.options
        seen = [digest(self.folder, look(self.folder).shards), options.min_pixels, options.max_pixels, options.max_tiles, options.extra]
        return hashlib.sha256(json.dumps(seen).encode()).hexdigest()

    @property
    def restarting(self) -> bool:
        return all(server.restarting for server in self.servers)

    @property
    def crashes(self) -> int:
        return sum(server.crashes for server in self.servers)

    def reset_caches(self) -> bool:
        """Empties the prefix and media caches of every replica; False where a server refuses (it must run with `profiling`)."""
        return all([self._post(server, path) for server in self.servers for path in ("/reset_prefix_cache", "/reset_mm_cache")])

    def _post(self, server: ManagedServer, path: str) -> bool:
        connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
        try:
            connection.request("POST", path, headers={"Authorization": f"Bearer {self.key}"})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def check(self) -> None:
        """Raises the ModelError of the first replica that is gone for good."""
        for server in self.servers:
            server.check()

    def __enter__(self) -> Fleet:
        try:
            if self.plan.device == "cuda":  # each on its own GPUs: they load side by side
                for server in self.servers:
                    server.start()
                for server in self.servers:
                    server.wait()
            else:
                for server in self.servers:
                    server.start()
                    server.wait()
            for server in self.servers:
                self._ours(server)
        except BaseException:
            self.stop()
            raise
        return self

    def _ours(self, server: ManagedServer) -> None:
        """That it is our server which answers, with our key and our model."""
        connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
        try:
            connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {self.key}"})
            answer = connection.getresponse()
            names = [row["id"] for row in json.loads(answer.read())["data"]] if answer.status == 200 else []
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            names = []
        finally:
            connection.close()
        if self.options.name not in names:
            what = f"port {server.port} answers, but not as the model {self.options.name!r} under this run's key"
            raise ModelError(what, where=str(server.log), remedy="another program took the port: start again")

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends every server; returns when they are gone. May be called twice."""
        for server in self.servers:  # all are told before any is waited for
            server.let_go()
        for server in self.servers:
            server.stop()


def prepare(
    folder: Path,
    where: Placement,
    options: ServeOptions,
    *,
    work: Workload | None = None,
    vllm: Path | None = None,
    log_folder: Path | None = None,
    port: int = 0,
) -> tuple[Shape, Plan, list[preflight.Misfit]]:
    """Shape, plan and misfits of a server that is not started yet. A context that is not given grows to what `work` needs.

    Raises ModelError when config.json or the plan is beyond use (naming the weights' faults too).
    """
    shape, weights = read_shape(folder)
    if where.context is None and work is not None:
        needed = preflight.tokens_of(folder, shape, options, work) + (0 if work.prompt_chars else _TEXT)
        where = replace(where, context=max(where.context_of(shape), min(shape.context, -(-needed // 1024) * 1024)))
    context = where.context_of(shape)
    misfits = preflight.check(folder, shape, weights, options, context, work=work, vllm=vllm, log_folder=log_folder, port=port)
    try:
        chosen = plan_for(shape, where)
    except ModelError as error:
        preflight.require([*misfits, preflight.Misfit(error.what, error.remedy or "see docs/vllm.md")], str(folder))
        raise
    return shape, chosen, misfits


def serve(
    folder: Path,
    where: Placement | None = None,
    options: ServeOptions | None = None,
    *,
    log_folder: Path,
    work: Workload | None = None,
    vllm: str | None = None,
    port: int = 0,
    key: str = "",
    ready_seconds: float = 1800.0,
    restarts: int = 1,
    tell: Tell | None = None,
) -> Fleet:
    """A fleet that is checked and planned but not started: enter it. Raises ModelError listing every misfit at once."""
    options = options or ServeOptions(folder.name)
    if work is not None and work.pictures > options.pictures:
        options = replace(options, pictures=work.pictures)
    command = find_vllm(vllm)
    shape, chosen, misfits = prepare(folder, where or Placement(), options, work=work, vllm=command, log_folder=log_folder, port=port)
    preflight.require(misfits, str(folder))
    if tell is not None:
        tell(str(chosen))
    return Fleet(
        folder,
        shape,
        chosen,
        options,
        command,
        log_folder,
        port=port,
        key=key,
        ready_seconds=ready_seconds,
        restarts=restarts,
        tell=tell,
    )
