"""Where a model is to run and how much of the machine it may take: one set of options for servers, the offline engine and Ray.

Knows no process; `plan_for` turns it into a plan. Try: python -m models plan Qwen2.5-VL-7B-Instruct --gpus 2 --gpu-memory 24
"""

from __future__ import annotations

from dataclasses import dataclass

from models import gpus as nvml
from models.errors import ConfigError
from models.planner import UTILISATION, Need, Plan, memory_of, plan, plan_cpu
from models.shape import Shape

DEVICES = ("cuda", "cpu")
_CONTEXT = 8192  # tokens, where the model allows it and nothing else is asked for


@dataclass(frozen=True)
class Placement:
    """What the user decides about the hardware.

    Attributes:
        gpus: how many GPUs; the planner chooses replicas or tensor parallelism.
        device: ``cuda``, or ``cpu`` (vLLM's CPU build, for tests).
        gpu_memory: GiB of a GPU, instead of asking NVML.
        context: prompt and reply of one call, in tokens; None takes 8,192, or the model's own where that is less.
        tensor_parallel: GPUs of one replica; None lets the planner choose.
        utilisation: share of a GPU's memory that may be used.
        replicas: servers on a CPU, where there is no GPU to count.
    """

    gpus: int = 1
    device: str = "cuda"
    gpu_memory: float | None = None
    context: int | None = None
    tensor_parallel: int | None = None
    utilisation: float = UTILISATION
    replicas: int = 1

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise ConfigError(f"device {self.device!r}", remedy=" or ".join(DEVICES))

    def context_of(self, shape: Shape) -> int:
        """Tokens of one call for this model; may lie beyond what it was made for, which the pre-flight says."""
        return self.context or min(_CONTEXT, shape.context)


def plan_for(shape: Shape, where: Placement) -> Plan:
    """The plan of this model on this hardware. Raises ModelError naming the counts that work."""
    need = Need(max(1, min(where.context_of(shape), shape.context)))
    if where.device == "cpu":
        return plan_cpu(shape, need, replicas=where.replicas)
    memory = [gpu.memory for gpu in nvml.gpus()]
    if where.gpu_memory is not None:
        memory = memory_of(where.gpu_memory, where.gpus)
    return plan(shape, where.gpus, memory, need, tensor_parallel=where.tensor_parallel, utilisation=where.utilisation)
