"""The linter: everything that is wrong or odd in a data set, in one pass (`python -m kg check DATA`).

What a reader can see while reading is found in kg/load.py; here are the questions that need the whole graph or open a file.
Knows no layout.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from kg.arrays import Array, ArrayGraph
from kg.dataset import Dataset
from kg.findings import Findings
from kg.load import load
from kg.media import PICTURES
from kg.names import fold, unseen

_MISSING = frozenset({"none", "na", "n/a", "#n/a", "nan", "null", "nil"})


def check(folder: Path | str, media: bool = True) -> Dataset:
    """The data set with all findings, errors among them. Raises: DataError when there is nothing that could be checked."""
    dataset = load(folder, strict=False)
    findings = Findings(dataset.folder)
    if isinstance(dataset.graph, ArrayGraph):
        _homonyms(dataset.graph, findings)
        _unreachable(dataset.graph, findings)
        _odd_names(dataset.graph, findings)
        if media:
            _unreadable(dataset, dataset.graph, findings)
    return replace(dataset, findings=(*dataset.findings, *findings.items))


def _homonyms(graph: ArrayGraph, findings: Findings) -> None:
    """Names, and relations, that look alike."""
    for what, columns in (("entity names", ("name",)), ("relations", ("relation",))):
        groups: dict[str, list[int]] = defaultdict(list)
        for number in np.unique(np.concatenate([graph.arrays[c] for c in columns])).tolist():
            groups[fold(graph.text(number))].append(number)
        for numbers in groups.values():
            if len(numbers) > 1:
                spellings = " and ".join(f"{graph.text(n)!r}{_owners(graph, n) if what == 'entity names' else ''}" for n in numbers)
                message = (
                    f"the {what} {spellings} differ only in case, spaces, Unicode form or characters that are not seen; they are kept apart"
                )
                findings.warn("homonym", message)


def _owners(graph: ArrayGraph, name: int) -> str:
    which = np.flatnonzero(graph.arrays["name"] == name)[:3]
    owners = [graph.text(int(graph.arrays["owner"][i])) or "all" for i in which]
    return f" (of {', '.join(owners)}{', …' if len(which) == 3 else ''})"


def reachable(graph: ArrayGraph) -> Array:
    """Which entities some walk from a root ends at: n booleans."""
    seen = np.zeros(len(graph), bool)
    front = np.array(graph.roots, np.int64)
    seen[front] = True
    at, target = graph.arrays["edge_at"], graph.arrays["target"]
    while len(front):
        counts = at[front + 1] - at[front]
        starts = np.repeat(at[front] - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        ends = np.unique(target[starts + np.arange(len(starts))]).astype(np.int64)
        front = ends[~seen[ends]]
        seen[front] = True
    return seen


def _unreachable(graph: ArrayGraph, findings: Findings) -> None:
    for index in np.flatnonzero(~reachable(graph)).tolist():
        entity = graph.entity(index)
        whose = f"of {entity.owner!r}" if entity.owner else "(shared)"
        findings.warn("unreachable", f"no walk from a root leads to the {entity.kind} {entity.name!r} {whose}: no search can find it")


def _odd_names(graph: ArrayGraph, findings: Findings) -> None:
    for number in np.unique(graph.arrays["name"]).tolist():
        name = graph.text(number)
        if name.casefold() in _MISSING:
            message = f"an entity is called {name!r}: it is loaded under that name, but other tools read it as a missing cell"
            findings.warn("name-like-missing", message)
        if unseen(name):
            message = (
                f"an entity is called {name!r}: it holds characters that are not seen, or a line break; type it again if that is a slip"
            )
            findings.warn("unseen-characters", message)


def _unreadable(dataset: Dataset, graph: ArrayGraph, findings: Findings) -> None:
    pictures, clips = set[Path](), set[Path]()
    for number in np.unique(graph.arrays["image"]).tolist():
        pictures.add(graph.folder / graph.text(number))
    for number in np.unique(graph.arrays["video"]).tolist():
        if graph.text(number):
            clips.add(graph.folder / graph.text(number))
    for question in dataset.questions:
        pictures.update(question.images)
        clips.update([question.video] if question.video else [])
    for path in sorted(pictures):
        if (why := _bad_picture(path)) is not None:
            findings.warn("unreadable-media", f"the picture cannot be read: {why}", path)
    for path, why in _bad_clips(sorted(clips)):
        findings.warn("unreadable-media", f"the clip is damaged or cannot be read: {why}", path)


def _bad_picture(path: Path) -> str | None:
    from PIL import Image

    if path.suffix.lower() not in PICTURES:
        return f"{path.suffix or 'no suffix'} is none of {', '.join(sorted(PICTURES))}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as e:
        return str(e).replace(str(path.parent), "…")
    return None


def _bad_clips(paths: Sequence[Path]) -> Iterable[tuple[Path, str]]:
    if not paths:
        return
    from video.errors import VideoError
    from video.pyav import scan

    for path in paths:
        try:
            problems = scan(path).problems
        except VideoError as e:
            yield path, e.what
            continue
        if problems:
            yield path, "; ".join(problems)
