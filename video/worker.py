"""The child process that touches untrusted files: reads one job a line, writes events a line, both JSON.

A plain program rather than a fork or a pickled call: nothing of the parent is shared, and native code that hangs or crashes here takes
one clip with it. Knows the builder only. Started by ``workers``; by hand: echo '{...}' | python -m video.worker
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from video.errors import VideoError
from video.options import FrameOptions

MEMORY = 6 * 2**30  # bytes of address space: a header that lies about its size must not take the machine


def main() -> None:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # native libraries print to standard output when they please
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

    def say(event: str, **fields: Any) -> None:
        out.write(json.dumps({"event": event, **fields}) + "\n")

    last = 0.0

    def beat() -> None:
        nonlocal last
        if (now := time.monotonic()) - last > 0.5:
            last = now
            say("beat")

    say("ready")
    for line in sys.stdin:
        job = json.loads(line)
        try:
            _run(job, say, beat)
            say("done")
        except VideoError as error:
            say("error", **error.to_json())
        except MemoryError:
            what = "needs more memory than a clip may take"
            say("error", kind="DecoderCrashed", what=what, where=job["paths"][0], remedy="scale the clip down first")
        except Exception:  # a bug in this project: its traceback goes to the parent, the clip is lost, the run goes on
            say("bug", text=traceback.format_exc())


def _run(job: dict[str, Any], say: Any, beat: Any) -> None:
    from video import build, store  # imported late, so that the parent hears "ready" at once

    root, key, paths = Path(job["root"]), job["key"], [Path(path) for path in job["paths"]]
    options = FrameOptions(**job["options"])
    with store.locked(root, key):
        say("started")
        if store.read(root, key) is not None:  # another process made it while this one waited
            return
        if job["kind"] == "clip":
            build.clip_entry(root, key, paths[0], job["digest"], job["stamp"], options, beat)
        else:
            build.picture_entry(root, key, paths, options, beat)


if __name__ == "__main__":
    main()
