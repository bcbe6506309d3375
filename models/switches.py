"""The one table of environment switches that keep libraries offline and silent: name, value, whose, why.

Data only, standard library only. models/environment.py applies it, scripts/environment.mk is written from it for the Makefile
(`python -m models switches --make`), a test holds the two equal.

Try: python -m models switches
"""

from __future__ import annotations

from typing import NamedTuple


class Switch(NamedTuple):
    """One variable. `kept`: a value that the user has set stays (a preference, nothing that could reach out)."""

    name: str
    value: str
    library: str
    why: str
    kept: bool = False


LOOPBACK = "127.0.0.1,localhost,::1"

SWITCHES: tuple[Switch, ...] = (
    Switch("HF_HUB_OFFLINE", "1", "huggingface_hub", "no look-ups, no downloads"),
    Switch("HF_HUB_DISABLE_TELEMETRY", "1", "huggingface_hub", "no usage pings"),
    Switch("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1", "huggingface_hub", "no token is sent unasked"),
    Switch("HF_HUB_DISABLE_UPDATE_CHECK", "1", "huggingface_hub", "its command line asks for no newer version"),
    Switch("HF_HUB_DISABLE_XET", "1", "huggingface_hub", "hf_xet, native code with a client of its own, is not used"),
    Switch("TRANSFORMERS_OFFLINE", "1", "transformers", "no downloads, read by its own code"),
    Switch("TRANSFORMERS_VERBOSITY", "error", "transformers", "no advice to install torchvision: the PIL back end is meant", kept=True),
    Switch("HF_DATASETS_OFFLINE", "1", "datasets", "no downloads"),
    Switch("HF_EVALUATE_OFFLINE", "1", "evaluate", "no downloads"),
    Switch("DISABLE_TELEMETRY", "1", "huggingface_hub", "its older spelling, read by others too"),
    Switch("VLLM_NO_USAGE_STATS", "1", "vllm", "no usage statistics"),
    Switch("VLLM_DO_NOT_TRACK", "1", "vllm", "the same, its second switch"),
    Switch("VLLM_USE_MODELSCOPE", "0", "vllm", "models come from folders, never from that hub"),
    Switch("FLASHINFER_CUBINS_REPOSITORY", "http://127.0.0.1:9/", "flashinfer", "kernels are fetched from nowhere: nobody listens there"),
    Switch("FLASHINFER_DISABLE_VERSION_CHECK", "1", "flashinfer", "no complaint that its kernels' package is another version"),
    Switch("DO_NOT_TRACK", "1", "any", "the common switch: vllm, FastAPI's command line and others"),
    Switch("RAY_USAGE_STATS_ENABLED", "0", "ray", "no usage statistics"),
    Switch("OTEL_SDK_DISABLED", "true", "opentelemetry", "vllm brings it: no exporter"),
    Switch("SENTRY_DSN", "", "sentry_sdk", "FastAPI's command line brings it: nowhere to report to"),
    Switch("FASTAPI_CLOUD_DISABLE_VERSION_CHECK", "1", "fastapi_cloud_cli", "vllm brings it: asks for no newer version"),
    Switch("TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE", "0", "torch", "compiled graphs are kept here only"),
    Switch("TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE", "0", "torch", "and what tuning found"),
    Switch("TORCHINDUCTOR_BUNDLED_AUTOTUNE_REMOTE_CACHE", "0", "torch", "and its bundles"),
    Switch("GLOO_SOCKET_IFNAME", "lo", "torch", "processes on a CPU meet on loopback", kept=True),
    Switch("NCCL_SOCKET_IFNAME", "lo", "nccl", "processes of one machine's GPUs meet on loopback", kept=True),
    Switch("WANDB_MODE", "disabled", "wandb", "transformers calls it where it is installed"),
    Switch("COMET_MODE", "DISABLED", "comet_ml", "the same"),
    Switch("GRADIO_ANALYTICS_ENABLED", "False", "gradio", "no usage pings"),
    Switch("NO_ALBUMENTATIONS_UPDATE", "1", "albumentations", "asks for no newer version when imported"),
    Switch("PIP_DISABLE_PIP_VERSION_CHECK", "1", "pip", "asks for no newer version"),
    Switch("NO_PROXY", LOOPBACK, "any", "loopback never goes through a proxy"),
    Switch("no_proxy", LOOPBACK, "any", "the same, as curl and requests spell it"),
    Switch("TOKENIZERS_PARALLELISM", "false", "tokenizers", "no threads before a fork, and no warning about it", kept=True),
    Switch("MPLBACKEND", "Agg", "matplotlib", "files, no windows"),
    Switch("MPLCONFIGDIR", ".cache/matplotlib", "matplotlib", "its font list is kept here, whatever HOME is", kept=True),
)
