"""Makes one small clip: `python -m bench.offline.clip FILE`, a step of the video part of `make test-offline`."""

from __future__ import annotations

import sys
from pathlib import Path

from video.make_clips import Recipe, make


def main(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    make(Recipe(path.name, width=320, height=180, fps=30, frames=90, gop=30, shots=(30, 60), preset="ultrafast"), path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
