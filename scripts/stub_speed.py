"""How much faster than one call at a time: the real questions in `perceptive` against a stub that answers after 100 ms, 64 slots.

    MH_BENCH=../shared/mh_bench python3 scripts/stub_speed.py      (from the root, with the environment's Python)

The replies are an oracle's. One call at a time is calls × 0.1 s; the driver, journal, search and records run for real.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "bench")]
DELAY = 0.1


class Stub:
    """A server engine whose replies take DELAY seconds each, however many are asked at once (up to its slots)."""

    name = digest = "stub"
    slots = 64
    can_constrain: frozenset[str] = frozenset()

    def __init__(self, oracle: Any) -> None:
        self.oracle, self.calls = oracle, 0

    def check(self, work: object) -> None: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def complete(self, request: Any) -> Any:
        from models.requests import Completion

        self.calls += 1
        await asyncio.sleep(DELAY)
        return Completion(self.oracle(request), seconds=DELAY)


def main() -> None:
    import conftest  # the tests' oracle

    from bench.config import validate
    from bench.rows import settings_suite
    from bench.run import run_suite
    from kg.load import load

    data = os.environ.get("MH_BENCH", str(ROOT.parent / "shared" / "mh_bench"))
    with tempfile.TemporaryDirectory() as folder:
        prompts = conftest.write_prompts(Path(folder) / "prompts")
        stub = Stub(conftest.Oracle(load(data).questions, "monster"))
        options = {"data": data, "model": "stub", "endpoint": "http://127.0.0.1:9/v1", "prompts": str(prompts), "judge": "exact"}
        config = validate({**options, "runs": folder + "/runs", "settings": "perceptive"})
        wall, cpu = time.monotonic(), time.process_time()
        run_suite("stub", settings_suite(config), config, factory=lambda backend, config: stub, cache=Path(folder) / "cache")
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    print(f"{stub.calls} calls in {wall:.2f} s ({cpu:.2f} s of CPU): {stub.calls * DELAY / wall:.1f} times faster than one call at a time")


if __name__ == "__main__":
    main()
