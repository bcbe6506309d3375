"""Checks of the GPUs: how many, their driver, whether torch can use them, who sits on them. Asks NVML through models/gpus.py."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bench.doctor import ask
from bench.doctor.rows import Asked, Line, fail, ok, unknown, warn

GIB = 2**30
LEAST = (7, 0)  # compute capability that vLLM's builds start at
_TORCH = """
import json
import torch
built, there = torch.version.cuda or "", torch.cuda.is_available()
count = torch.cuda.device_count() if there else 0
total = float(sum((torch.ones(8, device=f"cuda:{i}") * 2).sum() for i in range(count)))
print(json.dumps({"built": built, "count": count, "total": total}))
"""


def cards(asked: Asked) -> Iterator[Line]:
    from models import gpus

    found = gpus.gpus()
    if not found:
        yield from _none(asked)
        return
    for gpu in found:
        said = f"GPU {gpu.index}: {gpu.name}, {gpu.memory / GIB:.0f} GiB, {gpu.free / GIB:.0f} free"
        if gpu.capability != (0, 0) and gpu.capability < LEAST:
            yield warn(
                f"{said}, compute capability {gpu.capability[0]}.{gpu.capability[1]}",
                "vLLM needs 7.0 (Volta) or newer: take ENGINE=transformers",
            )
        elif asked.gpus > gpu.index and gpu.free < 0.88 * gpu.memory:
            yield warn(said, "vLLM takes 90 % of it: see who is there with nvidia-smi, or choose others with CUDA_VISIBLE_DEVICES")
        else:
            yield ok(said)
    if asked.gpus > len(found):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        remedy = f"GPU={len(found)}" + (f", or let CUDA_VISIBLE_DEVICES={visible} name more" if visible is not None else "")
        yield fail(f"GPU={asked.gpus} is asked for, {len(found)} can be used", remedy)
    if len({(gpu.name, gpu.memory) for gpu in found[: max(1, asked.gpus)]}) > 1:
        yield warn("they are of several kinds", "the smallest decides for all: choose equal ones with CUDA_VISIBLE_DEVICES")


def _none(asked: Asked) -> Iterator[Line]:
    devices = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    if devices:
        blocked = [name for name in devices if not os.access(f"/dev/{name}", os.R_OK | os.W_OK)]
        what = f"/dev/{devices[0]} is there, but NVML does not answer"
        remedy = (
            f"this user may not use {blocked[0]}: join its group"
            if blocked
            else "driver and library differ, often after an update: restart the machine"
        )
        if not blocked and _has_no_nvml():
            yield unknown(what, "the Python package nvidia-ml-py is not installed here: make doctor GPU=1 looks from vLLM's environment")
            return
        yield (fail if asked.gpus else warn)(what, remedy)
    elif asked.gpus:
        tool = "nvidia-smi is there, too" if shutil.which("nvidia-smi") else "no driver is installed"
        yield fail(
            f"GPU={asked.gpus} is asked for, and no GPU is seen ({tool})",
            "install NVIDIA's driver; start a container with --gpus all; or GPU=0",
        )
    else:
        yield ok("no GPU is seen: models run on the processor")


def _has_no_nvml() -> bool:
    from importlib.util import find_spec

    return find_spec("pynvml") is None


def driver(asked: Asked) -> Iterator[Line]:
    from models import gpus

    found = gpus.driver()
    if found is None:
        yield unknown("no NVIDIA driver answers") if asked.gpus else ok("no NVIDIA driver, none needed without a GPU")
        return
    said = f"driver {found.version}, good for CUDA {found.cuda[0]}.{found.cuda[1]}"
    rows, wrong = ask.python(["-c", _TORCH], 120.0)
    if not rows:
        yield fail(
            f"{said}; torch cannot use a GPU: {wrong}",
            "make setup GPU=1 builds the environment for GPUs; the line on torch above says more",
        )
        return
    told = rows[0]
    if not told["built"]:
        yield (fail if asked.gpus else ok)(
            *(
                [f"{said}; this environment's torch is built for processors only", "make doctor GPU=1 looks into vLLM's"][
                    : 1 + bool(asked.gpus)
                ]
            )
        )
        return
    built = tuple(int(part) for part in str(told["built"]).split(".")[:2])
    if built[0] > found.cuda[0]:
        yield fail(
            f"{said}; torch is built for CUDA {told['built']}",
            "install a newer driver (forward compatibility packages work on data-centre GPUs)",
        )
    elif not told["count"]:
        yield fail(f"{said}; torch (CUDA {told['built']}) sees no GPU", "CUDA_VISIBLE_DEVICES, or a restart after a driver's update")
    elif told["total"] != 16.0 * told["count"]:
        yield fail(
            f"{said}; a GPU adds up wrongly ({told['total']} for {16.0 * told['count']})",
            "a broken GPU: nvidia-smi -q, look for ECC errors",
        )
    else:
        yield ok(f"{said}; torch (CUDA {told['built']}) computes on {told['count']}")
