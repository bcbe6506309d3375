"""The light classifiers in front: what they must be able to do, and the table of those that exist, for texts and for pictures.

"head" is the shipped linear head on sentence vectors; "nudenet" the optional package of that name (see docs/pipeline.md for why it is not
installed by default); any local folder of transformers' sequence or image classification stands in their place in production.
Knows no flow. Try: python -m pipeline safety score "a question" --text-filter FOLDER
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from PIL import Image

from models.errors import ConfigError, ModelError
from pipeline.encoders import text_encoder
from pipeline.safety.head import TextFilter
from pipeline.safety.verdicts import Verdict


class TextScreen(Protocol):
    @property
    def digest(self) -> str: ...
    def judge(self, texts: Sequence[str]) -> list[Verdict]:
        """A verdict for each text."""


class ImageScreen(Protocol):
    @property
    def digest(self) -> str: ...
    def judge(self, pictures: Sequence[Image.Image]) -> list[Verdict]:
        """A verdict for each picture (RGB)."""


# Words in the labels of published classifiers. A label that fits neither list has to be named by the user: a guess could let harm pass.
_HARMFUL = """unsafe harmful harm toxic nsfw porn hentai sexy violence violent gore hate hateful offensive abuse threat insult obscene
weapon weapons drugs jailbreak injection malicious"""
HARMFUL = frozenset(_HARMFUL.split())
_HARMLESS = "safe harmless benign neutral normal sfw ok clean drawings drawing none legit nontoxic"
HARMLESS = frozenset(_HARMLESS.split())


def harmful_labels(labels: Mapping[int, str], given: Sequence[str], where: str) -> list[int]:
    """The numbers of the labels that mean harm. Raises ModelError when a label is unknown, or none means harm."""
    if given:
        known = {name.casefold(): number for number, name in labels.items()}
        missing = [name for name in given if name.casefold() not in known]
        if missing:
            remedy = f"its labels: {', '.join(labels.values())}"
            raise ModelError(f"has no label {', '.join(map(repr, missing))}", where=where, remedy=remedy)
        return sorted(known[name.casefold()] for name in given)
    found, unclear = [], []
    for number, name in labels.items():
        meaning = _meaning(name)
        if meaning is None:
            unclear.append(name)
        elif meaning:
            found.append(number)
    if unclear or not found:
        what = f"it is not clear which of the labels {', '.join(labels.values())} mean harm"
        raise ModelError(what, where=where, remedy="name them: harmful_labels in the settings, or --harmful-labels")
    return found


def _meaning(label: str) -> bool | None:
    """True: harm; False: none; None: could not tell."""
    words = re.findall(r"[a-z]+", label.casefold())
    if words[:1] in (["non"], ["not"], ["no"]):
        return False if HARMFUL & set(words[1:]) else None
    if HARMFUL & set(words):
        return True
    return False if HARMLESS & set(words) else None


def text_screen(name: str, labels: Sequence[str] = ()) -> TextScreen | None:
    """``head``, ``none``, or a folder. Raises ConfigError, ModelError."""
    if name == "none":
        return None
    if name == "head":
        return TextFilter(text_encoder())
    from pipeline.safety.hf import TextClassifier

    return TextClassifier(_folder(name, "text filter", "head, none"), labels)


def image_screen(name: str, labels: Sequence[str] = ()) -> ImageScreen | None:
    """``none``, ``nudenet``, or a folder. Raises ConfigError, ModelError."""
    if name == "none":
        return None
    if name == "nudenet":
        from pipeline.safety.nudity import NudeNet

        return NudeNet()
    from pipeline.safety.hf import ImageClassifier

    return ImageClassifier(_folder(name, "image filter", "none, nudenet"), labels)


def _folder(name: str, kind: str, known: str) -> Path:
    if not Path(name).is_dir():
        raise ConfigError(f"no {kind} {name!r}", remedy=f"known: {known}; or give a classifier's folder")
    return Path(name)
