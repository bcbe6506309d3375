"""A run that a test kills: scripted server, every call logged when it is sent. python kill_target.py FOLDER"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
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
    """Answers after a moment, so that a kill finds calls under way."""

    digest, name, slots, can_constrain = "slow", "slow", 4, frozenset[str]()

    def __init__(self, folder: Path) -> None:
        self.reply = pond.Oracle(load(folder / "pond").questions, "fish")
        self.log = os.open(folder / "sent.log", os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def check(self, work: object) -> None:
        return

    async def open(self) -> None:
        os.write(self.log, b"open\n")

    async def close(self) -> None:
        return

    async def complete(self, request: Request) -> Completion:
        os.write(self.log, f"{request.key(self.digest)}\n".encode())
        await asyncio.sleep(0.02)
        return Completion(self.reply(request), seconds=0.02)


def main(folder: Path) -> None:
    options = {"data": str(folder / "pond"), "model": "slow", "endpoint": "http://127.0.0.1:9/v1", "prompts": str(folder / "prompts")}
    config = validate({**options, "runs": str(folder / "runs"), "settings": "knowledgeable,vanilla+,perceptive"})
    engine = Slow(folder)
    run_suite("settings", settings_suite(config), config, factory=lambda b, c: engine, cache=folder / "cache")
    print("finished")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
