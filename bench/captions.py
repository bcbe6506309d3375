"""Offline captions for the rows that need them: brought as JSON, kept from an earlier run, or made now through the run's journal.

One call per entity that has media and is put into words; made once per model, prompts, data and frames, and kept in the cache.
Try: python -m bench run --settings unaided-offline --limit 4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.frames import FrameKey, Showing
from bench.records import digest
from bench.rows import Row
from bench.workshop import Workshop
from kg.captioner import make_captions
from kg.captions import captioned, read_captions, write_captions
from models.journal import Journal


def offline_captions(
    rows: Sequence[Row], workshop: Workshop, showing: Showing, journal: Journal
) -> tuple[dict[str, Mapping[int, str]], list[str]]:
    """Row label → (entity → text) for rows that need it, and what to say about it in the report. Raises what ends a run."""
    found: dict[str, Mapping[int, str]] = {}
    made: dict[str, tuple[Mapping[int, str], str]] = {}
    for row in rows:
        if not row.setting.needs_offline_captions:
            continue
        source = row.config.captions or _identity(row, workshop)
        if source not in made:
            made[source] = _brought(row, workshop) if row.config.captions else _kept_or_made(row, workshop, showing, journal, source)
        found[row.label] = made[source][0]
    return found, list(dict.fromkeys(note for _, note in made.values()))


def _brought(row: Row, workshop: Workshop) -> tuple[Mapping[int, str], str]:
    captions = read_captions(Path(row.config.captions or ""), workshop.dataset)
    return captions, f"Offline captions: {len(captions)} of {len(captioned(workshop.dataset))} brought from {row.config.captions}."


def _identity(row: Row, workshop: Workshop) -> str:
    known = row.config.backends
    model = workshop.identity(known.get("captioner", known["agent"]), row.config)
    agents = workshop.agents(row.config)
    prompt = agents.rows["captioner"].prompt.model_dump_json() + agents.card.persona
    return digest("\n".join([model, prompt, workshop.dataset.digest, str(FrameKey.of(row.config))]))


def uncaptioned(rows: Sequence[Row], workshop: Workshop) -> set[str]:
    """Labels of the rows whose captions are neither brought nor kept: they are made before those rows start."""
    needing = [row for row in rows if row.setting.needs_offline_captions and not row.config.captions]
    return {row.label for row in needing if _kept(_identity(row, workshop), workshop) is None}


def _path(identity: str, workshop: Workshop) -> Path:
    return workshop.cache / "captions" / f"{identity}.json"


def _kept(identity: str, workshop: Workshop) -> Mapping[int, str] | None:
    path = _path(identity, workshop)
    captions = read_captions(path, workshop.dataset) if path.is_file() else {}
    return captions if len(captions) == len(captioned(workshop.dataset)) else None


def _kept_or_made(row: Row, workshop: Workshop, showing: Showing, journal: Journal, identity: str) -> tuple[Mapping[int, str], str]:
    entities = captioned(workshop.dataset)
    kept = _kept(identity, workshop)
    if kept is not None:
        return kept, f"Offline captions: {len(kept)} of {len(kept)}, kept from an earlier run."
    backends = workshop.roles(row.config)
    made = make_captions(workshop.agents(row.config), entities, showing.graph(row), backends, journal, f"caption|{identity}|")
    write_captions(_path(identity, workshop), workshop.dataset, made.texts)
    return made.texts, f"Offline captions: {len(made.texts)} of {len(entities)} made by the run's own captioner."
