"""The six settings of MH-MMKG (section 3.3, Table 2) as six rows, and the table that turns what a stage sees into behaviour.

No module asks for a setting's name: `SHOWS` says what "human" or "live" means, `bench/episode.py` what "gold" or "search" means.
Try: python -c "from bench.settings import SETTINGS; print(*SETTINGS.values(), sep='\\n')"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from kg.graph import Entity
from kg.search import View
from models.requests import Picture

Knowledge = Literal["none", "gold", "search"]
Sees = Literal["frames", "human", "offline", "live"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: where knowledge comes from, and what each stage sees.

    Attributes:
        knowledge: none, the annotated subgraph I, or the search's Î.
        topic_sees, search_sees, answer_sees: of the query's media d: the frames, the human text s, or the text that the
            perceiver makes of the frames ("live"). None: the setting has no such stage.
        node_sees: of an entity's clip c: the human caption, one made offline, or frames to describe while searching ("live").
    """

    name: str
    knowledge: Knowledge
    topic_sees: Sees | None
    search_sees: Sees | None
    node_sees: Sees | None
    answer_sees: Sees

    @property
    def query_sees(self) -> frozenset[Sees]:
        return frozenset(s for s in (self.topic_sees, self.search_sees, self.answer_sees) if s)

    @property
    def perceives(self) -> bool:
        """Whether the perceiver is asked."""
        return any(SHOWS[s].perceived for s in self.query_sees)

    @property
    def needs_query_media(self) -> bool:
        return any(SHOWS[s].pictures for s in self.query_sees)

    @property
    def needs_node_media(self) -> bool:
        return self.node_sees is not None and SHOWS[self.node_sees].pictures

    @property
    def needs_offline_captions(self) -> bool:
        return self.node_sees is not None and SHOWS[self.node_sees].offline


SETTINGS: Mapping[str, Setting] = {
    row.name: row
    for row in (
        Setting("vanilla", "none", None, None, None, "frames"),
        Setting("vanilla+", "none", None, None, None, "human"),
        Setting("knowledgeable", "gold", None, None, "human", "human"),
        Setting("perceptive", "search", "human", "human", "human", "human"),
        Setting("unaided-offline", "search", "frames", "live", "offline", "live"),
        Setting("unaided-online", "search", "frames", "live", "live", "live"),
    )
}


@dataclass(frozen=True, slots=True)
class Scene:
    """All that there is to see of one question's media: the human text s, its frames, and the perceiver's text once it is made."""

    human: str
    frames: tuple[Picture, ...] = ()
    perceived: str = ""


@dataclass(frozen=True, slots=True)
class Album:
    """All that there is to see of the graph's clips: entity → frames, entity → offline caption."""

    frames: Mapping[int, tuple[Picture, ...]]
    offline: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Show:
    """What one word of `Sees` shows: of the query as (text, frames), of an entity as a View.

    Attributes:
        pictures: whether pictures are needed. perceived: whether the perceiver is. offline: whether offline captions are.
    """

    query: Callable[[Scene], tuple[str, tuple[Picture, ...]]]
    node: Callable[[Album], View]
    pictures: bool = False
    perceived: bool = False
    offline: bool = False


def _nothing(entity: Entity) -> str:
    return ""


def _offline(album: Album) -> View:
    return View(lambda entity: album.offline.get(entity.index, ""))


def _live(album: Album) -> View:
    return View(_nothing, lambda entity: album.frames.get(entity.index, ()))


SHOWS: Mapping[Sees, Show] = {
    "frames": Show(lambda scene: ("", scene.frames), _live, pictures=True),
    "human": Show(lambda scene: (scene.human, ()), lambda album: View(lambda entity: entity.caption)),
    "offline": Show(lambda scene: (scene.perceived, ()), _offline, perceived=True, offline=True),
    # the summarizer of the unaided settings sees frames (Table 12); a prompt set that reads text alone has the perceiver's
    "live": Show(lambda scene: (scene.perceived, scene.frames), _live, pictures=True, perceived=True),
}
