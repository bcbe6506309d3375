"""A model folder before anything is loaded: is it whole, which family is it, and what is its digest? Imports no heavy library.

Try: python -m models check FOLDER
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from models import chat_template
from models.errors import ModelError
from models.shape import read_config
from models.weights import look

Family = Literal["qwen2.5-vl", "internvl-hf", "text"]
_FAMILIES: dict[str, Family] = {"qwen2_5_vl": "qwen2.5-vl", "internvl": "internvl-hf"}
_NOT_TEXT = ("vision_config", "audio_config", "is_encoder_decoder")
_SMALL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
)
_WHOLE = 256 << 20  # shards up to this size are hashed whole; of larger ones the header and blocks spread over the file
_BLOCK, _BLOCKS = 64 << 10, 256


@dataclass(frozen=True)
class Checkpoint:
    """A folder that passed the pre-check.

    Attributes:
        context: positions the model was made for (prompt and reply together).
        digest: sha256 over config, tokenizer, template, processor and weights; part of every call's key.
        template: the chat template's text.
    """

    folder: Path
    family: Family
    architecture: str
    context: int
    parameters: int
    weight_bytes: int
    digest: str
    template: str


def inspect(folder: Path) -> Checkpoint:
    """The checkpoint in `folder`. Raises ModelError naming every missing or unusable file at once."""
    if not folder.is_dir():
        raise ModelError(
            "no such model folder",
            where=str(folder),
            remedy="give a folder in Hugging Face layout, or a name: see `python -m models fetch`",
        )
    pipes = sorted(path.name for path in folder.iterdir() if path.exists() and not path.is_file() and not path.is_dir())
    if pipes:  # opening one would wait for somebody to write into it
        what = f"{', '.join(pipes[:5])}: no file but a pipe, a socket or a device"
        raise ModelError(what, where=str(folder), remedy="put the files in their places")
    config = read_config(folder)
    weights = look(folder)
    faults = list(weights.faults)
    family = _FAMILIES.get(str(config.get("model_type")))
    if family is None:
        odd = [key for key in _NOT_TEXT if config.get(key)]
        if odd or config.get("auto_map"):
            said = "brings its own Python code (auto_map), which is not run" if config.get("auto_map") else f"has {', '.join(odd)}"
            faults.append(
                f"config.json: model_type {config.get('model_type')!r} {said}; known: {', '.join(_FAMILIES)} and text-only models"
            )
        family = "text"
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json", "tokenizer.model")):
        faults.append("no tokenizer (tokenizer.json)")
    template = _template(folder, faults)
    if family != "text" and not any((folder / name).is_file() for name in ("preprocessor_config.json", "processor_config.json")):
        faults.append("no preprocessor_config.json: the picture sizes are unknown")
    if faults:
        raise ModelError("; ".join(faults), where=str(folder), remedy="copy the whole folder again, every file of it")
    text = config.get("text_config") or config
    return Checkpoint(
        folder=folder,
        family=family,
        architecture=str((config.get("architectures") or ["?"])[0]),
        context=int(text.get("max_position_embeddings") or 4096),
        parameters=weights.parameters,
        weight_bytes=weights.bytes,
        digest=digest(folder, weights.shards),
        template=template,
    )


def _template(folder: Path, faults: list[str]) -> str:
    found = chat_template.find(folder)
    wrong = chat_template.MISSING if found is None else chat_template.fault(found)
    for name in chat_template.FILES[1:] if found is None else ():
        if not chat_template.is_json(folder / name):
            wrong = f"{name} is not JSON, so the chat template is unknown"
    if wrong:
        faults.append(wrong)
    return found.source if found else ""


def digest(folder: Path, shards: tuple[str, ...]) -> str:
    """sha256 over the small files whole and the weights; shards above 256 MiB by header and 256 spread blocks of 64 KiB."""
    total = hashlib.sha256()
    for name in _SMALL_FILES:
        path = folder / name
        if path.is_file():
            total.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    for name in shards:
        path = folder / name
        size = path.stat().st_size
        with path.open("rb") as file:
            if size <= _WHOLE:
                part = hashlib.file_digest(file, "sha256")
            else:
                part = hashlib.sha256(str(size).encode())
                part.update(file.read(int.from_bytes(file.read(8), "little")))
                for i in range(_BLOCKS):
                    file.seek((size - _BLOCK) * i // (_BLOCKS - 1))
                    part.update(file.read(_BLOCK))
        total.update(f"{name}\0".encode() + part.digest())
    return total.hexdigest()
