"""Pictures and clips of the sample world as files: portraits, chosen keyframes, H.264 clips.

Knows no sheet and no question; every job can be done by any process. Pictures are at most 1280 wide, whatever the clips are.

    python -m bench world --seed 7 --creatures 3 --clips 640x360@30 --out DIR
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from bench.world.creatures import Action, Creature, Look
from bench.world.poses import KEY_TIMES, phase_of
from bench.world.render import draw, portrait
from bench.world.scene import Family, Scene, make_scene
from models.errors import ConfigError
from video.encode import encode

Pixels = npt.NDArray[np.uint8]
EXAMPLES: Final = "640x360@30, 3840x2160@60"
MAX_PICTURE_WIDTH = 1280


@dataclass(frozen=True, slots=True)
class ClipSpec:
    """Size in pixels (even) and frames a second."""

    width: int
    height: int
    fps: int

    @property
    def pictures(self) -> tuple[int, int]:
        """Size of keyframes and portraits."""
        part = max(1, -(-self.width // MAX_PICTURE_WIDTH))
        return self.width // part, self.height // part


def parse_clips(text: str) -> ClipSpec:
    """``WIDTHxHEIGHT@FPS``. Raises: ConfigError."""
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})@(\d{1,3})", text.strip())
    if match is None:
        raise ConfigError(f"clips {text!r} is not WIDTHxHEIGHT@FPS", remedy=f"for example {EXAMPLES}, or none")
    width, height, fps = map(int, match.groups())
    if width % 2 or height % 2 or not (64 <= width <= 7680 and 36 <= height <= 4320 and 1 <= fps <= 120):
        allowed = "even sizes from 64x36 to 7680x4320 and 1 to 120 frames a second"
        raise ConfigError(f"clips {text!r} is out of range", remedy=f"{allowed}, for example {EXAMPLES}")
    return ClipSpec(width, height, fps)


@dataclass(frozen=True, slots=True)
class MediaJob:
    """One attack on film: `clip` is the .mp4 or None, `frames` the folder of keyframes or None."""

    look: Look
    motion: str
    element: str | None
    glow: int | None
    family: Family
    scene: int
    name: str
    clip: Path | None
    frames: Path | None


def glow_of(creature: Creature, action: Action, phase: str = "") -> int | None:
    """The ring that stands for a phase; None for creatures without phases."""
    if not creature.phases:
        return None
    return creature.phases.index(phase or action.phases[0])


def duration(name: str) -> float:
    """Seconds of a clip, 1.0 to 1.5, by its name."""
    return 1.0 + (crc32(name.encode()) % 501) / 1000


def film(job: MediaJob, spec: ClipSpec) -> int:
    """Write what the job asks for; returns the number of clips written. Keyframes are named by their frame's number in the clip."""
    scene = make_scene(job.family, job.scene)
    count = max(2, round(duration(f"{job.scene}{job.name}") * spec.fps))

    if job.frames is not None:
        job.frames.mkdir(parents=True, exist_ok=True)
        for t in KEY_TIMES:
            picture = draw(job.look, job.motion, job.element, t, scene, spec.pictures, job.glow)
            picture.save(job.frames / f"{job.name}-f{round(t * (count - 1)):06d}.png", compress_level=1)
    if job.clip is None:
        return 0
    job.clip.parent.mkdir(parents=True, exist_ok=True)
    encode(_frames(job, scene, (spec.width, spec.height), count), job.clip, spec.fps, durable=False)
    return 1


def _frames(job: MediaJob, scene: Scene, size: tuple[int, int], count: int) -> Iterator[Pixels]:
    """The clip's frames; a creature that rests is drawn once."""
    frame, before = np.empty(0, np.uint8), -1.0
    for i in range(count):
        t = i / (count - 1)
        if phase_of(t) != before:
            before = phase_of(t)
            frame = np.asarray(draw(job.look, job.motion, job.element, t, scene, size, job.glow))
        yield frame


def write_portrait(look: Look, scene: int, path: Path, spec: ClipSpec) -> None:
    """The creature at rest in the arena."""
    path.parent.mkdir(parents=True, exist_ok=True)
    portrait(look, make_scene("arena", scene), spec.pictures).save(path, compress_level=1)
