"""The benchmark itself on real vLLM: six settings over 20 questions on two replicas, and the same in this process without a port."""

import asyncio
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.folder import RunFolder
from bench.settings import SETTINGS
from models import processes
from models.fleet import Fleet, serve
from models.journal import Journal
from models.metrics import Watch
from models.placement import Placement
from models.radix import bound
from models.requests import Completion, Decoding, user
from models.tokenized import tokenized
from models.vllm_flags import ServeOptions

ROOT = Path(__file__).parents[2]
CHECKPOINT = ROOT / "models" / "tiny-qwen2.5-vl"
MAIN = """
if __name__ == "__main__":
    import sys
    from bench.__main__ import main
    sys.exit(main(sys.argv[1:]))
"""


def ours() -> set[int]:
    return {pid for one in processes.servers() for pid in one.pids}


@pytest.fixture
def bench(vllm: Path, vllm_python: Any, tmp_path: Path, no_server: None) -> Callable[..., RunFolder]:
    """bench(engine, *options): the sample world's first 20 questions, in vllm's own environment; the run's folder."""

    def start(engine: str, *options: str) -> RunFolder:
        script = tmp_path / "bench_main.py"
        script.write_text(MAIN)
        command = [*vllm_python(script), "run", "--engine", engine, "--gpu", "1", "--set", "served_on=cpu"]
        command += ["--limit", "20", "--judge", "exact", "--prompts", "compact"]
        command += ["--model", CHECKPOINT, "--runs", tmp_path / "runs", *options]
        before = ours()
        done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-4000:])
        (folder,) = [path for path in (tmp_path / "runs").iterdir() if path.name != ".lock"]
        assert ours() <= before, "the run left a server behind"
        return RunFolder(folder)

    return start


def whole(folder: RunFolder, kind: str) -> None:
    """Every setting, every question, no failure, and calls that are keyed by this engine."""
    records = folder.records()
    assert len(records) == 20 * len(SETTINGS)
    assert all(record.ok for record in records.values()), {r.reason for r in records.values() if not r.ok}
    assert folder.manifest()["models"]["agent"]["digest"].startswith(f"{kind}:")
    with Journal(folder.journal, writable=False) as journal:
        assert sum(1 for _ in journal.calls()) > 100


@pytest.mark.parametrize("engine", ["vllm", "vllm-offline", "vllm-ray"])
def test_six_settings_on_20_questions(bench: Any, engine: str) -> None:
    """Through a managed server; in the bench's own process, in lock step and without a port; on a Ray cluster of this machine."""
    whole(bench(engine, *(["--set", "ray=local"] if engine == "vllm-ray" else [])), engine)


def test_two_replicas_share_the_work_and_keep_siblings_together(no_server: None, vllm: Path, tmp_path: Path) -> None:
    """Two small servers: both get questions, and the calls of one question find their prefix in one cache."""
    where = Placement(device="cpu", context=2048, replicas=2)
    options = ServeOptions("tiny", sequences=16, profiling=True)
    with serve(CHECKPOINT, where, options, log_folder=tmp_path, vllm=str(vllm)) as fleet:
        assert len(set(fleet.urls)) == 2
        share(fleet)


def share(fleet: Fleet) -> None:
    short = Decoding(max_tokens=2)
    text = "Here stands what is known of the creature of question {}: it is red, and it has four legs and a long tail. " * 8
    questions = [[user(text.replace("{}", str(q)) + f"Neighbour {k}?", decoding=short) for k in range(8)] for q in range(6)]
    first, rest = [calls[0] for calls in questions], [call for calls in questions for call in calls[1:]]
    engine = fleet.engine(slots=12)

    async def all_of() -> list[Completion]:
        await engine.open()
        try:
            return [*await asyncio.gather(*map(engine.complete, first)), *await asyncio.gather(*map(engine.complete, rest))]
        finally:
            await engine.close()

    with ExitStack() as stack:
        watched = [stack.enter_context(Watch([url], fleet.key)) for url in fleet.urls]
        replies = asyncio.run(all_of())
    asked = [one.counters["prefix_queries"] for one in watched]
    assert min(asked) > 0, asked
    perfect = bound(tokenized(fleet.urls[0], fleet.key, "tiny", [*first, *rest]), 128)
    served = sum(reply.cached_tokens or 0 for reply in replies)
    assert served >= 0.85 * perfect.served, (served, perfect.served, asked)
