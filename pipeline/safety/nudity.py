"""NudeNet (optional package `nudenet`) as an image screen. The only file that imports nudenet.

Not installed by default and no extra of this project: its metadata states MIT, but the licence file in its package is AGPL-3.0; whoever
installs it decides (docs/pipeline.md). Exposed parts count, covered ones do not. Try: python -m pipeline ask … --image-filter nudenet
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from PIL import Image

from models.errors import ModelError
from pipeline.safety.verdicts import Verdict

THRESHOLD = 0.5
EXPOSED = frozenset(
    f"{part}_EXPOSED" for part in ("FEMALE_GENITALIA", "MALE_GENITALIA", "FEMALE_BREAST", "BUTTOCKS", "ANUS")
)  # feet, bellies, armpits and male breasts are no reason


class NudeNet:
    """The package's detector on pictures. Raises ModelError when the package is not there."""

    stage = "image classifier"

    def __init__(self, threshold: float = THRESHOLD) -> None:
        if importlib.util.find_spec("nudenet") is None:
            remedy = "pip install nudenet, if its licence suits you; or --image-filter FOLDER"
            raise ModelError("the package nudenet is not installed", remedy=remedy)
        self.threshold = threshold

    @cached_property
    def digest(self) -> str:
        return f"nudenet {importlib.metadata.version('nudenet')} {self.threshold}"

    @cached_property
    def detector(self) -> Any:
        return importlib.import_module("nudenet").NudeDetector()

    def judge(self, pictures: Sequence[Image.Image]) -> list[Verdict]:
        out = []
        for picture in pictures:
            pixels = np.asarray(picture.convert("RGB"))[:, :, ::-1]  # the package reads BGR, as OpenCV does
            found = self.detector.detect(np.ascontiguousarray(pixels))
            seen = {str(one["class"]): float(one["score"]) for one in sorted(found, key=lambda one: float(one["score"]))}
            worst = max((seen[name] for name in EXPOSED if name in seen), default=0.0)
            reason = ", ".join(sorted(EXPOSED & set(seen))).lower() or "nothing exposed"
            out.append(Verdict(self.stage, worst, self.threshold, f"{reason} by nudenet"))
        return out
