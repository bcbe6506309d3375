"""The instance-wise filter: a file of policy entries, each a query or a picture with the response that is due, live while it is edited.

A JSONL row: {"id", "query", "tags": […], "image": "file beside it", "response", "threshold": 0.8 (optional)}; a query or an image is
needed. A question with words has to be like both where an entry has both; a picture alone is enough where no word came with it. Pictures
are alike as copies (pipeline/copies.py) or by the encoder. The file is looked at before every question: an edit counts at once, and one
with an error leaves the old policy in force and says so. Try: python -m pipeline safety policy check POLICY.jsonl
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from models.errors import DataError, UserError
from pipeline.copies import COPY, DIMENSION, closeness, layout
from pipeline.encoders import ImageEncoder, TextEncoder
from pipeline.files import only_writer, replace
from pipeline.images import load
from pipeline.safety.verdicts import REFUSAL, Verdict, told
from pipeline.vectors import Floats

STAGE = "policy entry"
TEXT_THRESHOLD = 0.72  # cosine of two wordings of one request; measured in docs/pipeline.md
BESIDE_PICTURE = 0.25  # that much less is due of words that come with the entry's own picture
IMAGE_THRESHOLD = 0.95  # cosine of the encoder's vectors; strangers of one kind reach 0.91 among a thousand
_KEYS = frozenset({"id", "query", "tags", "image", "response", "threshold"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One row. With a query and an image, both have to be alike, the query then less strictly; a picture without words by itself."""

    id: str
    query: str = ""
    tags: tuple[str, ...] = ()
    image: str = ""
    response: str = REFUSAL
    threshold: float = TEXT_THRESHOLD


def parse(text: str, where: str) -> tuple[Entry, ...]:
    """All rows. Raises DataError naming the line of the first fault."""
    out: dict[str, Entry] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        place = f"{where}:{number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"is not JSON: {error.msg}", where=place, remedy="one object a line") from None
        if not isinstance(row, dict) or set(row) - _KEYS or not row.get("id") or not (row.get("query") or row.get("image")):
            raise DataError("needs an id, and a query or an image", where=place, remedy=f"keys: {', '.join(sorted(_KEYS))}")
        texts = {key: row.get(key, "") for key in ("id", "query", "image")} | {"response": row.get("response", REFUSAL)}
        tags, threshold = row.get("tags", []), row.get("threshold", TEXT_THRESHOLD)
        good = all(isinstance(value, str) for value in texts.values()) and isinstance(tags, list) and all(isinstance(t, str) for t in tags)
        if not good or isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not 0 < threshold <= 1:
            raise DataError("holds a value of the wrong kind", where=place, remedy="texts, a list of tags, a threshold above 0 up to 1")
        if texts["id"] in out:
            raise DataError(f"two entries are called {texts['id']!r}", where=place, remedy="give every entry an id of its own")
        out[texts["id"]] = Entry(**texts, tags=tuple(tags), threshold=float(threshold))
    return tuple(out.values())


@dataclass
class _Loaded:
    stamp: tuple[int, int, int] | None = None
    entries: tuple[Entry, ...] = ()
    texts: Floats = field(default_factory=lambda: np.zeros((0, 1), np.float32))
    bare: Floats = field(default_factory=lambda: np.zeros((0, 1), np.float32))
    pictured: tuple[int, ...] = ()  # entries with a picture: the rows of the next two
    layouts: Floats = field(default_factory=lambda: np.zeros((0, DIMENSION), np.float32))
    images: Floats | None = None  # None without an encoder


