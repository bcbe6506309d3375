"""A pool of drawn clips on disk: frames as the model meets them after JPEG and resizing, with what they show.

Real frames are H.264 at 640×360, then JPEG, then bicubic 140×84; here compression, blur and timing vary instead. Shard n of a seed is
always the same, so a trainer may draw it itself or find it drawn. Knows no tokens. A pool of 12,000 clips is 1.3 GB.

    python -m bench.tiny.clips .cache/tiny/clips 24        # draws the first 24 shards
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image, ImageFilter

from bench.tiny.patches import HEIGHT, WIDTH, Frames, shrink
from bench.world import lexicon as lx
from bench.world.creatures import COLOURS, SHAPES, Look
from bench.world.render import draw
from bench.world.scene import Family, make_scene

SHARD = 500  # clips
SIZE = (320, 180)  # drawn twice as large and averaged, which looks like 640×360 made small and costs half
Label = tuple[str, str | None]  # (motion, element)
LABELS: tuple[Label, ...] = tuple(
    (motion, element) for motion in lx.MOTIONS for element in ((None, *lx.ELEMENTS) if motion not in lx.NEEDS_ELEMENT else lx.ELEMENTS)
)
TIMES = {1: (0.5,), 2: (0.1, 0.9), 3: (0.1, 0.5, 0.9), 4: (0.1, 0.37, 0.63, 0.9)}
FAMILIES: tuple[Family, Family] = ("arena", "wild")


@dataclass(frozen=True, slots=True)
class Drawn:
    """One clip: uint8 (count, 84, 140, 3), and what it shows."""

    motion: str
    element: str | None
    family: str
    frames: Frames


def draw_clip(look: Look, motion: str, element: str | None, family: Family, scene: int, count: int, rng: Random) -> Frames:
    """`count` frames (1 to 4), compressed and softened by `rng` as real ones may be."""
    glow = rng.choice((None, None, 0, 1, 2))
    quality, soft = rng.randint(40, 95), rng.random()
    late = rng.uniform(-0.1, 0.1)
    out = []
    for t in TIMES[count]:
        at = min(1.0, max(0.0, t + late + rng.uniform(-0.03, 0.03)))
        picture = draw(look, motion, element, at, make_scene(family, scene), SIZE, glow)
        if soft < 0.3:
            picture = picture.filter(ImageFilter.GaussianBlur(soft * 3))
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=quality)
        out.append(shrink(Image.open(buffer)))
    return np.stack(out)


def any_look(rng: Random) -> Look:
    """A creature as the world's own are made, with sizes a little beyond theirs."""
    return Look(
        rng.choice(SHAPES), rng.randrange(COLOURS), rng.randrange(3), rng.random() < 0.5, rng.choice((0.8, 1.0, 1.25)),
        rng.choice((2, 4)), rng.uniform(0.84, 1.16),
    )  # fmt: skip


class Pool:
    """`shards` shards of 500 clips under a folder; a shard that is missing is drawn when it is first wanted."""

    def __init__(self, folder: Path, shards: int, seed: int = 0) -> None:
        if shards < 1:
            raise ValueError(f"a pool needs at least one shard, got {shards}")
        self.folder, self.shards, self.seed = folder, shards, seed
        self._open: dict[int, tuple[Frames, list[tuple[str, str | None, str, int, int]]]] = {}
        self._index: dict[tuple[str, str | None, str, bool], list[tuple[int, int]]] = {}

    def shard(self, number: int) -> Iterator[Drawn]:
        """The clips of one shard, in order."""
        frames, rows = self._load(number)
        for motion, element, family, start, count in rows:
            yield Drawn(motion, element, family, frames[start : start + count])

    def clip(self, motion: str, element: str | None, family: str, count: int, draw: int) -> Frames:
        """A clip of the pool that shows this, chosen by the number `draw`; uint8 (count, 84, 140, 3), read-only."""
        if not self._index:
            for number in range(self.shards):
                for place, row in enumerate(self._load(number)[1]):
                    self._index.setdefault((row[0], row[1], row[2], row[4] == 4), []).append((number, place))
        four = count == 4 or (count == 1 and draw % 4 == 0)
        found = self._index[motion, element, family, four]
        number, place = found[(draw // 4 if count == 1 else draw) % len(found)]
        frames, rows = self._load(number)
        start, stored = rows[place][3:]
        if count == 1:  # the middle of an attack tells most
            return frames[start + stored // 2 : start + stored // 2 + 1]
        return frames[[start, start + stored - 1]] if count == 2 else frames[start : start + stored]

    def _load(self, number: int) -> tuple[Frames, list[tuple[str, str | None, str, int, int]]]:
        if number not in self._open:
            path = self.folder / f"clips-{self.seed}-{number:03d}.npy"
            if not path.exists():
                self._draw(number, path)
            rows = json.loads(path.with_suffix(".json").read_text())
            self._open[number] = np.load(path, mmap_mode="r"), rows
        return self._open[number]

    def _draw(self, number: int, path: Path) -> None:
        rng = Random(f"clips/{self.seed}/{number}")
        frames, rows, start = [], [], 0
        for n in range(SHARD):
            # every label and family in turn
            motion, element = LABELS[(number * SHARD + n) // 2 % len(LABELS)]
            family = FAMILIES[n % 2]
            count = 4 if rng.random() < 0.15 else 3
            if number == 0 and n < 4 * len(LABELS):  # so the first shard alone holds every label with three and with four frames
                count = 4 if n < 2 * len(LABELS) else 3
            frames.append(draw_clip(any_look(rng), motion, element, family, rng.getrandbits(30), count, rng))
            rows.append((motion, element, family, start, count))
            start += count
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}.new")
        with fresh.open("wb") as file:
            np.save(file, np.concatenate(frames), allow_pickle=False)
        path.with_suffix(".json").write_text(json.dumps(rows))
        fresh.replace(path)


if __name__ == "__main__":
    pool, begun = Pool(Path(sys.argv[1]), 10_000), time.time()
    for i in range(int(sys.argv[2])):
        next(pool.shard(i))
        print(f"shard {i}: {(time.time() - begun) / 60:.1f} minutes, {HEIGHT}x{WIDTH}", flush=True)
