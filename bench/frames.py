"""From clips and pictures to the frames that a model is shown: the bridge to video/, and what becomes of media that cannot be used.

The only file of bench that knows video's frame store. Try: python -m bench run --limit 4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.config import RunConfig
from models.progress import progress
from models.requests import Picture

Pictures = tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class NoFrames:
    """Media that cannot be used: a countable reason and the message."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class FrameKey:
    """Options that change frames: rows that agree on them share their frames."""

    keyframes: str
    max_frames: int
    max_side: int

    @classmethod
    def of(cls, config: RunConfig) -> FrameKey:
        return cls(config.keyframes, config.max_frames, config.max_side)


def prepare(
    title: str, media: Mapping[int, tuple[Sequence[Path], Path | None]], key: FrameKey, root: Path, data: Path
) -> dict[int, Pictures | NoFrames]:
    """Frames for every (pictures, clip), cut once and kept under `root`; only files in `data` are opened.

    What cannot be used stands in its place with the reason.
    """
    from video.errors import VideoError
    from video.options import FrameOptions
    from video.source import FrameStore

    options = FrameOptions(strategy=key.keyframes, frames=key.max_frames, long_side=key.max_side)
    found: dict[int, Pictures | NoFrames] = {}
    with FrameStore(root, options, data_root=data) as store, progress(title, len(media)) as tell:
        sets = store.prepare(list(media.values()), progress=lambda done, total: tell(done, ""))
    for index, frames in zip(media, sets, strict=True):
        if isinstance(frames, VideoError):
            found[index] = NoFrames(type(frames).__name__, str(frames))
        elif not frames.paths:
            found[index] = NoFrames("empty", "; ".join(frames.notes) or "no frame")
        else:
            found[index] = tuple(Picture.of(path) for path in frames.paths)
    return found
