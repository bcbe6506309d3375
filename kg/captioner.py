"""A model describes every clip of a graph once, without question or search (MH-MMKG, unaided-offline; Table 13), through the journal.

Clips are prepared in the background; an entity is asked about as soon as its own frames are there. Knows no file of captions.
Try: python -m kg caption DATA --model FOLDER
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kg.agents import Agents
from kg.captions import caption, key_of
from kg.frames import NoFrames, Shelf
from kg.graph import Entity
from models.agents import Episode
from models.drivers import Outcome
from models.drivers import run as drive
from models.engines import Engine
from models.journal import Journal
from models.progress import progress


@dataclass
class Captions:
    """Entity number → text, and "Owner/Name" → why there is none."""

    texts: dict[int, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def make_captions(
    agents: Agents, entities: Sequence[Entity], shelf: Shelf, backends: Mapping[str, Engine], journal: Journal, prefix: str = ""
) -> Captions:
    """Asks the captioner about each of `entities`, whose frames are on `shelf` or on their way. Raises what ends a run.

    Args:
        prefix: what the samples' ids begin with in the journal.
    """
    made = Captions()
    by_id = {f"{prefix}{key_of(entity)}": entity for entity in entities}

    def episodes() -> Iterator[tuple[str, Episode[str]] | None]:
        waiting = list(by_id.items())
        while waiting:
            later = []
            for name, entity in waiting:
                if not shelf.ready(entity.index):
                    later.append((name, entity))
                elif isinstance(frames := shelf.get(entity.index), NoFrames):
                    made.failed[key_of(entity)] = frames.detail
                else:
                    yield name, caption(agents, entity, frames)
            waiting = later
            if waiting:
                yield None

    def done(name: str, outcome: Outcome[str]) -> None:
        entity = by_id[name]
        if outcome.value:
            made.texts[entity.index] = outcome.value
        else:
            made.failed[key_of(entity)] = str(outcome.failure) if outcome.failure else "the reply was empty"

    with progress("offline captions", len(by_id)) as tell:
        drive(episodes(), backends, journal, on_done=done, progress=lambda p: tell(p.done, f"{p.failed} failed{shelf.words}"), keep=False)
    return made
