"""Everything that would stop a vLLM server, found before it is started and reported all at once. Loads no weights, starts nothing.

Try: python -m models serve FOLDER --dry-run
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models import chat_template, processes
from models.engines import Workload
from models.errors import ModelError
from models.shape import Shape, read_config
from models.vllm_flags import ServeOptions
from models.weights import Weights

# config.json's architecture → the oldest vllm and transformers that load it (from their release notes).
NEEDS: dict[str, tuple[str, str]] = {
    "Qwen2_5_VLForConditionalGeneration": ("0.7.2", "4.49.0"),
    "InternVLForConditionalGeneration": ("0.9.2", "4.52.1"),
    "InternVLChatModel": ("0.6.1", "4.37.2"),
}
_CHARACTERS_PER_TOKEN = 3  # on the safe side for Latin scripts; the server counts exactly
_MIN_DISK = 200 * 2**20
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")


@dataclass(frozen=True)
class Misfit:
    """One thing that will not work, and what to do about it."""

    what: str
    remedy: str


def check(
    folder: Path,
    shape: Shape,
    weights: Weights,
    options: ServeOptions,
    context: int,
    *,
    work: Workload | None = None,
    vllm: Path | None = None,
    log_folder: Path | None = None,
    port: int = 0,
) -> list[Misfit]:
    """All misfits of this folder, these options and this machine; an empty list means go."""
    found = [Misfit(fault, "copy the model's folder again, all its files") for fault in weights.faults]
    found += _files(folder, shape)
    found += _own_code(shape, options)
    found += _pictures(folder, shape, options, context, work or Workload())
    found += _versions(shape, vllm)
    found += _machine(options, log_folder, port)
    return found


def require(misfits: list[Misfit], where: str) -> None:
    """Raises one ModelError that lists every misfit; returns when there is none."""
    if not misfits:
        return
    if len(misfits) == 1:
        raise ModelError(misfits[0].what, where=where, remedy=misfits[0].remedy)
    lines = "\n".join(f"  {i}. {one.what} — {one.remedy}" for i, one in enumerate(misfits, 1))
    raise ModelError(f"{len(misfits)} things must be put right first:\n{lines}", where=where)


def _files(folder: Path, shape: Shape) -> list[Misfit]:
    found = []
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        found.append(Misfit(f"no tokenizer ({' or '.join(_TOKENIZERS)})", "copy the tokenizer's files from the model's page"))
    if shape.vision_layers and not any((folder / name).is_file() for name in _PROCESSORS) and not shape.own_code:
        found.append(Misfit(f"no picture processor ({' or '.join(_PROCESSORS)})", "copy it from the model's page"))
    for name in (*_TOKENIZERS, *_PROCESSORS, "tokenizer_config.json", "generation_config.json", "chat_template.json"):
        if name.endswith(".json") and (folder / name).is_file() and _json(folder / name) is None:
            found.append(Misfit(f"{name} is not JSON", "copy it again"))
    found += _template(folder)
    return found


def _template(folder: Path) -> list[Misfit]:
    found = chat_template.find(folder)
    if found is None:
        return [Misfit(chat_template.MISSING, f"put the model's chat template into {folder / 'chat_template.jinja'}")]
    wrong = chat_template.fault(found)
    return [Misfit(wrong, "copy it again from the model's page")] if wrong else []


def _own_code(shape: Shape, options: ServeOptions) -> list[Misfit]:
    if not shape.own_code or options.own_code:
        return []
    what = (
        f"{shape.architecture} loads only with Python code that lies in the model's folder, because its config is no part of transformers"
    )
    return [Misfit(what, "read that code, then allow it with --trust-local-code; or take the -hf form of the model, which needs none")]


def _pictures(folder: Path, shape: Shape, options: ServeOptions, context: int, work: Workload) -> list[Misfit]:
    found = []
    if work.pictures > options.pictures:
        what = f"calls hold up to {work.pictures} pictures, the server would allow {options.pictures}"
        found.append(Misfit(what, f"--pictures {work.pictures}"))
    if work.pictures and not shape.vision_layers:
        found.append(Misfit("calls hold pictures, and the model has no vision tower", "take a vision-language model"))
    if context > shape.context:
        found.append(Misfit(f"--context {context:,} is beyond the model's {shape.context:,}", f"--context {shape.context}"))
    count, each = work.pictures, picture_tokens(folder, shape, options, work.pixels)
    text = -(-work.prompt_chars // _CHARACTERS_PER_TOKEN)
    total = tokens_of(folder, shape, options, work)
    if total > context:
        room = max(0, context - text - work.max_tokens) // max(1, count)
        parts = f"{count} pictures of up to {each:,} tokens, about {text:,} of text and {work.max_tokens:,} of reply"
        ways = [f"--context {total}" if total <= shape.context else "fewer or shorter inputs"]
        if count and each > 4 and shape.is_qwen and room > 4:
            ways.append(f"--max-pixels {(room - 2) * 28 * 28}")
        elif count and shape.is_internvl and room >= 258:
            ways.append(f"--max-tiles {max(1, (room - 2) // 256 - 1)}")
        found.append(Misfit(f"{parts} are {total:,}, the context holds {context:,}", " or ".join(ways)))
    return found


def tokens_of(folder: Path, shape: Shape, options: ServeOptions, work: Workload) -> int:
    """Tokens of the longest call: its pictures, its text (an estimate on the safe side) and its reply."""
    text = -(-work.prompt_chars // _CHARACTERS_PER_TOKEN)
    return work.pictures * picture_tokens(folder, shape, options, work.pixels) + text + work.max_tokens


def picture_tokens(folder: Path, shape: Shape, options: ServeOptions, shown: int = 0) -> int:
    """The most tokens that one picture can take, from the folder's own processor and the options. 0 without a vision tower.

    `shown`: no picture has more pixels than this (0: not known); InternVL's tiles depend on its shape alone.

    Qwen2.5-VL: pixels / 28² (patches of 14, merged 2 × 2), and two marks. InternVL: (tiles + thumbnail) × tokens a tile, and two marks.
    """
    if not shape.vision_layers:
        return 0
    settings: dict[str, Any] = {}
    for name in reversed(_PROCESSORS):
        held = _json(folder / name) or {}
        inner = held.get("image_processor")
        settings.update(inner if isinstance(inner, dict) else held)
    config = read_config(folder)
    if shape.is_internvl:
        tiles = options.max_tiles or int(config.get("max_dynamic_patch") or settings.get("max_patches") or 12)
        vision = config.get("vision_config") or {}
        side, patch = _side(config.get("force_image_size") or vision.get("image_size"), 448), _side(vision.get("patch_size"), 14)
        ratio = float(config.get("downsample_ratio") or 0.5)
        return (tiles + (1 if tiles > 1 else 0)) * int((side // patch * ratio) ** 2) + 2
    held_size = settings.get("size")
    size: dict[str, Any] = held_size if isinstance(held_size, dict) else {}
    pixels = options.max_pixels or settings.get("max_pixels") or size.get("longest_edge") or 12_845_056
    step = int(settings.get("patch_size") or 14) * int(settings.get("merge_size") or 2)
    most = min(int(pixels), int((shown**0.5 + step) ** 2)) if shown else int(pixels)  # sides are rounded to whole steps
    return most // step**2 + 2


def _side(value: Any, default: int) -> int:
    value = value[0] if isinstance(value, list) and value else value
    return int(value) if isinstance(value, int) else default


def _versions(shape: Shape, vllm: Path | None) -> list[Misfit]:
    if vllm is None:
        return []
    need, found = NEEDS.get(shape.architecture), []
    for name, least in zip(("vllm", "transformers"), need or ("0", "0"), strict=True):
        have = installed(vllm, name)
        if have and _number(have) < _number(least):
            found.append(
                Misfit(f"{name} {have} is installed, {shape.architecture} needs {least} or newer", f"pip install '{name}>={least}'")
            )
    return found


def installed(executable: Path, name: str) -> str:
    """The version of a package in the environment that an executable belongs to, by its metadata folder; empty when unknown."""
    for site in sorted(executable.parent.parent.glob("lib/python3*/site-packages")):
        for path in site.glob(f"{name}-*.dist-info"):
            return path.name.removeprefix(f"{name}-").removesuffix(".dist-info")
    return ""


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def _machine(options: ServeOptions, log_folder: Path | None, port: int) -> list[Misfit]:
    found = []
    if options.media is not None and not options.media.is_dir():
        found.append(Misfit(f"the folder of pictures {options.media} does not exist", "make it, or leave --media out"))
    if log_folder is not None:
        there = next((path for path in (log_folder, *log_folder.absolute().parents) if path.is_dir()), Path("/"))
        free = shutil.disk_usage(there).free
        if free < _MIN_DISK:
            found.append(Misfit(f"{free // 2**20} MiB free where {log_folder} lies", f"make room: {_MIN_DISK // 2**20} MiB"))
    if port and not 1 <= port <= 65535:
        found.append(Misfit(f"port {port}", "a port lies between 1 and 65535"))
    for one in processes.servers():
        if one.stale:
            pids = ", ".join(map(str, one.pids))
            what = f"a server of an earlier run was left behind on port {one.port} (processes {pids}; its owner {one.owner} is gone)"
            found.append(Misfit(what, "end it with `python -m models serve --end-stale`"))
    return found


def _json(path: Path) -> dict[str, Any] | None:
    try:
        held = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return held if isinstance(held, dict) else None
