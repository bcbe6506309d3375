"""The least time that a GPU's arithmetic and memory allow for a run's calls, from the model's shape and the GPU's peak numbers.

A lower bound, not a forecast: prefill is bound by arithmetic, decoding by reading weights and cache once a step.
Source: Williams et al., Roofline (2009); token counts as in Kaplan et al. (2020): 2 operations per parameter and token.
Try: python -m models profile --replay RUN --model FOLDER --peak-tflops 155 --peak-gbps 768
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from models.shape import Shape

_PATCHES_PER_TOKEN = 4  # Qwen2.5-VL and InternVL both merge 2 × 2 patches into one token


@dataclass(frozen=True)
class Peak:
    """Dense bf16 operations a second and bytes a second, of one GPU."""

    flops: float
    bandwidth: float
    source: str


@dataclass(frozen=True)
class Work:
    """Tokens of a run. `computed` are prompt tokens that no cache served; `image` those of pictures seen for the first time."""

    computed: int
    image: int
    output: int
    mean_context: float
    in_flight: int


@dataclass(frozen=True)
class Least:
    """Seconds of wall clock at least, over all GPUs."""

    prefill: float
    decode: float

    @property
    def total(self) -> float:
        return self.prefill + self.decode


def least(shape: Shape, peak: Peak, work: Work, gpus: int = 1) -> Least:
    """The bound for this work on `gpus` equal GPUs, all of them busy all the time."""
    text_parameters = (shape.weight_bytes - shape.vision_bytes) / 2
    vision_parameters = shape.vision_bytes / 2
    width = shape.heads * shape.head_dim
    attention = 4 * shape.layers * width * work.mean_context / 2  # causal: half of the context on average
    prefill = work.computed * (2 * text_parameters + attention) + work.image * _PATCHES_PER_TOKEN * 2 * vision_parameters
    steps = work.output / max(1, work.in_flight)
    read = steps * 2 * text_parameters + work.output * work.mean_context * shape.kv_bytes_per_token()
    arithmetic = work.output * 2 * text_parameters / (peak.flops * gpus)
    return Least(prefill / (peak.flops * gpus), max(read / (peak.bandwidth * gpus), arithmetic))


@lru_cache(maxsize=1)
def peaks() -> tuple[tuple[str, float, float], ...]:
    """(part of the name, TFLOPS, GB/s) of peaks.toml."""
    with Path(__file__).with_name("peaks.toml").open("rb") as file:
        return tuple((row["name"], row["tflops"], row["gbps"]) for row in tomllib.load(file)["peaks"])


def peak_of(gpu: str, tflops: float | None = None, gbps: float | None = None) -> Peak | None:
    """The peak of a GPU by its name, or by the two numbers given; None when neither is known."""
    row = next((row for row in peaks() if row[0].casefold() in gpu.casefold()), None)
    if tflops is None and gbps is None and row is None:
        return None
    flops, bandwidth = tflops or (row[1] if row else None), gbps or (row[2] if row else None)
    if flops is None or bandwidth is None:
        return None
    given = "given" if tflops and gbps else f"data sheet of {row[0]}" if row else "given"
    return Peak(flops * 1e12, bandwidth * 1e9, given)