class Policy:
    """The policy of a file. `notice` is empty, or says why an edit does not count; a file that is not there holds no entries."""

    def __init__(self, path: Path, text: TextEncoder, image: ImageEncoder | None = None) -> None:
        self.path, self._text, self._image = path, text, image
        self._loaded, self.notice = _Loaded(), ""
        self._refused: tuple[int, int, int] | None = None
        self._known: dict[str, Floats] = {}
        self._seen: dict[tuple[str, int, int], tuple[Floats, Floats | None]] = {}  # of files, by name, time and size

    @property
    def entries(self) -> tuple[Entry, ...]:
        self._refresh()
        return self._loaded.entries

    def match(self, query: str, tags: Sequence[str] = (), pictures: Sequence[Image.Image] = ()) -> Verdict:
        """The verdict of the closest entry; one that does not block when none is close."""
        self._refresh()
        now = self._loaded
        if not now.entries:
            return Verdict(STAGE, 0.0, 1.0, "the policy holds no entry")
        vectors = self._text.encode([told(query, tags), query])
        texts = np.maximum(now.texts @ vectors[0], now.bare @ vectors[1]) if query.strip() or tags else np.zeros(len(now.entries))
        seen = dict(zip(now.pictured, self._pictures(now, pictures), strict=True)) if pictures and now.pictured else {}
        best = Verdict(STAGE, 0.0, 1.0, "no entry is close")
        for i, entry in enumerate(now.entries):
            verdict = self._verdict(entry, float(texts[i]), seen.get(i), bool(query.strip()))
            if verdict.score / verdict.threshold > best.score / best.threshold:
                best = verdict
        return best

    def _pictures(self, now: _Loaded, pictures: Sequence[Image.Image]) -> list[tuple[float, float]]:
        """(score, threshold) of each entry's picture: as a copy, or by the encoder where that is closer to its own threshold."""
        copied = closeness(pictures, now.layouts).max(0).tolist()
        if now.images is None or max(copied, default=1.0) >= COPY:  # the encoder is the slow one, and a copy is settled
            return [(score, COPY) for score in copied]
        alike = (self._image.encode(list(pictures)) @ now.images.T).max(0).tolist() if self._image is not None else copied
        return [max((c, COPY), (a, IMAGE_THRESHOLD), key=lambda row: row[0] / row[1]) for c, a in zip(copied, alike, strict=True)]

    def _verdict(self, entry: Entry, text: float, image: tuple[float, float] | None, worded: bool) -> Verdict:
        if not entry.image:
            return Verdict(STAGE, text, entry.threshold, f"like the request of entry {entry.id!r}", entry.response)
        if image is None or (entry.query and worded and text < entry.threshold - BESIDE_PICTURE):
            return Verdict(STAGE, 0.0, COPY, f"not like entry {entry.id!r}", entry.response)
        return Verdict(STAGE, *image, f"like the picture of entry {entry.id!r}", entry.response)

    def _refresh(self) -> None:
        """Take up an edit. Whatever is wrong with it, the policy in force stays and `notice` says why."""
        try:
            stat = self.path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if stamp in (self._loaded.stamp, self._refused):
                return
            entries = parse(self.path.read_text(encoding="utf-8"), str(self.path))
            self._loaded = self._embed(entries, stamp)
            self._refused, self.notice = None, ""
        except FileNotFoundError:
            if self._loaded.stamp is not None:
                self.notice = f"{self.path}: is gone — the policy read before stays in force"
        except (OSError, UnicodeDecodeError, UserError) as error:
            self._refused = stamp
            self.notice = f"{error} — the policy read before stays in force"

    def _embed(self, entries: tuple[Entry, ...], stamp: tuple[int, int, int]) -> _Loaded:
        wanted = dict.fromkeys(text for e in entries for text in (told(e.query, e.tags), e.query))
        new = [text for text in wanted if text not in self._known]
        self._known = {text: vector for text, vector in self._known.items() if text in wanted}
        self._known |= dict(zip(new, self._text.encode(new), strict=True))
        width = self._text.nature.dimension
        rows = [
            np.array([self._known[t] for t in ts], np.float32).reshape(-1, width)
            for ts in zip(*((told(e.query, e.tags), e.query) for e in entries), strict=True)
        ]
        texts, bare = rows or (np.zeros((0, width), np.float32),) * 2
        pictured = tuple(i for i, entry in enumerate(entries) if entry.image)
        seen = [self._picture(self.path.parent / entries[i].image) for i in pictured]
        files = {str(self.path.parent / entries[i].image) for i in pictured}
        self._seen = {key: value for key, value in self._seen.items() if key[0] in files}
        layouts = np.stack([laid for laid, _ in seen]) if seen else np.zeros((0, DIMENSION), np.float32)
        vectors = [vector for _, vector in seen if vector is not None]
        return _Loaded(stamp, entries, texts, bare, pictured, layouts, np.stack(vectors) if vectors else None)

    def _picture(self, path: Path) -> tuple[Floats, Floats | None]:
        """Layout and vector of an entry's picture, made once a file. Raises BadPicture."""
        stat = path.stat() if path.exists() else None
        key = (str(path), stat.st_mtime_ns if stat else 0, stat.st_size if stat else -1)
        if key not in self._seen:
            picture = load(path)
            self._seen[key] = (layout(picture), self._image.encode([picture])[0] if self._image is not None else None)
        return self._seen[key]


def edit(path: Path, add: Sequence[Entry] = (), remove: Sequence[str] = ()) -> tuple[Entry, ...]:
    """Add, replace (same id) or remove entries; the file is swapped whole. Raises DataError when an id to remove is not there."""
    if not add and not path.exists():  # before the writer's lock would make its folder
        raise DataError(f"is no file, so it holds no entry {', '.join(map(repr, remove))}", where=str(path), remedy="nothing was changed")
    with only_writer(path.parent):
        found = parse(path.read_text(encoding="utf-8"), str(path)) if path.exists() else ()
        rows = {entry.id: entry for entry in found}
        missing = [id_ for id_ in remove if id_ not in rows]
        if missing:
            raise DataError(f"holds no entry {', '.join(map(repr, missing))}", where=str(path), remedy="nothing was changed")
        rows |= {entry.id: entry for entry in add}
        kept = tuple(entry for id_, entry in rows.items() if id_ not in remove)
        lines = [json.dumps({k: v for k in sorted(_KEYS) if (v := getattr(e, k)) not in ("", ())}, ensure_ascii=False) for e in kept]
        parse("\n".join(lines), str(path))
        replace(path, "".join(f"{line}\n" for line in lines).encode())
        return kept
