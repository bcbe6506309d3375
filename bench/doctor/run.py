"""Runs checks, each alone: what one raises, or that it does not come back, is its own line and stops no other."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.doctor.rows import Asked, Check, Line, refused, unknown
from models.errors import UserError

SIDE_BY_SIDE = 4


@dataclass(frozen=True)
class Result:
    """What one check said, and how long it took."""

    check: Check
    lines: tuple[Line, ...]
    seconds: float


def examine(checks: Sequence[Check], asked: Asked) -> Iterator[Result]:
    """The results in the table's order, each as soon as it and those before it are there; a few checks run side by side."""
    slots = threading.Semaphore(SIDE_BY_SIDE)
    runs = [_Run(check, asked, slots) for check in checks]
    for one in runs:
        yield one.result()


class _Run:
    """One check in a thread of its own; a thread that hangs in a system call is left behind, and its slot goes to another."""

    def __init__(self, check: Check, asked: Asked, slots: threading.Semaphore) -> None:
        self._check, self._asked, self._slots = check, asked, slots
        self._said: queue.Queue[Line | None] = queue.Queue()
        self._begun, self._ended = threading.Event(), 0.0
        self._start = 0.0
        self._given = threading.Lock()
        threading.Thread(target=self._work, name=check.name, daemon=True).start()

    def _work(self) -> None:
        self._slots.acquire()
        self._start = time.monotonic()
        self._begun.set()
        try:
            for line in self._check.run(self._asked):
                self._said.put(line)
        except UserError as error:
            self._said.put(refused(error))
        except ImportError as error:
            self._said.put(unknown(f"could not be tried: {error}", "make setup; the lines on software say more"))
        except BaseException as error:
            self._said.put(unknown(f"the check broke: {type(error).__name__}: {error}", "please report this line"))
        self._ended = time.monotonic()
        self._said.put(None)
        self._free()

    def _free(self) -> None:
        if self._given.acquire(blocking=False):  # once, by whoever comes first
            self._slots.release()

    def result(self) -> Result:
        self._begun.wait()
        lines: list[Line] = []
        deadline = self._start + self._check.seconds
        while True:
            try:
                line = self._said.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                lines.append(unknown(f"no answer within {self._check.seconds:.0f} s", "a disk or a driver may hang: try it by hand"))
                self._free()
                break
            if line is None:
                break
            lines.append(line)
        seconds = (self._ended or time.monotonic()) - self._start
        return Result(self._check, tuple(lines) or (unknown("the check said nothing", "please report this line"),), seconds)
