"""How well the perceiver sees as one thing at a time changes: background, weather, the creature's size, JPEG quality, frame count.

Everything else stays at `USUAL`. Motions and elements come evenly, looks from test worlds. Knows no engine and no other agent.

    python -m bench eval-tiny --robustness --n 200
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any, Final

import numpy as np
from PIL import Image

from bench.tiny import tasks
from bench.tiny.clips import LABELS, TIMES
from bench.tiny.evaluate import Score, Speaker
from bench.tiny.patches import Frames, shrink
from bench.world.creatures import Look
from bench.world.lexicon import caption_class
from bench.world.render import draw
from bench.world.scene import Family, make_scene

SIZE: Final = (640, 360)  # of the clips of a sample world


@dataclass(frozen=True, slots=True)
class Condition:
    """How clips are shown. `size`: the creature's, 1 is usual; `quality`: of JPEG, None for none."""

    family: Family = "wild"
    weather: str = ""
    size: float = 1.0
    quality: int | None = None
    frames: int = 3


USUAL: Final = Condition()
# what changes → its values; training saw sizes of 0.84 to 1.16, qualities of 40 to 95, two to four frames
VARIED: Final[Mapping[str, Mapping[str, Condition]]] = {
    "background": {"wild, clear": USUAL, "arena": replace(USUAL, family="arena")},
    "weather": {name: replace(USUAL, weather=name) for name in ("mist", "dusk", "thicket")},
    "creature size": {f"{size:g}": replace(USUAL, size=size) for size in (0.6, 0.8, 1.2, 1.4)},
    "JPEG quality": {f"{quality}": replace(USUAL, quality=quality) for quality in (90, 50, 25, 10, 5)},
    "frames": {f"{frames}": replace(USUAL, frames=frames) for frames in (1, 2, 4)},
}


def measure(speaker: Speaker, n: int, seed: int) -> dict[str, Any]:
    """`n` clips of every condition: rows of ``what``, ``value``, and how often all, the motion, the element were right."""
    rows = []
    for what, conditions in VARIED.items():
        for value, condition in conditions.items():
            rows.append({"what": what, "value": value, "total": n, **_right(speaker, condition, n, Random(f"robustness/{seed}"))})
    return {"rows": rows}


def _right(speaker: Speaker, condition: Condition, n: int, rng: Random) -> dict[str, int]:
    """Counts of right replies. Every condition starts from one seed, so that all show the same creatures and attacks."""
    source = tasks.source("perceive", rng.getrandbits(40), "test")
    prompts, shown, gold = [], [], []
    for k in range(n):
        sample = next(source)
        assert sample.clip is not None
        label = LABELS[k % len(LABELS)]
        shown.append(draw_under(condition, sample.clip.look, *label, sample.clip.scene))
        prompts.append(speaker.encoder.prompt(sample.request, condition.frames))
        gold.append(label)
    seen = [caption_class(said) or ("", "") for said in speaker.reply(prompts, shown)]
    pairs = list(zip(seen, gold, strict=True))
    return {
        "right": sum(a == b for a, b in pairs),
        "motion": sum(a[0] == b[0] for a, b in pairs),
        "element": sum(a[1] == b[1] for a, b in pairs),
    }


def draw_under(condition: Condition, look: Look, motion: str, element: str | None, seed: int) -> Frames:
    """The frames of one attack as the condition has them: uint8 (frames, 84, 140, 3)."""
    scene = next(s for s in (make_scene(condition.family, number) for number in _numbers(seed)) if s.weather == condition.weather)
    out = []
    for t in TIMES[condition.frames]:
        picture = draw(replace(look, size=condition.size), motion, element, t, scene, SIZE)
        if condition.quality is not None:
            buffer = io.BytesIO()
            picture.save(buffer, "JPEG", quality=condition.quality)
            picture = Image.open(buffer)
        out.append(shrink(picture))
    return np.stack(out)


def _numbers(seed: int) -> Iterator[int]:
    return count(seed)


def table(facts: Mapping[str, Any]) -> str:
    """Markdown: one row a condition, motion and element right together, then each alone."""
    lines = ["| condition | value | motion and element | motion | element |", "|---|---|---|---|---|"]
    for row in facts["rows"]:
        both = Score(row["right"], row["total"])
        alone = f"{row['motion'] / row['total']:.3f} | {row['element'] / row['total']:.3f}"
        lines.append(f"| {row['what']} | {row['value']} | {both} | {alone} |")
    return "\n".join(lines)
