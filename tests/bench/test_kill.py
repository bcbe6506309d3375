"""kill -9 while a run goes on, again and again, then finish: nothing lost, nothing doubled, no finished call repeated."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from bench.folder import latest

TARGET = Path(__file__).with_name("kill_target.py")
KILLS = 3


def _sent(folder: Path) -> list[str]:
    log = folder / "sent.log"
    return log.read_text().splitlines() if log.exists() else []


def _journalled(folder: Path) -> set[str]:
    paths = list((folder / "runs").glob("*/journal.sqlite"))
    if not paths:
        return set()
    with sqlite3.connect(paths[0]) as db:
        return {key for (key,) in db.execute("SELECT key FROM calls")}


def test_killed_and_finished(pond: Path, prompts: Path, tmp_path: Path) -> None:
    rng = random.Random(5)
    for _ in range(KILLS):
        done, before = _journalled(tmp_path), len(_sent(tmp_path))
        child = subprocess.Popen([sys.executable, str(TARGET), str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        moment = before + rng.randint(4, 14)
        while child.poll() is None and len(_sent(tmp_path)) < moment:
            time.sleep(0.005)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert not done & set(_sent(tmp_path)[before:])
    done, before = _journalled(tmp_path), len(_sent(tmp_path))
    last = subprocess.run([sys.executable, str(TARGET), str(tmp_path)], capture_output=True, text=True, check=False)
    assert last.stdout == "finished\n", last.stderr
    assert not done & set(_sent(tmp_path)[before:])
    folder = latest(tmp_path / "runs")
    assert len(list((tmp_path / "runs").glob("*_settings_*"))) == 1
    lines = folder.samples.read_text().splitlines()
    assert len(lines) == len(folder.records()) == 3 * 4
    judged = folder.scores()
    assert judged is not None and len(judged["scores"]) == 12 and all(s.value is not None for s in judged["scores"].values())
    assert len(_journalled(tmp_path)) == len({key for key in _sent(tmp_path) if key != "open"})
