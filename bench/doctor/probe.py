"""Makes one small clip and reads it with both decoders: `python -m bench.doctor.probe libx264 h264.mp4`. One JSON line; may crash alone."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

FRAMES = 24


def main(codec: str, name: str) -> dict[str, Any]:
    """`made`: whether there was an encoder; `pyav`, `decord`: what went wrong, empty for nothing."""
    from video.make_clips import Recipe, make

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        options = {"preset": "12"} if codec == "libsvtav1" else {"deadline": "realtime"} if codec == "libvpx-vp9" else {}
        try:
            make(Recipe(name, codec, 320, 180, 30, FRAMES, gop=12, preset="ultrafast", options=options), path)
        except Exception as error:
            return {"made": False, "error": f"{type(error).__name__}: {error}"}
        return {"made": True, **{decoder: _read(path, decoder) for decoder in ("pyav", "decord")}}


def _read(path: Path, decoder: str) -> str:
    from video import decoders, pyav
    from video.geometry import fit
    from video.make_clips import read_number

    seen: dict[int, int] = {}
    try:
        index = pyav.scan(path)
        targets = index.frames
        size = fit(index.width, index.height, index.aspect, index.rotation, 320)

        def take(pts: int, pixels: Any, damaged: bool) -> None:
            seen[index.number[pts]] = -1 if damaged else read_number(pixels)

        outcome = decoders.load(decoder)(path, index, targets, size, take, lambda: None)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if outcome.notes:
        return str(outcome.notes[0])
    wrong = [number for number in range(FRAMES) if seen.get(number) != number]
    return f"frames {wrong[:5]} are not those that were asked for" if wrong else ""


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2])))
