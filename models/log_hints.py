"""What a server's last words mean and which knob to turn. A table: the first row whose pattern is found in the log wins.

Try: python -c "from models.log_hints import hint; print(hint('torch.OutOfMemoryError: CUDA out of memory'))"
"""

from __future__ import annotations

import re

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
    (
        r"DefaultCPUAllocator|Cannot allocate memory|MemoryError|[Dd]ecrease .*VLLM_CPU_KVCACHE_SPACE",
        "out of main memory: a smaller cache or model",
    ),
    (r"[Aa]ddress already in use|port .* is already in use", "the port was taken meanwhile: start again, or give another with --port"),
    (
        r"attention heads .* must be divisible|assert .*kv_heads % tp_size",
        "this tensor-parallel degree does not split the model: python -m models plan",
    ),
    (
        r"execute the configuration file|trust_remote_code=True|--trust-remote-code",
        "the folder brings its own Python code: read it, then --trust-local-code",
    ),
    (
        r"[Nn]o chat template|chat template .*(?:not|must)|must provide a chat template",
        "the folder has no chat template: put chat_template.jinja into it",
    ),
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
# Empty lines, warnings, and the frames of a traceback: none of them says what went wrong.
_NOISE = re.compile(r"^\s*$|UserWarning|FutureWarning|DeprecationWarning|^\W*File \"|^[\s^~|+]*$|Traceback \(most recent")
_PREFIX = re.compile(r"^\(\w[\w ]* pid=\d+\) ?|ERROR \d\d-\d\d [\d:]+ \[[^]]*\] ?")
_CHATTER = re.compile(r"\b(?:INFO|DEBUG)\b")  # settings are printed there, with every word that a hint looks for
_CAUSE = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b.*")


def hint(log: str) -> str:
    """Advice for this log, or an empty string."""
    said = "\n".join(line for line in log.splitlines() if not _CHATTER.search(line))
    return next((advice for pattern, advice in HINTS if re.search(pattern, said)), "")


def last_words(log: str, lines: int = 12) -> str:
    """The causes that the log names, oldest first, then its last lines; frames of tracebacks are left out, long lines cut.

    A server of several processes ends with "see root cause above": the exceptions' own lines are looked for in the whole text.
    """
    bare = [_PREFIX.sub("", _PREFIX.sub("", line)).rstrip()[:300] for line in log.splitlines()]
    kept = [line for line in bare if not _NOISE.search(line)]
    causes = list(dict.fromkeys(line for line in kept if _CAUSE.match(line)))
    calm = _CHATTER if causes else re.compile("(?!)")  # beside an exception, what went well before is of no interest
    final = [line for line in kept if not line.startswith(("  ", "\t")) and not calm.search(line)][-lines:]
    missing = [line for line in causes[-4:] if line not in final]
    return "\n".join([*missing, *final])


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
