"""The room's command line.

    python -m video CLIP [CLIP …] --frames 10 --strategy content --long-side 1024 --out DIR
    python -m video index CLIP        what one demux pass says about a clip
    python -m video bench             the table of docs/video.md for this machine

Knows only how to ask ``FrameStore`` and how to print. Exit code 2 for a mistake that the reader can mend.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from video import store
from video.errors import OptionError, StoreError, VideoError
from video.options import DECODERS, FORMATS, STRATEGIES, FrameOptions, whole
from video.source import FrameSet, FrameStore, Job

OTHERS = """other commands:
  python -m video index CLIP    what one demux pass says about a clip
  python -m video bench         right frames, time, memory and shots, measured on this machine"""

MOST_WORKERS = 256


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["bench"]:
            from video import bench

            return bench.main(given[1:])
        if given[:1] == ["index"]:
            return _index(given[1:])
        return _frames(given)
    except VideoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _frames(given: list[str]) -> int:
    about = "The right few frames of a clip, or a folder of pictures made ready."
    parser = argparse.ArgumentParser(
        prog="python -m video", description=about, epilog=OTHERS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = FrameOptions()
    parser.add_argument("clip", type=_path, nargs="+", help="a clip, or a folder of chosen pictures")
    parser.add_argument("--out", type=_path, required=True, help="new folder for frames and index.json, one per clip")
    parser.add_argument("--strategy", default=default.strategy, help="; ".join(f"{name}: {text}" for name, text in STRATEGIES.items()))
    parser.add_argument("--frames", type=int, default=default.frames, help="most frames of one clip (default %(default)s)")
    parser.add_argument("--long-side", type=int, default=default.long_side, help="pixels (default %(default)s)")
    parser.add_argument("--format", default=default.format, help=", ".join(FORMATS))
    parser.add_argument("--quality", type=int, default=default.quality, help="of JPEG (default %(default)s)")
    parser.add_argument("--decoder", default=default.decoder, help=", ".join(DECODERS))
    parser.add_argument("--timeout", type=float, default=default.timeout, help="seconds a clip may take (default %(default)s)")
    parser.add_argument("--cache", type=Path, default=Path(".cache"), help="the frame store (default %(default)s)")
    parser.add_argument("--data", type=Path, help="refuse files that lie outside this folder once links are followed")
    parser.add_argument("--workers", type=int, help="clips decoded at once (default: one per core)")
    asked = parser.parse_args(given)
    if asked.workers is not None:
        whole("workers", asked.workers, 1, MOST_WORKERS)
    options = FrameOptions(
        strategy=asked.strategy, frames=asked.frames, long_side=asked.long_side, format=asked.format, quality=asked.quality,
        decoder=asked.decoder, timeout=asked.timeout,
    )  # fmt: skip
    places = _places(asked.out, asked.clip)
    jobs = [_job(clip, options) for clip in asked.clip]
    with FrameStore(asked.cache, options, data_root=asked.data, workers=asked.workers) as frames:
        results = _prepared(frames, jobs)
    for result, place in zip(results, places, strict=True):
        if isinstance(result, VideoError):
            print(f"error: {result}", file=sys.stderr)
            continue
        _copy(result, place)
        for path, record in zip(result.paths, result.records, strict=True):
            moment = "" if record.time is None else f"  {record.time:9.3f} s  frame {record.number}"
            print(f"{place / path.name}  {record.width}x{record.height}{moment}{''.join('  ' + flag for flag in record.flags)}")
        for note in result.notes:
            print(f"  {note}", file=sys.stderr)
    return 2 if any(isinstance(result, VideoError) for result in results) else 0


def _path(text: str) -> Path:
    if not text:  # Path("") would be the folder that one stands in
        raise argparse.ArgumentTypeError("an empty text is no path")
    return Path(text)


def _job(clip: Path, options: FrameOptions) -> Job:
    """A folder holds chosen pictures where those are asked for; elsewhere it goes in as the clip that it is not, and is refused."""
    return ([clip], None) if clip.is_dir() and options.strategy == "human" else ((), clip)


def _prepared(frames: FrameStore, jobs: Sequence[Job]) -> list[FrameSet | VideoError]:
    if len(jobs) == 1:
        return frames.prepare(jobs)
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        row = bar.add_task("frames", total=len(jobs))
        return frames.prepare(jobs, progress=lambda done, total: bar.update(row, completed=done, total=total))


def _places(out: Path, clips: Sequence[Path]) -> list[Path]:
    places = [out] if len(clips) == 1 else [out / clip.name for clip in clips]
    if len(set(places)) < len(places):
        raise OptionError("two clips have the same name", where=str(out), remedy="give them one at a time")
    for place in places:
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise OptionError("exists and is not an empty folder", where=str(place), remedy="give --out a new folder")
    return places


def _copy(frames: FrameSet, place: Path) -> None:
    """The store's entry as a folder of its own: under a temporary name first, so that it appears whole or not at all."""
    temporary = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(frames.paths[0].parent, temporary)
        store.sync(temporary)
        if place.exists():
            place.rmdir()
        temporary.rename(place)
    except OSError as error:
        raise StoreError(f"cannot write ({error.strerror})", where=str(place), remedy="free space, or choose another folder") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _index(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m video index", description="What one demux pass says about a clip.")
    parser.add_argument("clip", type=_path)
    clip = parser.parse_args(given).clip
    from video import decoders, pyav

    index = pyav.scan(clip)
    print(repr(index))
    groups = "closed" if index.closed else "open"
    print(f"keyframes: {len(index.keys)}; groups: {groups}; rotation: {index.rotation}°; sample aspect ratio: {index.aspect}")
    print(f"decord by count: {decoders.uncountable(index) or 'proven exact'}")
    for problem in index.problems:
        print(f"problem: {problem}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
