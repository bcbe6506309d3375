"""Plain drawn pictures for our own safety set: a few shapes and a line of text, made from a short description, the same bytes each time.

They carry what a question leaves unsaid; a model that reads and sees gets the point. Try: python -m bench mmsafety --own
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

SIZE = (448, 336)
Pen = ImageDraw.ImageDraw


def _knife(pen: Pen) -> None:
    pen.polygon([(60, 190), (270, 120), (280, 150), (80, 205)], fill="#c8ccd2", outline="#555")
    pen.rectangle((270, 112, 380, 150), fill="#4a2f1b")


def _gun(pen: Pen) -> None:
    pen.rectangle((70, 120, 380, 140), fill="#333")
    pen.polygon([(280, 140), (390, 140), (410, 200), (330, 165)], fill="#5a3a22")


def _bruise(pen: Pen) -> None:
    pen.rounded_rectangle((120, 40, 320, 260), 60, fill="#e8bfa0")
    for x, y in ((180, 110), (230, 170), (170, 200)):
        pen.ellipse((x, y, x + 48, y + 32), fill="#6b4a7a")


def _pill(pen: Pen) -> None:
    for x in (110, 200, 290):
        pen.rounded_rectangle((x, 130, x + 60, 160), 15, fill="#f2f2f2", outline="#888")
        pen.rectangle((x, 130, x + 30, 160), fill="#c0392b")


def _person(pen: Pen) -> None:
    pen.ellipse((190, 50, 260, 120), fill="#e8bfa0")
    pen.rounded_rectangle((160, 120, 290, 260), 30, fill="#34495e")


def _house(pen: Pen) -> None:
    pen.rectangle((130, 140, 320, 260), fill="#d9c7a0")
    pen.polygon([(110, 140), (225, 60), (340, 140)], fill="#8e3b2f")
    pen.rectangle((205, 190, 250, 260), fill="#4a2f1b")


def _lock(pen: Pen) -> None:
    pen.arc((170, 60, 280, 200), 180, 0, fill="#777", width=18)
    pen.rounded_rectangle((150, 130, 300, 250), 14, fill="#c9a227")
    pen.ellipse((212, 170, 238, 196), fill="#333")


def _bottle(pen: Pen) -> None:
    pen.rounded_rectangle((180, 100, 270, 270), 16, fill="#3a7d44")
    pen.rectangle((208, 50, 242, 100), fill="#3a7d44")


def _card(pen: Pen) -> None:
    pen.rounded_rectangle((90, 90, 360, 250), 16, fill="#2c5f9e")
    pen.rectangle((90, 120, 360, 150), fill="#222")


def _flower(pen: Pen) -> None:
    for x, y in ((225, 90), (180, 130), (270, 130), (200, 180), (250, 180)):
        pen.ellipse((x - 30, y - 30, x + 30, y + 30), fill="#d8589f")
    pen.ellipse((205, 115, 245, 155), fill="#f2c230")


def _nothing(pen: Pen) -> None:
    """A sign: text alone."""


SHAPES: Mapping[str, Callable[[Pen], None]] = {
    "knife": _knife,
    "gun": _gun,
    "bruise": _bruise,
    "pill": _pill,
    "person": _person,
    "house": _house,
    "lock": _lock,
    "bottle": _bottle,
    "card": _card,
    "flower": _flower,
    "sign": _nothing,
}


def draw(description: Mapping[str, Any], folder: Path) -> Path:
    """The picture of ``{"shape", "text"}``, made once, under a name of its own content."""
    name = hashlib.sha256(json.dumps(dict(description), sort_keys=True).encode()).hexdigest()[:16]
    path = folder / f"{name}.png"
    if path.exists():
        return path
    picture = Image.new("RGB", SIZE, "#fdfdf7")
    pen = ImageDraw.Draw(picture)
    SHAPES[description["shape"]](pen)
    font = ImageFont.load_default(24)
    for i, line in enumerate(str(description.get("text", "")).split("\n")):
        pen.text((24, 276 + 28 * i if description["shape"] != "sign" else 100 + 40 * i), line, fill="black", font=font)
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f".{name}.{os.getpid()}.part"
    picture.save(aside, "PNG")
    aside.replace(path)
    return path
