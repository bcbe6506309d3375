"""Offline captions for the rows that need them: brought as JSON, kept from an earlier run, or made now through the run's journal.

One call per entity that has media and is put into words; made once per model, prompts, data and frames, and kept in the cache.
Try: python -m bench run --settings unaided-offline --limit 4
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.frames import FrameKey
from bench.records import digest
from bench.rows import Row
from bench.workshop import Workshop
from kg.captions import caption, captioned, key_of, read_captions, write_captions
from models.agents import Episode
from models.drivers import Outcome, run
from models.journal import Journal
from models.progress import progress


def offline_captions(rows: Sequence[Row], workshop: Workshop, journal: Journal) -> tuple[dict[str, Mapping[int, str]], list[str]]:
    """Row label → (entity → text) for rows that need it, and what to say about it in the report. Raises what ends a run."""
    found: dict[str, Mapping[int, str]] = {}
    made: dict[str, tuple[Mapping[int, str], str]] = {}
    for row in rows:
        if not row.setting.needs_offline_captions:
            continue
        source = row.config.captions or _identity(row, workshop)
        if source not in made:
            made[source] = _brought(row, workshop) if row.config.captions else _kept_or_made(row, workshop, journal, source)
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


def _kept_or_made(row: Row, workshop: Workshop, journal: Journal, identity: str) -> tuple[Mapping[int, str], str]:
    path = workshop.cache / "captions" / f"{identity}.json"
    wanted = len(captioned(workshop.dataset))
    if path.is_file():
        captions = read_captions(path, workshop.dataset)
        if len(captions) == wanted:
            return captions, f"Offline captions: {wanted} of {wanted}, kept from an earlier run."
    captions = _make(row, workshop, journal, identity)
    write_captions(path, workshop.dataset, captions)
    return captions, f"Offline captions: {len(captions)} of {wanted} made by the run's own captioner."


def _make(row: Row, workshop: Workshop, journal: Journal, identity: str) -> dict[int, str]:
    frames = workshop.album(row).frames
    agents = workshop.agents(row.config)
    todo = {f"caption|{identity}|{key_of(e)}": e for e in captioned(workshop.dataset) if frames.get(e.index)}
    captions: dict[int, str] = {}

    def episodes() -> Iterator[tuple[str, Episode[str]]]:
        for name, entity in todo.items():
            yield name, caption(agents, entity, frames[entity.index])

    def done(name: str, outcome: Outcome[str]) -> None:
        if outcome.value:
            captions[todo[name].index] = outcome.value

    with progress("offline captions", len(todo)) as tell:
        engines = workshop.roles(row.config)
        run(episodes(), engines, journal, on_done=done, progress=lambda p: tell(p.done, f"{p.failed} failed"), keep=False)
    return captions
