"""Child processes on a leash: start, reuse, watch, end.

A job that makes no progress for ``STALL`` seconds, or takes longer than its own limit, costs its child; so does a crash. Knows no
decoder and no store, only jobs and events (see ``worker``).
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from video.errors import DecoderCrashed, DecodeTimeout, VideoError

STALL = 10.0  # seconds without a sign of life, from the moment that work has begun
START = 120.0  # seconds that a child may take to begin: a loaded machine imports slowly
REUSE = 64  # jobs that one child does before a fresh one takes its place, so that leaks of native code stay small


class Child:
    """One child process. Not thread-safe: a thread borrows it from the pool. Raises VideoError when it cannot be started."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parent.parent)
        search = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": search, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "video.worker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
            )  # fmt: skip
        except OSError as error:
            what = f"a decoder's process cannot be started ({error.strerror})"
            raise VideoError(what, where=sys.executable, remedy="free memory, processes or open files, then run it again") from error
        self._buffer = b""
        self.jobs = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, job: dict[str, Any], timeout: float) -> None:
        """Do one job; returns when it is done.

        Raises:
            DecodeTimeout, DecoderCrashed: this child is gone, make another.
            VideoError: what the job itself found wrong; the child lives.
        """
        self.jobs += 1
        where = str(job["paths"][0])
        try:
            assert self._process.stdin is not None
            self._process.stdin.write((json.dumps(job) + "\n").encode())
            self._process.stdin.flush()
        except OSError:
            raise self._crashed(where) from None
        begun: float | None = None
        heard = time.monotonic()
        first = heard
        while True:
            now = time.monotonic()
            limit = first + START + 2 * timeout if begun is None else min(heard + STALL, begun + timeout)
            event = self._event(limit - now) if now < limit else None
            if event is None:
                if self._process.poll() is not None:
                    raise self._crashed(where)
                self.close()
                stuck = begun is not None and limit < begun + timeout
                what = f"decoding made no progress for {STALL:.0f} s" if stuck else f"decoding took longer than {timeout:g} s"
                raise DecodeTimeout(what, where=where, remedy="check the clip, or raise the time limit (--timeout)")
            heard = time.monotonic()
            match event["event"]:
                case "started":
                    begun = heard
                case "done":
                    return
                case "error":
                    raise VideoError.from_json({key: event[key] for key in ("kind", "what", "where", "remedy")})
                case "bug":
                    last = event["text"].strip().splitlines()[-1]
                    bug = DecoderCrashed(f"failed in an unforeseen way ({last})", where=where, remedy="please report this with the clip")
                    bug.add_note(event["text"])
                    raise bug

    def _event(self, seconds: float) -> dict[str, Any] | None:
        """The next event, or None when time is up or the child has ended."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                piece = os.read(self._process.stdout.fileno(), 65536)
                if not piece:
                    self._process.wait()
                    return None
                self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        event: dict[str, Any] = json.loads(line)
        return event

    def _crashed(self, where: str) -> DecoderCrashed:
        code = self._process.wait()
        self.close()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return DecoderCrashed(f"the decoder's process ended ({how})", where=where, remedy="copy or record the clip again")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End it, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # unsent input of a child that is gone
                    pipe.close()


class Pool:
    """Children that wait for work, so that only the first jobs pay for a start. Thread-safe."""

    def __init__(self) -> None:
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._lock = threading.Lock()
        self._closed = False

    def run(self, job: dict[str, Any], timeout: float) -> None:
        """``Child.run`` in an idle child, or in a new one."""
        with self._lock:
            if self._closed:
                raise VideoError("the frame store is closed", where=str(job["paths"][0]))
            child = self._idle.pop() if self._idle else Child()
            self._busy.add(child)
        try:
            child.run(job, timeout)
        finally:
            with self._lock:
                self._busy.discard(child)
                if child.alive and child.jobs < REUSE and not self._closed:
                    self._idle.append(child)
                else:
                    child.close()

    def rest(self) -> None:
        """End the children that wait for work."""
        with self._lock:
            children, self._idle = self._idle, []
        for child in children:
            child.close()

    def close(self) -> None:
        """End all children, busy ones too: their jobs report a crash."""
        with self._lock:
            self._closed = True
            children = [*self._idle, *self._busy]
            self._idle.clear()
        for child in children:
            child._process.kill()
        for child in children:
            if child not in self._busy:
                child.close()
