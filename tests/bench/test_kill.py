"""kill -9 at twenty random moments of a run, then finish: nothing lost, nothing doubled, no finished call repeated.

A data set with pictures, four settings (searching, looking, captioning), and a scripted slow server that notes what it is asked. The
moments are drawn from a seed, from before the first call to the judging, so that kills fall into every step.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.folder import latest

TARGET = Path(__file__).with_name("kill_target.py")
KILLS, SEED = 20, 5
SETTINGS, QUESTIONS = 6, 4


class Run:
    """The run that is killed: what was sent so far, and what is journalled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(TARGET), str(folder)]
        self.nursery = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def start(self, replies: int = 10**6) -> int:
        assert self.nursery.stdin is not None
        self.nursery.stdin.write(f"{replies}\n")
        self.nursery.stdin.flush()
        return int(self._line())

    def ended(self) -> int:
        """How the process that was started last ended, waited for."""
        return int(self._line())

    def _line(self) -> str:
        assert self.nursery.stdout is not None
        return self.nursery.stdout.readline()

    @property
    def sent(self) -> list[str]:
        log = self.folder / "sent.log"
        return log.read_text().splitlines() if log.exists() else []

    @property
    def calls(self) -> list[str]:
        return [line for line in self.sent if line not in ("start", "open")]

    @property
    def journalled(self) -> set[str]:
        paths = list((self.folder / "runs").glob("*/journal.sqlite"))
        if not paths:
            return set()
        with closing(sqlite3.connect(paths[0])) as db:
            made = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'calls'").fetchone()
            return {key for (key,) in db.execute("SELECT key FROM calls")} if made else set()


@pytest.fixture
def run(pond: Path, prompts: Path, tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    made.nursery.kill()
    made.nursery.communicate()


def test_killed_twenty_times_and_finished(run: Run) -> None:
    rng = random.Random(SEED)
    landed: list[int] = []
    for _ in range(KILLS):
        done, before, asked = run.journalled, len(run.sent), len(run.calls)
        replies = rng.choice((0, 1, 2, 3, 5, 7))
        number = run.start(replies)
        # Killed at any moment up to when all replies that it may get are on their way, journalled or not, and it waits for the next.
        aim, pause = rng.choice((0, replies, replies + 1)), rng.uniform(0, 0.06)
        until = time.monotonic() + 60
        while (len(run.sent) == before or len(run.calls) < asked + aim) and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(pause)
        os.kill(number, signal.SIGKILL)
        assert run.ended() == -signal.SIGKILL
        again = done & set(run.sent[before:])
        assert not again, f"{len(again)} finished calls were sent again"
        landed.append(len(run.journalled))
    assert landed == sorted(landed) and len(set(landed)) >= 3, landed  # what is journalled stays; kills fell at several places

    done, before = run.journalled, len(run.sent)
    run.start()
    assert run.ended() == 0
    assert not done & set(run.sent[before:])
    folder = latest(run.folder / "runs")
    assert len(list((run.folder / "runs").glob("*_settings_*"))) == 1
    lines = folder.samples.read_text().splitlines()
    assert len(lines) == len(folder.records()) == SETTINGS * QUESTIONS and all(record.ok for record in folder.records().values())
    judged = folder.scores()
    assert judged is not None and len(judged["scores"]) == SETTINGS * QUESTIONS
    assert all(score.value is not None for score in judged["scores"].values())
    assert run.journalled == set(run.calls)  # every call that was ever sent has a row in the end, and nothing else has

    before = len(run.sent)
    run.start()
    assert run.ended() == 0
    assert [line for line in run.sent[before:] if line not in ("start", "open")] == []
