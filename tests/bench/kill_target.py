"""A run that a test kills: scripted server, every call logged when it is sent. python kill_target.py FOLDER

What a run needs is imported once; for every number on standard input a process is forked whose server
gives so many replies; its number is printed, then how it
ended. The test kills that process, and nobody waits a second for each start of Python.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
spec = importlib.util.spec_from_file_location("pond", Path(__file__).with_name("conftest.py"))
assert spec is not None and spec.loader is not None
pond = importlib.util.module_from_spec(spec)
sys.modules["pond"] = pond
spec.loader.exec_module(pond)

from bench.config import validate  # noqa: E402
from bench.rows import settings_suite  # noqa: E402
from bench.run import run_suite  # noqa: E402
from kg.load import load  # noqa: E402
from models.requests import Completion, Request  # noqa: E402


class Slow:
    """Answers after a moment, so that a kill finds calls under way; and only so many, so that no run ends before it is killed."""

    digest, name, slots, can_constrain = "slow", "slow", 2, frozenset[str]()

    def __init__(self, folder: Path, replies: int) -> None:
        self.left = replies
        self.reply = pond.Oracle(load(folder / "pond").questions, "fish")
        self.log = os.open(folder / "sent.log", os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def check(self, work: object) -> None:
        return

    async def open(self) -> None:
        os.write(self.log, b"open\n")

    def started(self) -> None:
        os.write(self.log, b"start\n")

    async def close(self) -> None:
        return

    async def complete(self, request: Request) -> Completion:
        os.write(self.log, f"{request.key(self.digest)}\n".encode())
        self.left -= 1
        await asyncio.sleep(0.005 if self.left >= 0 else 3600)
        return Completion(self.reply(request), seconds=0.01)


def main(folder: Path, replies: int) -> None:
    options = {"data": str(folder / "pond"), "model": "slow", "endpoint": "http://127.0.0.1:9/v1", "prompts": str(folder / "prompts")}
    config = validate({**options, "runs": str(folder / "runs")})
    engine = Slow(folder, replies)
    engine.started()
    run_suite("settings", settings_suite(config), config, factory=lambda b, c: engine, cache=folder / "cache")


def forked(folder: Path, replies: int) -> int:
    """The number of a process that does one run; it ends with 0 when the run is finished."""
    number = os.fork()
    if number:
        return number
    code = 1
    try:
        main(folder, replies)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    for line in sys.stdin:
        number = forked(Path(sys.argv[1]), int(line))
        print(number, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]), flush=True)
