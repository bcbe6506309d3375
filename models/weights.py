"""A model folder's weight files, looked at without loading them: the shards, their headers, their sizes. Never opens a pickle.

A safetensors file is eight bytes of header length, a JSON header of tensors (dtype, shape, byte range), then the bytes.
Source: the format's specification (huggingface/safetensors, README). Try: python -c "import sys; from models.weights import look;
print(look(sys.argv[1]))" FOLDER
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
VISION_PREFIXES = (
    "visual.",
    "model.visual.",
    "vision_model.",
    "vision_tower.",
    "model.vision_tower.",
    "mlp1.",
    "model.multi_modal_projector.",
)
_LONGEST_HEADER = 100_000_000  # the format's own limit


class BadShard(Exception):
    """A weight file that is no safetensors file, or not a whole one. The message says how."""


@dataclass(frozen=True)
class Weights:
    """What the folder holds. `faults` lists everything that is wrong, one sentence each, file first; sizes count what is readable.

    Attributes:
        bytes, vision_bytes: bytes of tensors, all of them and those of the vision tower and projector.
        parameters: elements of all tensors.
    """

    shards: tuple[str, ...]
    bytes: int
    vision_bytes: int
    parameters: int
    faults: tuple[str, ...]


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """Tensor name → dtype, shape, data_offsets of one file. Raises BadShard; checks that the file is as long as its header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= length <= min(_LONGEST_HEADER, size - 8):
            kind = " (it looks like a pickle, which is never opened)" if start[:1] == b"\x80" or start[:2] == b"PK" else ""
            pointer = " (it is a Git LFS pointer: the real file was never fetched)" if start == b"version " else ""
            raise BadShard(f"is not a safetensors file{kind}{pointer}")
        try:
            header: dict[str, dict[str, Any]] = json.loads(file.read(length))
            header.pop("__metadata__", None)
            end = max((int(row["data_offsets"][1]) for row in header.values()), default=0)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            raise BadShard("has an unreadable safetensors header") from None
    if 8 + length + end != size:
        raise BadShard(f"is {size:,} bytes long, its header asks for {8 + length + end:,}: a download or a copy was cut short")
    return header


def look(folder: Path | str) -> Weights:
    """Every shard that the index names (or every safetensors file without one), headers read, sizes summed, faults collected."""
    folder = Path(folder)
    faults: list[str] = []
    placed: dict[str, str] = {}
    index = folder / INDEX
    if index.is_file():
        try:
            placed = dict(json.loads(index.read_bytes())["weight_map"])
            shards = sorted(set(placed.values()))
        except (ValueError, KeyError, TypeError, RecursionError):
            faults.append(f"{INDEX} is not an index (a weight_map from tensor to file)")
            shards = sorted(path.name for path in folder.glob("*.safetensors"))
    else:
        shards = sorted(path.name for path in folder.glob("*.safetensors"))
        if len(shards) > 1:
            faults.append(f"{INDEX} is missing beside {len(shards)} safetensors files")
    if not shards:
        faults.append(_no_weights(folder))
    total = vision = parameters = 0
    for name in shards:
        if Path(name).name != name:  # an index from elsewhere must not point out of the folder
            faults.append(f"{INDEX} names {name!r}, which lies outside the folder")
            continue
        try:
            header = read_header(folder / name)
        except (BadShard, OSError) as error:
            said = f"{name} is missing" if isinstance(error, FileNotFoundError) else f"{name} {error}"
            faults.append(said if isinstance(error, (BadShard, FileNotFoundError)) else f"{name} cannot be read: {error}")
            continue
        lost = [tensor for tensor, shard in placed.items() if shard == name and tensor not in header]
        if lost:
            faults.append(f"{name} lacks {len(lost)} tensors that {INDEX} places in it ({lost[0]} …)")
        for tensor, row in header.items():
            begin, end = row["data_offsets"]
            total += end - begin
            vision += (end - begin) if tensor.startswith(VISION_PREFIXES) else 0
            parameters += _elements(row["shape"])
    return Weights(tuple(shards), total, vision, parameters, tuple(faults))


def _elements(shape: list[int]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count


def _no_weights(folder: Path) -> str:
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        return f"no safetensors weights, only pickles ({pickles[0]}), which can run code and are never opened: convert them first"
    return "no *.safetensors file"
