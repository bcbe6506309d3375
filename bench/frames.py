"""What a run's rows show of questions and of the graph: frames prepared in the background, in the order in which samples need them.

A sample may start as soon as its own frames are there: those of its question, and where the search looks at clips those of its root's
entities. What a search finds beyond them is prepared when it is looked at. Knows rows and data, no decoder: kg/frames.py has the shelves.
Try: python -m bench run --limit 4
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.config import RunConfig
from bench.rows import Row
from bench.settings import Scene
from kg.captions import captioned, key_of
from kg.dataset import Dataset, Question
from kg.frames import Frames, NoFrames, Pictures, Shelf
from video.options import FrameOptions


@dataclass(frozen=True, slots=True)
class FrameKey:
    """Options that change frames: rows that agree on them share their frames."""

    keyframes: str
    max_frames: int
    max_side: int

    @classmethod
    def of(cls, config: RunConfig) -> FrameKey:
        return cls(config.keyframes, config.max_frames, config.max_side)

    @property
    def options(self) -> FrameOptions:
        return FrameOptions(strategy=self.keyframes, frames=self.max_frames, long_side=self.max_side)


class Showing:
    """One per run. Frames lie under `root`; only files of the data set's folder are opened. `close` ends what is under way."""

    def __init__(self, dataset: Dataset, root: Path) -> None:
        self._frames = Frames(root, dataset.folder)
        self._dataset = dataset
        self._entities = {entity.index: entity for entity in captioned(dataset)}
        self._owned: dict[str, list[int]] = {}
        for index, entity in self._entities.items():
            self._owned.setdefault(entity.owner or entity.name, []).append(index)
        self._of_questions: dict[FrameKey, Shelf] = {}
        self._of_graph: dict[FrameKey, Shelf] = {}

    def prepare(self, rows: Sequence[Row], questions: Sequence[Question], captioning: Collection[str] = ()) -> None:
        """Starts on every frame that these rows will show, and returns at once.

        Args:
            captioning: labels of rows for which the whole graph is put into words before they start; its frames come first.
        """
        for row in sorted(rows, key=lambda row: row.label not in captioning):
            if row.label in captioning:
                self._frames.fetch(self.graph(row), self._entities)
            if row.setting.needs_query_media:
                shelf = self._questions(row, questions)
                self._frames.fetch(shelf, [q.row for q in questions if q.has_media])
            if row.setting.needs_node_media:
                roots = dict.fromkeys(question.root for question in questions)
                self._frames.fetch(self.graph(row), [index for root in roots for index in self._owned.get(root, ())])

    def ready(self, row: Row, question: Question) -> bool:
        """Whether this sample can start without waiting for its frames."""
        key = FrameKey.of(row.config)
        if row.setting.needs_query_media and question.has_media and not self._of_questions[key].ready(question.row):
            return False
        return not row.setting.needs_node_media or all(map(self.graph(row).ready, self._owned.get(question.root, ())))

    def scene(self, row: Row, question: Question) -> Scene | NoFrames:
        """What there is to see of this question in this row, waited for; NoFrames when its media cannot be used."""
        if not row.setting.needs_query_media or not question.has_media:
            return Scene(question.perception)
        frames = self._of_questions[FrameKey.of(row.config)].get(question.row)
        return frames if isinstance(frames, NoFrames) else Scene(question.perception, frames)

    def graph(self, row: Row) -> Shelf:
        """The frames of the graph's entities under this row's options."""
        key = FrameKey.of(row.config)
        if key not in self._of_graph:
            self._of_graph[key] = self._frames.shelf(key.options, {i: (e.images, e.video) for i, e in self._entities.items()})
        return self._of_graph[key]

    def seen(self, row: Row) -> Mapping[int, Pictures]:
        """Entity → its frames, made when they are looked up; an entity whose media cannot be used is not in it."""
        return _Seen(self.graph(row)) if row.setting.needs_node_media else {}

    @property
    def words(self) -> str:
        """For a progress bar: how many frames are still to come; empty when they are all there."""
        return "".join(shelf.words for shelf in (*self._of_questions.values(), *self._of_graph.values()))

    def unusable(self) -> dict[str, str]:
        """Entities that were looked at and whose media cannot be used, and why: for the report."""
        faults = [found for shelf in self._of_graph.values() for found in shelf.unusable.items()]
        return {key_of(self._entities[index]): frames.detail for index, frames in sorted(faults, key=lambda found: found[0])}

    def close(self) -> None:
        """Ends the preparation; what is not done is dropped."""
        self._frames.close()

    def _questions(self, row: Row, questions: Sequence[Question]) -> Shelf:
        key = FrameKey.of(row.config)
        if key not in self._of_questions:
            media = {q.row: (q.images, q.video) for q in questions if q.has_media}
            self._of_questions[key] = self._frames.shelf(key.options, media)
        return self._of_questions[key]


class _Seen(Mapping[int, Pictures]):
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def __getitem__(self, index: int) -> Pictures:
        frames = self._shelf.get(index)
        if isinstance(frames, NoFrames):
            raise KeyError(index)
        return frames

    def __iter__(self) -> Iterator[int]:
        return iter(self._shelf.media)

    def __len__(self) -> int:
        return len(self._shelf.media)
