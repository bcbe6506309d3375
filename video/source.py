"""The door of this room: pictures or a clip in, a few prepared picture files out.

    with FrameStore(Path(".cache"), FrameOptions(strategy="content")) as store:
        store.prefetch(jobs_to_come)  # in the background
        frames = store.frames(images, video)

Decoding happens in child processes; what was prepared once is found again by content. Knows nothing of graphs, prompts or models.
Try: python -m video CLIP --out DIR
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

from video import pictures, store
from video.digest import content_digest, fingerprint
from video.errors import IsolationError, OutsideData, VideoError
from video.options import FrameOptions
from video.store import FrameRecord
from video.workers import Pool

Job = tuple[Sequence[Path], Path | None]  # chosen pictures, clip
Progress = Callable[[int, int], None]  # done, total
Arrived = Callable[[int, "FrameSet | VideoError"], None]  # number of the job, what became of it
LAG = 2  # a foreground request finds a free child even while others are prepared


@dataclass(frozen=True)
class FrameSet:
    """Prepared frames of one clip or one set of pictures.

    ``paths`` lie in the store, in the order of time (or natural name order); ``notes`` say what was thinned, missing or flagged and
    which decoder was used and why; ``records`` give each frame's time, number and flags; ``missing`` are seconds at which a wanted
    frame could not be decoded.
    """

    paths: tuple[Path, ...]
    notes: tuple[str, ...] = ()
    records: tuple[FrameRecord, ...] = ()
    missing: tuple[float, ...] = ()
    strategy: str = ""

    def __repr__(self) -> str:
        return f"FrameSet({len(self.paths)} frames, {self.strategy}, {len(self.missing)} missing)"


@dataclass(frozen=True)
class _Task:
    kind: str
    paths: tuple[Path, ...]
    key: str
    digest: str = ""
    stamp: tuple[int, ...] = ()


class FrameStore:
    """Frames on disk under ``root``, made on demand. Thread-safe; several processes may share a root.

    Args:
        root: the store's folder, made when needed; may be deleted between runs.
        options: one request for all clips.
        data_root: where given, every file must lie in it once links are followed.
        workers: most child processes at work at once (default: one per core, at most 8), each about 256 MB for a 4K clip.
    """

    def __init__(self, root: Path, options: FrameOptions, *, data_root: Path | None = None, workers: int | None = None) -> None:
        self.root, self.options = root.absolute(), options
        self.workers = max(1, workers or min(8, os.cpu_count() or 1))
        self._data_root = data_root.resolve() if data_root else None
        self._pool = Pool()
        self._threads = ThreadPoolExecutor(self.workers + LAG, "frames")
        self._ahead = ThreadPoolExecutor(1, "frames-ahead")
        self._pending: dict[str, Future[FrameSet]] = {}
        self._failed: dict[str, VideoError] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def frames(self, images: Sequence[Path], video: Path | None) -> FrameSet:
        """The prepared frames of one sample; from the store when they are there, else made now.

        With strategy ``human`` chosen pictures win, and a clip without pictures falls back to ``options.fallback``, which a note says.
        With any other strategy the clip is sampled when there is one, else the pictures are taken. Neither gives an empty set.

        Raises:
            VideoError: nothing can be shown; the message names the file, the cause and the remedy.
        """
        task = self._plan(images, video)
        if task is None:
            return FrameSet((), ("no pictures and no clip",))
        kept = self._failed.pop(task.key, None)
        if kept is not None:
            raise kept
        return self._find(task) or self._started(task).result()

    def prepare(self, jobs: Sequence[Job], workers: int | None = None, progress: Progress | None = None) -> list[FrameSet | VideoError]:
        """All jobs, in parallel; a job that fails gives its error in its place, the others go on.

        Args:
            workers: most clips at work at once, up to the store's own limit.
            progress: called with (done, total) from this thread after each job.
        """
        results: list[FrameSet | VideoError] = []
        for result in self._run(jobs, min(workers or self.workers, self.workers)):
            results.append(result)
            if progress:
                progress(len(results), len(jobs))
        return results

    def prefetch(self, jobs: Iterable[Job], tell: Arrived | None = None) -> Future[None]:
        """Prepare these in the background, in order, at most ``workers`` at once; returns at once, with a future for the end of it.

        Failures are kept for ``frames`` to raise, once, so that a clip on which a decoder hangs costs its time limit only once.

        Args:
            jobs: read one by one as workers become free. Calls are served in their order.
            tell: called from a background thread as soon as a job is finished, in the order of finishing.
        """
        return self._ahead.submit(self._prefetch, jobs, tell)

    def _prefetch(self, jobs: Iterable[Job], tell: Arrived | None) -> None:
        free = threading.Semaphore(self.workers)

        def finished(number: int, item: Future[FrameSet] | FrameSet | VideoError) -> None:
            try:
                if tell and not (isinstance(item, Future) and item.cancelled()) and not self._stop.is_set():
                    tell(number, _settled(item))
            finally:
                free.release()

        for number, job in enumerate(jobs):
            free.acquire()
            if self._stop.is_set():
                return
            item = self._begin(job, ahead=True)
            if isinstance(item, Future):
                item.add_done_callback(partial(finished, number))
            else:
                finished(number, item)
        for _ in range(self.workers):
            free.acquire()

    def rest(self) -> None:
        """End the child processes that wait for work; the next request starts its own."""
        self._pool.rest()

    def close(self) -> None:
        """End the child processes; unfinished work is dropped and leaves nothing half-written."""
        self._stop.set()
        self._pool.close()
        self._ahead.shutdown(cancel_futures=True)
        self._threads.shutdown(cancel_futures=True)

    def __enter__(self) -> FrameStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _run(self, jobs: Sequence[Job], width: int) -> Iterator[FrameSet | VideoError]:
        """Results in the order of jobs, at most ``width`` of them under way."""
        waiting: list[Future[FrameSet] | FrameSet | VideoError] = []
        for job in jobs:
            while sum(isinstance(item, Future) and not item.done() for item in waiting) >= width:
                yield _settled(waiting.pop(0))
            if self._stop.is_set():
                return
            waiting.append(self._begin(job))
        while waiting:
            yield _settled(waiting.pop(0))

    def _begin(self, job: Job, *, ahead: bool = False) -> Future[FrameSet] | FrameSet | VideoError:
        try:
            task = self._plan(*job)
            if task is None:
                return FrameSet((), ("no pictures and no clip",))
            return self._find(task) or self._started(task, keep=ahead)
        except VideoError as error:
            return error

    def _plan(self, images: Sequence[Path], video: Path | None) -> _Task | None:
        if images and (video is None or self.options.strategy == "human"):
            paths = tuple(pictures.listed([self._inside(path) for path in images]))
            for path in paths:
                self._inside(path)
            parts = [content_digest(path, self.root / "digests") for path in paths]
            whole = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
            return _Task("pictures", paths, f"{whole}-{self.options.digest()}")
        if video is None:
            return None
        path = self._inside(video)
        stamp = fingerprint(path)
        digest = content_digest(path, self.root / "digests")
        return _Task("clip", (path,), f"{digest}-{self.options.digest()}", digest, tuple(stamp))

    def _inside(self, path: Path) -> Path:
        if self._data_root is not None and not path.resolve().is_relative_to(self._data_root):
            where = f"{path} leads to {path.resolve()}"
            raise OutsideData(f"leaves the data folder {self._data_root}", where=where, remedy="copy the file into the data folder")
        return path.absolute()

    def _find(self, task: _Task) -> FrameSet | None:
        entry = store.read(self.root, task.key)
        if entry is None:
            return None
        used = f"decoder {entry.decoder}: {entry.reason}"
        paths = store.paths(self.root, task.key, entry.frames)
        return FrameSet(paths, (*entry.notes, used), entry.frames, entry.missing, entry.strategy)

    def _started(self, task: _Task, *, keep: bool = False) -> Future[FrameSet]:
        """The running or new work for a task: two threads that want the same frames wait for one child."""
        with self._lock:
            pending = self._pending.get(task.key)
            if pending is None:
                pending = self._pending[task.key] = self._threads.submit(self._make, task)
                pending.add_done_callback(partial(self._ended, task.key, keep))
            return pending

    def _ended(self, key: str, keep: bool, work: Future[FrameSet]) -> None:
        if keep and not work.cancelled() and isinstance(error := work.exception(), VideoError):
            self._failed[key] = error
        self._pending.pop(key, None)

    def _make(self, task: _Task) -> FrameSet:
        job: dict[str, object] = {"kind": task.kind, "root": str(self.root), "key": task.key, "paths": [str(path) for path in task.paths]}
        job |= {"digest": task.digest, "stamp": list(task.stamp), "options": asdict(self.options)}
        self._pool.run(job, self.options.timeout)
        found = self._find(task)
        if found is None:
            remedy = "do not clean the store while it is used"
            raise IsolationError("its frames vanished from the store", where=str(task.paths[0]), remedy=remedy)
        return found


def _settled(item: Future[FrameSet] | FrameSet | VideoError) -> FrameSet | VideoError:
    if not isinstance(item, Future):
        return item
    try:
        return item.result()
    except VideoError as error:
        return error
