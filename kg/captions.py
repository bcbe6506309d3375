"""Offline captions: entity → text, made once by a model (MH-MMKG, unaided-offline) or brought from another one as JSON.

The file is one JSON object, "Owner/Name" or the bare name → text. A bare name that several roots own is refused: it would tell
two actions the same. Knows no model; kg/captioner.py asks one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kg.agents import Agents
from kg.dataset import Dataset
from kg.graph import Entity
from models.agents import Episode, ask
from models.errors import DataError
from models.files import replace
from models.requests import Picture


def key_of(entity: Entity) -> str:
    """The entity's key in a captions file."""
    return f"{entity.owner}/{entity.name}" if entity.owner else entity.name


def captioned(dataset: Dataset) -> list[Entity]:
    """The entities that get a caption: those whose clips the card says are put into words, and that have media."""
    entities = (dataset.graph.entity(i) for i in range(len(dataset.graph)))
    return [entity for entity in entities if entity.has_media and dataset.card.describes(entity.kind)]


def caption(agents: Agents, entity: Entity, frames: tuple[Picture, ...]) -> Episode[str]:
    """One entity's caption, without the question and without the search (Table 13)."""
    (text,) = yield from ask([agents.caption(entity.name, frames)])
    return text


def read_captions(path: Path, dataset: Dataset) -> dict[int, str]:
    """Entity number → text. Raises DataError for a file that is not such JSON, an unknown entity, or an ambiguous bare name."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=str(path), remedy="make it with: python -m kg caption DATA") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON: {error}", where=str(path)) from None
    wrong = [key for key, text in raw.items() if not isinstance(text, str)][:1] if isinstance(raw, dict) else ["it"]
    if wrong:
        what = f"is not one JSON object of entity → text: {wrong[0]!r} is none"
        raise DataError(what, where=str(path), remedy='write {"Owner/Name": "what its clip shows", …}')
    by_key: dict[str, list[int]] = {}
    for index in range(len(dataset.graph)):
        entity = dataset.graph.entity(index)
        for key in {key_of(entity), entity.name}:
            by_key.setdefault(key, []).append(index)
    out: dict[int, str] = {}
    faults: list[str] = []
    for key, text in raw.items():
        found = by_key.get(key, [])
        if len(found) == 1:
            out[found[0]] = text
        else:
            faults.append(f"{key!r} is " + (f"owned by {len(found)} roots" if found else "no entity"))
    if faults:
        more = f" and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise DataError("; ".join(faults[:5]) + more, where=str(path), remedy='write "Owner/Name" as in the sheets')
    return out


def write_captions(path: Path, dataset: Dataset, captions: Mapping[int, str]) -> None:
    """The file, whole or not at all. Raises DataError when it cannot be written."""
    body = {key_of(dataset.graph.entity(index)): text for index, text in sorted(captions.items())}
    try:
        replace(path, json.dumps(body, ensure_ascii=False, indent=1))
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror}", where=str(path), remedy="make room, or choose another place") from error
