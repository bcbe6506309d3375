"""How a model is spread over a count of GPUs: replicas where it fits on one, tensor parallelism where it does not.

Works on numbers alone (a `Shape`, bytes of memory a GPU), so it can be tried without a GPU and without weights. The room for
activations is an estimate on the safe side; it was never measured on a GPU by this project.

Try: python -m models plan Qwen2.5-VL-7B-Instruct --gpus 2 --gpu-memory 24
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from models.errors import ConfigError, ModelError
from models.shape import Shape

GIB = 2**30
UTILISATION = 0.90  # vLLM's own default of --gpu-memory-utilization
STEP_TOKENS = 8192  # tokens of one prefill step, vLLM's default for a server
_RUNTIME = 3 * GIB // 2  # CUDA context, graphs, communication buffers: a round figure on the safe side
_VOCABULARY_PAD = 64  # vLLM pads the vocabulary to a multiple of this before it splits it
MOST = 16  # GPUs in one machine


@dataclass(frozen=True)
class Need:
    """What must have room: `calls` calls of `context` tokens (prompt and reply) in the cache of every replica."""

    context: int = 8192
    calls: int = 2

    def __post_init__(self) -> None:
        if self.context < 1 or self.calls < 1:
            raise ModelError(f"context {self.context}, calls {self.calls}", remedy="both are at least 1")


@dataclass(frozen=True)
class Plan:
    """What to start. `replicas` holds the GPU numbers of each replica (empty tuples on a CPU); bytes are for each GPU."""

    device: Literal["cuda", "cpu"]
    tensor_parallel: int
    replicas: tuple[tuple[int, ...], ...]
    idle: tuple[int, ...]
    context: int
    weight_bytes: int
    cache_bytes: int
    cache_tokens: int
    why: str
    utilisation: float = UTILISATION

    def __str__(self) -> str:
        return self.why


def memory_of(gib: float, gpus: int) -> list[int]:
    """Bytes of each GPU of a machine that is only asked about: eight GPUs of this size, or as many as are wanted. Raises ConfigError."""
    if not 0 < gib < 1e6:  # neither is nan
        raise ConfigError(f"--gpu-memory {gib:g}", remedy="GiB of one GPU, more than 0: 24, or 80")
    if gpus > 1024:
        raise ConfigError(f"--gpus {gpus}", remedy="1,024 at most; the model's own limit is told by a plan for fewer")
    return [int(gib * GIB)] * max(8, gpus)


def degrees(shape: Shape, up_to: int = MOST) -> list[int]:
    """Tensor-parallel degrees that the model's code accepts: heads, key-value heads (or copies of them), MLP and vocabulary must split."""
    padded = -(-shape.vocabulary // _VOCABULARY_PAD) * _VOCABULARY_PAD
    return [
        d
        for d in range(1, min(up_to, shape.heads) + 1)
        if shape.heads % d == 0
        and (shape.kv_heads % d == 0 if shape.kv_heads >= d else d % shape.kv_heads == 0)
        and shape.intermediate % d == 0
        and padded % d == 0
    ]


def why_not(shape: Shape, degree: int) -> str:
    """Why the model cannot be split over `degree` GPUs, as a clause."""
    if shape.heads % degree:
        return f"{shape.heads} attention heads do not divide by {degree}"
    if shape.kv_heads % degree and degree % shape.kv_heads:
        return f"{degree} divides the {shape.heads} attention heads but does not fit the {shape.kv_heads} key-value heads"
    if shape.intermediate % degree:
        return f"the MLP's {shape.intermediate} columns do not divide by {degree}"
    return f"the vocabulary of {shape.vocabulary} does not divide by {degree}"


def weight_bytes(shape: Shape, degree: int) -> int:
    """Bytes of weights on each GPU. The vision tower is kept whole on each (its pictures are spread instead)."""
    return shape.vision_bytes + -(-(shape.weight_bytes - shape.vision_bytes) // degree)


def cache_bytes(shape: Shape, degree: int, memory: int, utilisation: float = UTILISATION) -> int:
    """Bytes that are left for keys and values on each GPU of `memory` bytes; negative when not even the weights fit."""
    widest = 6 * shape.hidden + 3 * shape.intermediate // degree
    activations = 2 * min(STEP_TOKENS, shape.context) * max(widest, 4 * shape.vision_hidden)
    return int(memory * utilisation) - weight_bytes(shape, degree) - activations - _RUNTIME


def cache_tokens(shape: Shape, degree: int, left: int) -> int:
    """Tokens that `left` bytes on each of `degree` GPUs hold. Below one key-value head a GPU, heads are copied, not split."""
    heads_here = max(1, shape.kv_heads // degree)
    return max(0, left) // (2 * shape.layers * heads_here * shape.head_dim * 2)


def fits(shape: Shape, degree: int, memory: int, need: Need, utilisation: float = UTILISATION) -> bool:
    return cache_tokens(shape, degree, cache_bytes(shape, degree, memory, utilisation)) >= need.context * need.calls


def working_counts(shape: Shape, memory: int, need: Need, up_to: int, utilisation: float = UTILISATION) -> list[int]:
    """The GPU counts up to `up_to` for which `plan` finds an answer: the smallest degree that fits, and all above it."""
    smallest = next((d for d in degrees(shape) if fits(shape, d, memory, need, utilisation)), None)
    return [] if smallest is None else list(range(smallest, up_to + 1))


def plan(
    shape: Shape,
    gpus: int,
    memory: Sequence[int],
    need: Need | None = None,
    *,
    tensor_parallel: int | None = None,
    utilisation: float = UTILISATION,
) -> Plan:
    """Spreads the model over the first `gpus` of the GPUs whose bytes of memory are given.

    The smallest degree that fits is taken and repeated as often as the count allows. Raises ModelError, naming the counts or degrees
    that work, when there is none.
    """
    need = need or Need()
    if shape.context < need.context:
        raise ModelError(
            f"the model was made for {shape.context:,} tokens, {need.context:,} are asked for", remedy=f"--context {shape.context} at most"
        )
    if not memory:
        raise ModelError(
            "no GPU answers on this machine",
            remedy="give --gpu-memory GIB to plan for another machine, or use ENGINE=transformers, which runs on a CPU",
        )
    smallest = min(memory[: max(1, gpus)])
    if not 1 <= gpus <= len(memory):
        counts = working_counts(shape, min(memory), need, len(memory), utilisation)
        raise ModelError(f"GPU={gpus}, and this machine has {len(memory)}", remedy=_named(counts, shape, min(memory), need, utilisation))
    possible = degrees(shape)
    if tensor_parallel is not None and tensor_parallel not in possible:
        reason = why_not(shape, tensor_parallel) if tensor_parallel > 0 else f"a degree of {tensor_parallel} means nothing"
        raise ModelError(f"tensor parallel {tensor_parallel}: {reason}", remedy=f"those that work: {_list(possible)}")
    wanted = possible if tensor_parallel is None else [tensor_parallel]
    degree = next((d for d in wanted if d <= gpus and fits(shape, d, smallest, need, utilisation)), None)
    if degree is None:
        counts = working_counts(shape, smallest, need, len(memory), utilisation)
        larger = next((d for d in possible if fits(shape, d, smallest, need, utilisation)), None)
        if tensor_parallel is not None:
            what = f"GPU={gpus} with tensor parallel {tensor_parallel}"
        else:
            what = f"GPU={gpus}: the model does not fit on {gpus} of these GPUs ({_need(shape, gpus, smallest, need, utilisation)})"
        if not counts and larger is not None:
            raise ModelError(what, remedy=f"it needs {larger} GPUs of this size; this machine has {len(memory)}")
        raise ModelError(what, remedy=_named(counts, shape, smallest, need, utilisation))
    count = gpus // degree
    replicas = tuple(tuple(range(i * degree, (i + 1) * degree)) for i in range(count))
    left = cache_bytes(shape, degree, smallest, utilisation)
    tokens = cache_tokens(shape, degree, left)
    idle = tuple(range(count * degree, gpus))
    weights = weight_bytes(shape, degree)
    why = _why(shape, degree, count, idle, weights, left, tokens, need, smallest, utilisation, possible)
    return Plan("cuda", degree, replicas, idle, need.context, weights, left, tokens, why, utilisation)


def plan_cpu(shape: Shape, need: Need, *, replicas: int = 1, cache_gib: int = 1) -> Plan:
    """A plan for vLLM on a CPU (tests): `replicas` servers with `cache_gib` GiB of cache each. Raises ModelError."""
    if shape.context < need.context:
        raise ModelError(f"the model was made for {shape.context:,} tokens, {need.context:,} are asked for", remedy="--context")
    if replicas < 1 or cache_gib < 1:
        raise ModelError(f"{replicas} replicas with {cache_gib} GiB of cache", remedy="both are at least 1")
    tokens = cache_gib * GIB // shape.kv_bytes_per_token()
    why = f"{replicas} server{'s' * (replicas > 1)} on the CPU, a cache of {cache_gib} GiB each ({tokens:,} tokens)"
    return Plan("cpu", 1, ((),) * replicas, (), need.context, shape.weight_bytes, cache_gib * GIB, tokens, why)


def _why(
    shape: Shape, degree: int, count: int, idle: tuple[int, ...], weights: int, left: int, tokens: int, need: Need, memory: int,
    utilisation: float, possible: list[int],
) -> str:  # fmt: skip
    lines = [f"{count} replica{'s' * (count > 1)} of {degree} GPU{'s' * (degree > 1)} each"]
    if degree > 1:
        lines.append(f"it does not fit on fewer (tensor-parallel degrees that this model allows: {_list(possible)})")
    lines.append(
        f"a GPU of {memory / GIB:.0f} GiB, {utilisation:.0%} of it used: weights {weights / GIB:.1f} GiB, cache "
        f"{left / GIB:.1f} GiB: {tokens:,} tokens or {tokens / need.context:.1f} calls of {need.context:,}"
    )
    if idle:
        lines.append(f"{len(idle)} GPU{'s' * (len(idle) > 1)} left idle: another replica needs {degree}")
    return "; ".join(lines)


def _need(shape: Shape, gpus: int, memory: int, need: Need, utilisation: float) -> str:
    degree = max(d for d in degrees(shape) if d <= gpus)
    left = cache_bytes(shape, degree, memory, utilisation)
    return (
        f"{memory / GIB:.0f} GiB each, weights {weight_bytes(shape, degree) / GIB:.1f} GiB a GPU at tensor parallel {degree}, room for "
        f"{cache_tokens(shape, degree, left):,} tokens of the {need.context * need.calls:,} asked for"
    )


def _named(counts: list[int], shape: Shape, memory: int, need: Need, utilisation: float) -> str:
    if counts:
        return f"counts that work here: {_list(counts)}"
    tokens = max((cache_tokens(shape, d, cache_bytes(shape, d, memory, utilisation)) for d in degrees(shape)), default=0)
    if tokens >= need.calls:
        return f"no count of these GPUs works at --context {need.context}; --context {tokens // need.calls} would"
    return "no count of these GPUs works: take larger GPUs, a smaller model or quantized weights"


def _list(numbers: list[int]) -> str:
    if len(numbers) > 8 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
