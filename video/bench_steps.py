"""One measured step of the benchmark, alone in a fresh process so that its memory and processor time are its own.

Prints one JSON line: wall and CPU seconds of the step without imports, and the peak memory of the process. The only file that knows
OpenCV, the decode-everything baseline. Started by ``bench``; by hand: python -m video.bench_steps uniform CLIP EMPTY_FOLDER
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from video import build, pyav, strategies
from video.digest import content_digest, fingerprint
from video.errors import OptionError
from video.options import FrameOptions

FRAMES = 10


def opencv(clip: Path, folder: Path) -> dict[str, Any]:
    """Decode every frame to BGR, as tools without an index do."""
    import cv2

    reader, count = cv2.VideoCapture(str(clip)), 0
    while reader.read()[0]:
        count += 1
    reader.release()
    return {"frames": count}


def groups(clip: Path, folder: Path) -> dict[str, Any]:
    """Only the groups that ``uniform`` needs, non-reference pictures skipped, nothing scaled or written."""
    index = build.clip_index(folder, clip, "known")
    return {"pictures": pyav.groups_only(clip, index, strategies.uniform(index, FRAMES))}


def nonref(clip: Path, folder: Path) -> dict[str, Any]:
    """The whole clip, non-reference pictures skipped, nothing scaled or written."""
    index = build.clip_index(folder, clip, "known")
    return {"pictures": sum(1 for _ in pyav.reference_frames(clip, index))}


def strategy(name: str, long_side: int = 1024) -> Callable[[Path, Path], dict[str, Any]]:
    """Everything that a first request costs: digest, index, choice, decoding, scaling, JPEG files on disk."""

    def step(clip: Path, folder: Path) -> dict[str, Any]:
        options = FrameOptions(strategy=name, frames=FRAMES, long_side=long_side)
        digest = content_digest(clip, folder / "digests")
        entry = build.clip_entry(folder, f"{digest}-{options.digest()}", clip, digest, fingerprint(clip), options, lambda: None)
        return {"frames": [frame.number for frame in entry.frames], "missing": len(entry.missing), "decoder": entry.decoder}

    return step


STEPS: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "opencv": opencv,
    "groups": groups,
    "nonref": nonref,
    **{name: strategy(name) for name in ("uniform", "content", "content-hq", "fast", "equal")},
}


def main(arguments: list[str]) -> None:
    name, clip, folder = arguments
    if name not in STEPS:
        raise OptionError(f"no step {name!r}", remedy=f"choose one of: {', '.join(STEPS)}")
    if name == "opencv":
        import cv2

        cv2.setNumThreads(2)
    elif name in ("groups", "nonref"):
        build.clip_index(Path(folder), Path(clip), "known")  # the floor does not pay for an index
    wall, used = time.perf_counter(), _cpu()
    found = STEPS[name](Path(clip), Path(folder))
    spent = {"wall": time.perf_counter() - wall, "cpu": _cpu() - used}
    print(json.dumps({"step": name, **spent, "peak_mb": peak_memory(), **found}))


def peak_memory() -> float:
    """Most megabytes (2**20) that this program has had in memory; ``ru_maxrss`` would count the parent's from before the start."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main(sys.argv[1:])
