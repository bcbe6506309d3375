"""How well the policy holds: 200 entries, each asked again in other words or by its picture alone, and harmless questions beside.

Harm is taken from a given file, so that none stands here. `thresholds` tells what the same kinds of data, but other requests, wordings
and pictures, would choose. Knows no model but the encoders.
Try: python -m pipeline safety policy measure ../shared/safety/advbench_goals.txt
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image

from models.errors import DataError
from pipeline.copies import closeness, layouts
from pipeline.documents import PICTURES
from pipeline.encoders import ImageEncoder, TextEncoder
from pipeline.images import load
from pipeline.safety.policy import Entry, Policy, edit
from pipeline.safety.variants import CHOOSING, TRANSFORMATIONS, WORDINGS, made_picture, templated

ENTRIES = 200
MOST_ALARMS = 0.005  # half of what is allowed: what the chosen thresholds may give on the data that chooses
STRANGERS, OTHERS = 100_000, 500_000  # first seeds of the strangers, and of the pictures that choose


@dataclass(frozen=True, slots=True)
class Row:
    """A kind of question: how many were asked and how many a policy entry took."""

    kind: str
    asked: int
    hit: int
    harmless: bool = False

    @property
    def share(self) -> float:
        return self.hit / self.asked if self.asked else 0.0

    def __str__(self) -> str:
        return f"{'false' if self.harmless else 'hit'} {self.share:.4f}  ({self.hit} of {self.asked})  {self.kind}"


def measure(
    harmful: Sequence[str],
    harmless: Sequence[str],
    folder: Path,
    text: TextEncoder,
    image: ImageEncoder | None,
    seed: int = 0,
    pictures: Path | None = None,
) -> list[Row]:
    """The rows: one for each kind of rewording, for each transformation of a picture, and the harmless ones.

    Half of the entries are texts, a quarter pictures without words, a quarter both; without an image encoder all are texts. `folder`
    gets the policy and its pictures; `pictures` holds those to use in place of made ones: half for the entries, half as strangers.
    Raises DataError.
    """
    if len(harmful) < ENTRIES * 3 // 4:
        raise DataError(f"{len(harmful)} harmful requests", remedy=f"give {ENTRIES * 3 // 4} or more, one a line")
    rng, half, quarter = Random(seed), ENTRIES // 2, ENTRIES // 4
    texts = rng.sample(list(harmful), min(len(harmful), ENTRIES if image is None else half + quarter))
    entries = [Entry(f"t{i}", query=request) for i, request in enumerate(texts[: ENTRIES if image is None else half])]
    asked = texts[: len(entries)]
    shown, strange = ([], []) if image is None else _pictures(pictures, half, half)
    if shown and len(shown) < half:  # fewer pictures of one's own: fewer entries with one
        quarter = len(shown) // 2
    both = texts[half : half + quarter] if shown else []
    for i, picture in enumerate(shown):
        picture.save(folder / f"{i}.png")
        entries.append(Entry(f"p{i}", query=both[i] if i < len(both) else "", image=f"{i}.png"))
    edit(folder / "policy.jsonl", add=entries)
    policy = Policy(folder / "policy.jsonl", text, image)
    count = len(policy.entries)
    if policy.notice or count != len(entries):
        raise DataError(policy.notice or f"the policy holds {count} entries of {len(entries)}")

    def row(kind: str, questions: Sequence[tuple[str, Sequence[Image.Image]]], harmless: bool = False) -> Row:
        return Row(kind, len(questions), sum(policy.match(words, pictures=seen).blocks for words, seen in questions), harmless)

    worded = {kind: [change(request, i, rng) for i, request in enumerate(texts)] for kind, change in WORDINGS.items()}
    rows = [row(f"{len(asked)} texts, {kind}", [(one, ()) for one in new[: len(asked)]]) for kind, new in worded.items()]
    if shown:
        changed = [change(picture) for picture, change in zip(shown, cycle(TRANSFORMATIONS.values()), strict=False)]
        rows += [
            row(f"{len(both)} texts with a picture, both changed, {kind}", [(new[half + i], [changed[i]]) for i in range(len(both))])
            for kind, new in worded.items()
        ]
        rows += [
            row(f"{len(shown)} pictures alone, half of them of entries with words too, {kind}", [("", [change(p)]) for p in shown])
            for kind, change in TRANSFORMATIONS.items()
        ]
    rows.append(row("harmless questions", [(one, ()) for one in harmless], True))
    if shown:
        rows.append(row("strange pictures alone", [("", [one]) for one in strange], True))
        rows.append(row("harmless questions with strange pictures", list(zip(harmless, ([p] for p in strange), strict=False)), True))
        beside = [(one, [changed[i]]) for i, one in zip(range(len(both)), harmless[::-1], strict=False)]
        rows.append(row("harmless questions with the picture of an entry that has words", beside, True))
    return rows


def _pictures(folder: Path | None, wanted: int, strange: int) -> tuple[list[Image.Image], list[Image.Image]]:
    if folder is None:
        return [made_picture(i) for i in range(wanted)], [made_picture(STRANGERS + i) for i in range(2 * strange)]
    found = [load(path, 512) for path in sorted(folder.rglob("*")) if path.suffix.lower() in PICTURES][: 3 * wanted]
    if len(found) < 8:
        raise DataError(f"holds {len(found)} pictures", where=str(folder), remedy="give eight or more, no two of them alike")
    mine = min(wanted, len(found) // 2)
    Random(0).shuffle(found)  # files of one name are often of one kind
    return found[:mine], found[mine:]


def thresholds(harmful: Sequence[str], harmless: Sequence[str], text: TextEncoder, count: int = 60) -> dict[str, float]:
    """The lowest thresholds with at most MOST_ALARMS false alarms on the data that chooses, and the hits that they give there.

    Words: requests in the templates `CHOOSING`; pictures: made ones of other seeds, the copies of each beside strangers.
    """
    vectors = text.encode(list(harmful))
    alarms = (text.encode(list(harmless)) @ vectors.T).max(1)
    hits = (text.encode([templated(one, i, CHOOSING) for i, one in enumerate(harmful)]) @ vectors.T).max(1)
    pictures = [made_picture(OTHERS + i, 160) for i in range(count)]
    known = layouts(pictures)
    strange = closeness([made_picture(OTHERS + count + i, 160) for i in range(2 * count)], known).max(1)
    copies = np.concatenate([closeness([change(p) for p in pictures], known).diagonal() for change in TRANSFORMATIONS.values()])
    words, seen = (float(np.quantile(rows, 1 - MOST_ALARMS, method="higher")) + 1e-4 for rows in (alarms, strange))
    return {
        "text": round(words, 4),
        "hits of texts": round(float((hits >= words).mean()), 4),
        "picture": round(seen, 4),
        "hits of pictures": round(float((copies >= seen).mean()), 4),
        "lowest copy": round(float(copies.min()), 4),
    }
