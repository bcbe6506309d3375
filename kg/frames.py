"""From clips and pictures to the frames that a model is shown, prepared in the background while the model works.

    with Frames(root, data) as frames:
        shelf = frames.shelf(options, media)      # number → (pictures, clip)
        frames.fetch(shelf, shelf.media)          # from now on, in this order
        if shelf.ready(7): pictures = shelf.get(7)

The bridge to video/ and the only file of kg that opens its frame store. What cannot be used stands in its place with the reason.
Memory does not grow with the data set: the store's few children are at work at once, and what is kept is paths.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from models.requests import Picture
from video.errors import VideoError
from video.options import FrameOptions
from video.source import FrameSet, FrameStore

Pictures = tuple[Picture, ...]
Media = tuple[Sequence[Path], Path | None]  # chosen pictures, clip


@dataclass(frozen=True, slots=True)
class NoFrames:
    """Media that cannot be used: a countable reason and the message."""

    reason: str
    detail: str


class Shelf:
    """The frames of many (pictures, clip), by number, under one set of options. Thread-safe."""

    def __init__(self, store: FrameStore, media: Mapping[int, Media]) -> None:
        self.media = media
        self._store = store
        self._made: dict[int, Pictures | NoFrames] = {}
        self._coming: set[int] = set()

    def ready(self, number: int) -> bool:
        """Whether ``get`` would answer without waiting; True as well for what nobody is fetching, which ``get`` then makes."""
        return number in self._made or number not in self._coming

    def get(self, number: int) -> Pictures | NoFrames:
        """The frames, made now where they are not there yet. Raises KeyError for a number without media."""
        if number not in self._made:
            images, video = self.media[number]
            try:
                made: FrameSet | VideoError = self._store.frames(images, video)
            except VideoError as error:
                made = error
            self._arrived(number, made)
        return self._made[number]

    @property
    def words(self) -> str:
        """For a progress bar: how many are on their way; empty when they are all there."""
        return f", frames of {len(self._coming)} to come" if self._coming else ""

    @property
    def unusable(self) -> dict[int, NoFrames]:
        """Of those looked at so far, what cannot be used."""
        return {number: made for number, made in sorted(self._made.items()) if isinstance(made, NoFrames)}

    def _arrived(self, number: int, made: FrameSet | VideoError) -> None:
        self._made.setdefault(number, _pictures(made))
        self._coming.discard(number)


class Frames:
    """Shelves over one folder of prepared frames; one queue in the background serves them all.

    Args:
        root: where prepared frames are kept; may be deleted between runs.
        data: only files in it are opened.
    """

    def __init__(self, root: Path, data: Path) -> None:
        self._root, self._data = root, data
        self._stores: dict[FrameOptions, FrameStore] = {}
        self._queue = ThreadPoolExecutor(1, "frames-queue")
        self._stop = threading.Event()

    def shelf(self, options: FrameOptions, media: Mapping[int, Media]) -> Shelf:
        """A new shelf. Opens and decodes nothing."""
        if options not in self._stores:
            self._stores[options] = FrameStore(self._root, options, data_root=self._data)
        return Shelf(self._stores[options], media)

    def fetch(self, shelf: Shelf, numbers: Iterable[int]) -> None:
        """Prepare these after what was fetched before, in this order; returns at once."""
        fresh = [number for number in dict.fromkeys(numbers) if number not in shelf._made and number not in shelf._coming]
        shelf._coming.update(fresh)
        if fresh:
            self._queue.submit(self._fetch, shelf, fresh)

    def _fetch(self, shelf: Shelf, numbers: Sequence[int]) -> None:
        def tell(at: int, made: FrameSet | VideoError) -> None:
            shelf._arrived(numbers[at], made)

        try:
            if not self._stop.is_set():
                done: Future[None] = shelf._store.prefetch([shelf.media[number] for number in numbers], tell)
                with suppress(CancelledError):
                    done.result()
                shelf._store.rest()
        finally:
            shelf._coming.difference_update(numbers)  # whatever stopped it: nobody waits for what does not come

    def close(self) -> None:
        """Drops what is not done; leaves nothing half-written and no process behind."""
        self._stop.set()
        for store in self._stores.values():
            store.close()
        self._queue.shutdown(cancel_futures=True)

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _pictures(made: FrameSet | VideoError) -> Pictures | NoFrames:
    if isinstance(made, VideoError):
        return NoFrames(type(made).__name__, str(made))
    if not made.paths:
        return NoFrames("empty", "; ".join(made.notes) or "no frame")
    try:
        return tuple(Picture.of(path) for path in made.paths)
    except OSError as error:
        return NoFrames("vanished", f"{error.filename}: {error.strerror}; do not clean the store while it is used")
