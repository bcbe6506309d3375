"""The one table of environment switches that keep libraries offline and silent, applied to every process that this project starts.

Try: python -c "from models.environment import SWITCHES; print(*SWITCHES, sep='\\n')"
"""

from __future__ import annotations

import os
from collections.abc import Mapping

# name → (value, why)
SWITCHES: dict[str, tuple[str, str]] = {
    "HF_HUB_OFFLINE": ("1", "huggingface_hub: no look-ups, no downloads"),
    "TRANSFORMERS_OFFLINE": ("1", "transformers: the same, read by its own code"),
    "HF_DATASETS_OFFLINE": ("1", "datasets: the same"),
    "HF_HUB_DISABLE_TELEMETRY": ("1", "huggingface_hub: no usage pings"),
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": ("1", "huggingface_hub: no token is sent unasked"),
    "VLLM_NO_USAGE_STATS": ("1", "vllm: no usage statistics"),
    "VLLM_DO_NOT_TRACK": ("1", "vllm: the same, its second switch"),
    "DO_NOT_TRACK": ("1", "the common switch: vllm, FastAPI's command line and others"),
    "RAY_USAGE_STATS_ENABLED": ("0", "ray: no usage statistics"),
    "OTEL_SDK_DISABLED": ("true", "OpenTelemetry, which vllm brings: no exporter"),
    "SENTRY_DSN": ("", "sentry, which FastAPI's command line brings: nowhere to report to"),
    "NO_PROXY": ("127.0.0.1,localhost", "loopback never goes through a proxy"),
    "no_proxy": ("127.0.0.1,localhost", "the same, as curl and requests spell it"),
    "TOKENIZERS_PARALLELISM": ("false", "tokenizers: no threads before a fork, and no warning about it"),
    "MPLBACKEND": ("Agg", "matplotlib: files, no windows"),
}
# What a server of ours has no use for, so does not get.
WITHHELD = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "WANDB_API_KEY", "PYTHONPATH")


def apply() -> None:
    """Sets every switch in this process. Call it before a library is imported; most read the environment once."""
    os.environ.update({name: value for name, (value, _) in SWITCHES.items()})


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a process that we start: this one's, without secrets, with every switch set, then `extra`."""
    kept = {name: value for name, value in os.environ.items() if name not in WITHHELD}
    return {**kept, **{name: value for name, (value, _) in SWITCHES.items()}, **(extra or {})}
