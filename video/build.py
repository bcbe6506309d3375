"""Makes one entry of the frame store: a clip or a set of pictures in, written frames out. Runs in the child process.

The order of work reads top to bottom in ``clip_entry``: index, choose, decode, write. Knows the store's layout and the decoders'
protocol, no codec library. Try: python -m video CLIP --out DIR
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from video import decoders, pictures, store, strategies
from video.decoders import Beat, Emit, Outcome, Pixels
from video.digest import fingerprint, write_atomically
from video.errors import ClipError, NothingDecoded
from video.geometry import Fit, fit
from video.index import ClipIndex
from video.options import FrameOptions
from video.store import Entry, FrameRecord


def clip_entry(root: Path, key: str, path: Path, digest: str, stamp: Sequence[int], options: FrameOptions, beat: Beat) -> Entry:
    """Decode the chosen frames of one clip into the store; the caller holds the entry's lock.

    Args:
        digest, stamp: the clip's content digest, and its size and times when that was taken.
        beat: called often while there is progress.

    Raises:
        VideoError: nothing of the clip can be used; partial results come back as an entry that says what is missing.
    """
    index = clip_index(root, path, digest, beat)
    strategy = options.fallback if options.strategy == "human" else options.strategy
    shape = fit(index.width, index.height, index.aspect, index.rotation, options.long_side)
    with store.building(root, key) as place:
        written: dict[int, FrameRecord] = {}

        def emit(pts: int, pixels: Pixels, damaged: bool) -> None:
            damaged = damaged or pts in index.shaky
            name = f"part{len(written):04d}{options.suffix}"
            count = store.put(place, name, pictures.encode(pixels, options.format, options.quality))
            flags = ("damaged",) if damaged else ()
            high, wide = pixels.shape[:2]
            written[pts] = FrameRecord(name, count, wide, high, path.name, round(index.seconds(pts), 6), index.number[pts], pts, flags)

        chosen, outcome, decoder, reason = _decode(path, index, strategy, options, shape, emit, beat)
        if fingerprint(path) != list(stamp):
            raise ClipError("changed while it was being read", where=str(path), remedy="run again when it is no longer written to")
        if not written:
            what = f"none of the {len(chosen)} wanted frames could be decoded" + "".join(f"; {text}" for text in index.problems)
            raise NothingDecoded(what, where=str(path), remedy="copy or record the clip again")
        outcome.damaged |= written.keys() & index.shaky
        frames = []
        for number, pts in enumerate(sorted(written), 1):
            name = f"{number:04d}{options.suffix}"
            (place / written[pts].file).rename(place / name)
            frames.append(FrameRecord(**{**vars(written[pts]), "file": name}))
        missing = tuple(round(index.seconds(pts), 6) for pts in chosen if pts not in outcome.found)
        notes = _notes(path, index, options, chosen, outcome, missing)
        entry = Entry(path.name, strategy, decoder, reason, tuple(frames), missing, notes)
        store.put(place, "index.json", entry.to_json().encode())
    return entry


def picture_entry(root: Path, key: str, paths: Sequence[Path], options: FrameOptions, beat: Beat) -> Entry:
    """Bring still pictures, in the order given, into the store; the caller holds the entry's lock."""
    kept = strategies.thinned(paths, options.frames)
    frames = []
    with store.building(root, key) as place:
        for number, path in enumerate(kept, 1):
            beat()
            pixels = pictures.read(path, options.long_side, options.colour)
            name = f"{number:04d}{options.suffix}"
            count = store.put(place, name, pictures.encode(pixels, options.format, options.quality))
            frames.append(FrameRecord(name, count, pixels.shape[1], pixels.shape[0], path.name))
        thin = (f"{len(paths)} pictures, {len(kept)} kept, evenly spread",) if len(kept) < len(paths) else ()
        entry = Entry(paths[0].parent.name, "human", "pillow", "still pictures", tuple(frames), (), thin)
        store.put(place, "index.json", entry.to_json().encode())
    return entry


def clip_index(root: Path, path: Path, digest: str, beat: Beat = lambda: None) -> ClipIndex:
    """The clip's index, from the store when its content was seen before."""
    cached = root / "index" / f"{digest}.json"
    try:
        return ClipIndex.from_json(cached.read_text())
    except (OSError, ValueError, TypeError):
        from video import pyav

        index = pyav.scan(path, beat)
        write_atomically(cached, index.to_json().encode())
        return index


def _decode(
    path: Path, index: ClipIndex, strategy: str, options: FrameOptions, shape: Fit, emit: Emit, beat: Beat
) -> tuple[tuple[int, ...], Outcome, str, str]:
    """(chosen timestamps, what came back, decoder, reason)."""
    if strategy == "content-hq" and len(index.frames) > options.frames:
        from video.survey import survey

        chosen, outcome = survey(path, index, options.frames, shape, emit, beat)
        more = tuple(pts for pts in strategies.topped_up(index, chosen, options.frames) if pts not in chosen)
        if more:
            rest = decoders.load("pyav")(path, index, more, shape, emit, beat)
            outcome = Outcome(outcome.found | rest.found, outcome.damaged | rest.damaged, outcome.notes + rest.notes)
        return tuple(sorted(chosen + more)), outcome, "pyav", "frames are taken from the pass that chooses them"
    everything = len(index.frames) <= options.frames and strategy != "equal"
    chosen = index.frames if everything else strategies.STRATEGIES[strategy](index, options.frames)
    name, reason = decoders.choose(index, chosen, options.decoder)
    return chosen, decoders.load(name)(path, index, chosen, shape, emit, beat), name, reason


def _notes(
    path: Path, index: ClipIndex, options: FrameOptions, chosen: Sequence[int], outcome: Outcome, missing: Sequence[float]
) -> tuple[str, ...]:
    notes = []
    if options.strategy == "human":
        notes.append(f"{path.name} has no chosen pictures: {options.fallback} was used")
    if len(index.frames) < options.frames:
        notes.append(f"{path.name} has {len(index.frames)} frames, {options.frames} were asked for: each is given once")
    if missing:
        notes.append(f"{path.name}: {len(missing)} of {len(chosen)} frames missing, at {_times(missing)}")
    if outcome.damaged:
        doubtful = _times([index.seconds(pts) for pts in sorted(outcome.damaged)])
        notes.append(f"{path.name}: {len(outcome.damaged)} frames may be damaged, at {doubtful}")
    return (*notes, *(f"{path.name}: {text}" for text in (*index.problems, *outcome.notes)))


def _times(seconds: Sequence[float]) -> str:
    shown = ", ".join(f"{second:.3f}" for second in seconds[:8])
    return f"{shown}{' …' if len(seconds) > 8 else ''} s"
