"""kill -9 while a bundle is unpacked and installed, at random moments, then once to the end: a whole tree, or nothing under its name."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench.sealed.pack import Contents
from bench.sealed.unpacker.check import verify
from bench.sealed.unpacker.copying import Copier
from bench.sealed.unpacker.manifest import read_bundle

KILLS = 8


def test_unbundle_killed_at_random_moments_ends_right(bundle: Path, contents: Contents, tmp_path: Path) -> None:
    to = tmp_path / "there"
    command = [sys.executable, str(bundle / "unbundle.pyz"), "--to", str(to)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    draw, wanted = random.Random(7), {item.path for item in contents.items}
    whole = 0
    # the moments are spread over what one run takes; where they fall differs with the machine, what must hold does not
    for number in range(KILLS):
        process = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **quiet)  # type: ignore[call-overload]
        time.sleep(draw.uniform(0.05, 0.6) if number < KILLS // 2 else draw.uniform(0.3, 2.5))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if to.exists():
            whole += 1
            there = {one.relative_to(to).as_posix() for one in to.rglob("*") if one.is_file()}
            assert wanted <= there, "half a tree stands under the target's name"
            if (to / ".venv/.ready").exists():
                assert _works(to)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert _works(to)
    assert subprocess.run([*command[:2], "--verify", "--to", str(to)], cwd=tmp_path, capture_output=True).returncode == 0
    assert not [one.name for one in tmp_path.iterdir() if "unbundling" in one.name]


def test_bundle_killed_at_random_moments_ends_right(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    draw = random.Random(11)
    for number in range(24):
        (data / f"{number}.bin").write_bytes(draw.randbytes(1 << 20 if number % 2 else 100_000))
    command = [sys.executable, str(Path(__file__).with_name("write_target.py")), str(out), str(data)]
    for _ in range(4):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begun = time.monotonic()
        while not list(out.glob("volume-*/*")) and process.poll() is None and time.monotonic() - begun < 60:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.3))
        process.kill()
        process.wait()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    bundle = read_bundle([out])
    assert verify(bundle, Copier()) == []
    assert {row["path"] for row in bundle.held["files"]} >= {f"carried/data/x/{number}.bin" for number in range(24)}


def _works(to: Path) -> bool:
    said = subprocess.run([str(to / ".venv/bin/python"), "-c", "import torch, heron; print(heron.wings)"], capture_output=True, text=True)
    return said.stdout == "2\n"
