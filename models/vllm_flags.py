"""The flags of `vllm serve`, from the model's shape, the plan and what was measured. Knows no process.

Every flag stands in one table with its reason; `--vllm-args` replaces any of them. Facts behind the reasons: docs/vllm.md.

Try: python -m models serve FOLDER --dry-run
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models.errors import ConfigError
from models.planner import Plan
from models.shape import Shape

HOST = "127.0.0.1"
_OURS = ("--host", "--api-key")  # what keeps a server private is not for --vllm-args


@dataclass(frozen=True)
class ServeOptions:
    """What the user decides about a server.

    Attributes:
        name: the model name that clients send.
        pictures: pictures in one call at most.
        media: the only folder that ``file://`` pictures may come from; None allows none.
        min_pixels, max_pixels: Qwen2.5-VL's budget of one picture, in pixels; None takes the folder's own.
        max_tiles: InternVL's budget of one picture; None takes the folder's own.
        sequences: calls that the server works on at once.
        own_code: the folder's Python code may run.
        profiling: the server's caches can be emptied.
        host: the address that it listens on.
        extra: flags as the user wrote them (``--vllm-args``), which win.
    """

    name: str
    pictures: int = 10
    media: Path | None = None
    min_pixels: int | None = None
    max_pixels: int | None = None
    max_tiles: int | None = None
    sequences: int = 64
    own_code: bool = False
    profiling: bool = False
    host: str = HOST
    extra: tuple[str, ...] = ()


def split_args(text: str) -> tuple[str, ...]:
    """``--vllm-args`` as the shell would split it. Raises ConfigError."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"--vllm-args cannot be read: {error}", remedy="close the quotation mark") from None
    if words and not words[0].startswith("-"):
        raise ConfigError(f"--vllm-args starts with {words[0]!r}", remedy="it takes flags: --vllm-args='--max-num-seqs 32'")
    for word in words:
        if word.split("=")[0] in _OURS:
            raise ConfigError(
                f"--vllm-args holds {word.split('=')[0]}", remedy="a managed server listens on 127.0.0.1 with a key of its own"
            )
    return words


def table(shape: Shape, plan: Plan, options: ServeOptions, port: int) -> list[tuple[str, str | None, str]]:
    """(flag, value or None for a switch, why), before --vllm-args."""
    rows: list[tuple[str, str | None, str]] = [
        ("--host", options.host, "nothing but this machine, or the node's address in a Ray cluster"),
        ("--port", str(port), "found free"),
        ("--served-model-name", options.name, "clients need not know the folder"),
        ("--max-model-len", str(plan.context), "what was planned for; the published maximum would take the whole cache"),
        ("--max-num-seqs", str(options.sequences), "calls worked on at once"),
        ("--limit-mm-per-prompt", json.dumps({"image": options.pictures, "video": 0}), "the default lets one picture through"),
        ("--generation-config", "vllm", "decoding is what the request says, not the folder's repetition penalty"),
        ("--enable-prefix-caching", None, "sibling calls share persona, rules, pictures and question"),
        ("--enable-prompt-tokens-details", None, "cached tokens of each call, for the profile"),
        ("--structured-outputs-config", json.dumps({"backend": "xgrammar", "disable_any_whitespace": True}), "no endless white space"),
        ("--mm-processor-cache-gb", "4", "a picture is preprocessed once, not once a call"),
        ("--disable-uvicorn-access-log", None, "a line a call would bury the errors"),
    ]
    if options.media is not None:
        rows.append(("--allowed-local-media-path", str(options.media.resolve()), "pictures come as file:// from the frame store only"))
    budget = picture_budget(shape, options)
    if budget:
        rows.append(("--mm-processor-kwargs", json.dumps(budget), "the picture budget; without it one picture can take 16,000 tokens"))
    if options.own_code:
        rows.append(("--trust-remote-code", None, "asked for with --trust-local-code"))
    if plan.device == "cuda":
        rows.append(("--gpu-memory-utilization", f"{plan.utilisation:g}", "what the plan reckoned with"))
    else:
        rows.append(("--enforce-eager", None, "compiling for a CPU takes longer than it saves"))
    if plan.tensor_parallel > 1:
        rows.append(("--tensor-parallel-size", str(plan.tensor_parallel), "the plan's degree"))
        rows.append(("--mm-encoder-tp-mode", "data", "the vision tower is small: pictures are spread over GPUs, not its weights"))
    return rows


def picture_budget(shape: Shape, options: ServeOptions) -> dict[str, int]:
    """The processor's settings, by the names that each family's processor uses."""
    if shape.is_internvl:
        if options.max_tiles is None:
            return {}
        return {"max_dynamic_patch" if shape.own_code else "max_patches": options.max_tiles}
    chosen = {"min_pixels": options.min_pixels, "max_pixels": options.max_pixels}
    return {name: value for name, value in chosen.items() if value is not None} if shape.is_qwen else {}


def arguments(shape: Shape, plan: Plan, options: ServeOptions, port: int) -> list[str]:
    """Everything after ``vllm serve FOLDER``."""
    taken = {_key(word) for word in options.extra if word.startswith("-")}
    words: list[str] = []
    for flag, value, _ in table(shape, plan, options, port):
        if _key(flag) not in taken:
            words += [flag] if value is None else [flag, value]
    return [*words, *options.extra]


def environment(plan: Plan, key: str, gpus: Sequence[str], *, profiling: bool = False) -> dict[str, str]:
    """Variables of one server. The key goes this way because a command line can be read by every user of the machine."""
    found = {
        "VLLM_API_KEY": key,
        "VLLM_HOST_IP": HOST,  # the engine's processes talk to one another over this machine's public address otherwise
        "SPT_NOENV": "1",  # /proc/PID/environ stays readable, by which a stale server is known
    }
    if plan.device == "cuda":
        found["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    else:
        found["CUDA_VISIBLE_DEVICES"] = ""
        found["VLLM_CPU_KVCACHE_SPACE"] = str(max(1, plan.cache_bytes // 2**30))
    if profiling:
        found["VLLM_SERVER_DEV_MODE"] = "1"  # /reset_prefix_cache, for cold measurements; the server is private all the same
    return found


def _key(flag: str) -> str:
    name = flag.split("=")[0].replace("_", "-")
    short = {"-tp": "--tensor-parallel-size"}
    return short.get(name, "--" + name.removeprefix("--").removeprefix("no-"))
