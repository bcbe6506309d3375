"""What is asked of a clip: how many frames, chosen how, how large, written as what.

Knows the menus and nothing of files. Try: python -m video --help
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from video.errors import OptionError

STRATEGIES = {
    "human": "the data set's chosen pictures; a clip without them falls back to `fallback`",
    "equal": "one frame every half second, the first ten (MH-MMKG, Table 5)",
    "uniform": "N frames at the middles of N equal parts of the clip",
    "content": "shots found in the packet sizes, then the longest gaps filled; decodes nothing to choose",
    "content-hq": "shots found by pixel change in one reduced-size pass, then the longest gaps filled",
    "fast": "keyframes only, when there are enough of them; else uniform",
}
FORMATS = {"jpeg": ".jpg", "png": ".png"}
DECODERS = ("auto", "pyav", "decord")
RECIPE = 2  # part of every options digest: raise it when the same options would give other pixels or flags


@dataclass(frozen=True)
class FrameOptions:
    """One request, the same for every clip of a run. Frozen, so that its digest can name a folder.

    Args:
        strategy: a row of ``STRATEGIES``.
        frames: the most frames that one clip gives, 1 to 256.
        long_side: longest side of a written frame in pixels, 28 to 8192; smaller pictures are not enlarged.
        format: ``jpeg`` (4:4:4, ``quality``) or ``png``.
        quality: JPEG quality, 1 to 100; ignored for PNG.
        decoder: ``auto`` takes decord only where the index proves it exact and it is not slower, pyav elsewhere.
        timeout: seconds that one clip may take in its child process.
        fallback: the strategy that ``human`` uses for a clip without pictures.
        background: ``#rrggbb``, the colour under transparent pixels and around padded pictures.

    Raises:
        OptionError: a value outside its menu; the message lists the menu.
    """

    strategy: str = "human"
    frames: int = 10
    long_side: int = 1024
    format: str = "jpeg"
    quality: int = 92
    decoder: str = "auto"
    timeout: float = 120.0
    fallback: str = "uniform"
    background: str = "#ffffff"

    def __post_init__(self) -> None:
        _menu("strategy", self.strategy, STRATEGIES)
        _menu("fallback", self.fallback, [name for name in STRATEGIES if name != "human"])
        _menu("format", self.format, FORMATS)
        _menu("decoder", self.decoder, DECODERS)
        whole("frames", self.frames, 1, 256)
        whole("long_side", self.long_side, 28, 8192)
        whole("quality", self.quality, 1, 100)
        if not self.timeout > 0:
            raise OptionError(f"timeout is {self.timeout}", remedy="give a number of seconds above 0")
        digits = self.background.removeprefix("#")
        if len(digits) != 6 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise OptionError(f"background is {self.background!r}", remedy="give a colour as #rrggbb")

    @property
    def suffix(self) -> str:
        return FORMATS[self.format]

    @property
    def colour(self) -> tuple[int, int, int]:
        """``background`` as red, green, blue, 0 to 255 each."""
        digits = self.background.removeprefix("#")
        return int(digits[0:2], 16), int(digits[2:4], 16), int(digits[4:6], 16)

    def digest(self) -> str:
        """Twelve hex digits over everything that can change a written frame; the time limit cannot."""
        fields = {key: value for key, value in asdict(self).items() if key != "timeout"}
        text = json.dumps({"recipe": RECIPE, **fields}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _menu(name: str, value: str, allowed: Iterable[str]) -> None:
    names = list(allowed)
    if value not in names:
        raise OptionError(f"{name} is {value!r}", remedy=f"choose one of: {', '.join(names)}")


def whole(name: str, value: int, low: int, high: int) -> None:
    """Raises OptionError unless `value` is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise OptionError(f"{name} is {value!r}", remedy=f"give a whole number from {low} to {high}")
