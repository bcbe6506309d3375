"""The GPUs of this machine, asked through NVML. The only file that knows NVML; where it does not answer, the list is empty.

Try: python -c "from models.gpus import gpus; print(gpus())"
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """One GPU. `index` counts among those that CUDA_VISIBLE_DEVICES leaves; memory in bytes; `capability`: of its kind, (0, 0) untold."""

    index: int
    name: str
    memory: int
    free: int
    capability: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Driver:
    """The driver's version, and the newest CUDA that it can run, as (major, minor)."""

    version: str
    cuda: tuple[int, int]


@dataclass(frozen=True)
class Use:
    """What a GPU does now: utilisation 0 to 1, memory used in bytes, watts (0 where it does not tell)."""

    index: int
    busy: float
    used: int
    watts: float


def _nvml() -> Any | None:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver, no GPU, no permission: all mean that nothing is known
        return None
    return pynvml


def _handles(nvml: Any) -> list[Any]:
    count = nvml.nvmlDeviceGetCount()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
    chosen = []
    for item in filter(None, (part.strip() for part in visible.split(","))):
        if item.isdigit() and int(item) < count:
            chosen.append(nvml.nvmlDeviceGetHandleByIndex(int(item)))
        elif item.startswith(("GPU-", "MIG-")):
            chosen.append(nvml.nvmlDeviceGetHandleByUUID(item.encode()))
    return chosen


def visible_ids(count: int) -> list[str]:
    """What to put into CUDA_VISIBLE_DEVICES for the first `count` GPUs that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    ids = [part.strip() for part in visible.split(",") if part.strip()] if visible else []
    return (ids or [str(i) for i in range(count)])[:count]


def gpus() -> list[Gpu]:
    """Every GPU that this process may use; empty where NVML does not answer."""
    nvml = _nvml()
    if nvml is None:
        return []
    try:
        found = []
        for index, handle in enumerate(_handles(nvml)):
            memory, name = nvml.nvmlDeviceGetMemoryInfo(handle), nvml.nvmlDeviceGetName(handle)
            try:
                major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
            except nvml.NVMLError:
                major, minor = 0, 0
            said = name.decode() if isinstance(name, bytes) else str(name)
            found.append(Gpu(index, said, int(memory.total), int(memory.free), (int(major), int(minor))))
        return found
    except nvml.NVMLError:
        return []
    finally:
        nvml.nvmlShutdown()


def driver() -> Driver | None:
    """The NVIDIA driver; None where NVML does not answer."""
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        version, cuda = nvml.nvmlSystemGetDriverVersion(), int(nvml.nvmlSystemGetCudaDriverVersion())
        return Driver(version.decode() if isinstance(version, bytes) else str(version), (cuda // 1000, cuda % 1000 // 10))
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def use() -> list[Use]:
    """What each GPU does now; empty where NVML does not answer."""
    nvml = _nvml()
    if nvml is None:
        return []
    try:
        found = []
        for index, handle in enumerate(_handles(nvml)):
            try:
                watts = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
            except nvml.NVMLError:
                watts = 0.0
            busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            found.append(Use(index, busy, int(nvml.nvmlDeviceGetMemoryInfo(handle).used), watts))
        return found
    except nvml.NVMLError:
        return []
    finally:
        nvml.nvmlShutdown()
