"""What a server's last words mean and which knob to turn. A table: the first row whose pattern is found in the log wins.

Try: python -c "from models.log_hints import hint; print(hint('torch.OutOfMemoryError: CUDA out of memory'))"
"""

from __future__ import annotations

import re
from pathlib import Path

PORT_TAKEN = re.compile(r"[Aa]ddress already in use")
# Ordered: a root cause before what follows from it.
HINTS: tuple[tuple[str, str], ...] = (
    (
        r"Free memory on device .* is less than desired",
        "another process holds GPU memory: end it (nvidia-smi lists it) or --gpu-utilisation 0.7",
    ),
    (
        r"No available memory for the cache blocks|max seq(?:uence)? len.*KV cache|KV cache .* is needed, which is larger",
        "no room for the context beside the weights: lower --context or --pictures, raise --gpu-utilisation, or use more GPUs",
    ),
    (
        r"OutOfMemoryError|CUDA out of memory|HIP out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        "out of GPU memory: lower --max-pixels (or --max-tiles) first, then --sequences, then --context; or use more GPUs",
    ),
    (r"DefaultCPUAllocator|Cannot allocate memory|MemoryError|VLLM_CPU_KVCACHE_SPACE", "out of main memory: a smaller cache or model"),
    (r"[Aa]ddress already in use|port .* is already in use", "the port was taken meanwhile: start again, or give another with --port"),
    (
        r"attention heads .* must be divisible|assert .*kv_heads % tp_size",
        "this tensor-parallel degree does not split the model: python -m models plan",
    ),
    (r"trust[_-]remote[_-]code", "the folder brings its own Python code: read it, then --trust-local-code"),
    (r"chat template", "the folder has no chat template: put chat_template.jinja into it"),
    (
        r"does not recognize this architecture|architectures? .* (?:is|are) not supported|KeyError: 'model_type'",
        "vllm or transformers is too old for it",
    ),
    (r"SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer|InvalidHeader", "a weight file is damaged: copy the folder again"),
    (
        r"NCCL error|ncclSystemError|ncclUnhandledCudaError",
        "GPUs cannot reach one another: NCCL_P2P_DISABLE=1, or a container with more /dev/shm",
    ),
    (r"No space left on device", "the disk (or /dev/shm) is full"),
    (
        r"No CUDA GPUs are available|libcuda\.so|Failed to infer device type|NVIDIA driver .* too old",
        "vllm sees no usable GPU: nvidia-smi, driver",
    ),
    (r"unrecognized arguments?:|invalid choice|error: argument", "a flag that this vllm does not know: see --vllm-args"),
    (r"ModuleNotFoundError|No module named|ImportError", "the installation is incomplete: pip install '.[vllm]' again"),
    (r"At most \d+ (?:image|multi-?modal)", "more pictures in a call than the server allows: --pictures"),
)
_NOISE = re.compile(r"^\s*$|UserWarning|FutureWarning|DeprecationWarning")


def hint(log: str) -> str:
    """Advice for this log, or an empty string."""
    return next((advice for pattern, advice in HINTS if re.search(pattern, log)), "")


def tail(path: Path, lines: int = 15, most: int = 65_536) -> str:
    """The last lines of a log that say something; long ones are cut. Empty when there is no log."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - most))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    kept = [line.rstrip()[:300] for line in text.splitlines() if not _NOISE.search(line)]
    return "\n".join(kept[-lines:])


# What the log says while the server comes up → the progress line. The last match counts.
_STAGES: tuple[tuple[str, str], ...] = (
    (r"non-default args|vLLM API server version|Initializing a V1 LLM engine", "starting"),
    (r"Starting to load model|Loading (?:safetensors|weights)", "loading weights"),
    (r"Loading weights took|Model loading took", "weights loaded"),
    (r"torch\.compile|Compiling a graph|Dynamo", "compiling"),
    (r"KV cache size|Available KV cache|Maximum concurrency", "cache laid out"),
    (r"Capturing CUDA graph|Graph capturing", "capturing graphs"),
    (r"Encoder cache|profiled with", "measuring memory with pictures"),
    (r"Starting vLLM (?:API )?server|Application startup|Route: ", "opening the port"),
)


def stage(log: str) -> str:
    """Where a starting server has got to, in a few words."""
    found = [(m.end(), words) for pattern, words in _STAGES for m in [*re.finditer(pattern, log)][-1:]]
    return max(found)[1] if found else "starting"
