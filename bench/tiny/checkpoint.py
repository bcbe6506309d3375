"""Training state on disk: tensors as safetensors with a few numbers in the header. Written whole or not at all; nothing is unpickled."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from models.errors import ModelError


def save(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Writes `tensors` and the JSON-able `facts`; an older file stays until the new one is complete."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    save_file({k: v.detach().contiguous().clone() for k, v in tensors.items()}, fresh, {"facts": json.dumps(dict(facts))})
    with fresh.open("rb+") as file:
        os.fsync(file.fileno())
    fresh.replace(path)


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors, facts); ModelError when the file is missing or damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), "pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            return {key: file.get_tensor(key) for key in file.keys()}, facts  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"cannot be read: {error}", where=str(path), remedy="train that stage first, or delete the file") from None


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors under `prefix.`, without it."""
    return {key[len(prefix) + 1 :]: value for key, value in tensors.items() if key.startswith(prefix + ".")}
