"""kill -9 in the middle of a run, and what a run leaves behind: no call is lost, and nothing stays."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from models import processes
from models.agents import Call, Episode, ask
from models.drivers import run
from models.errors import ModelError, RunError
from models.fleet import Fleet, serve
from models.journal import Journal
from models.placement import Placement
from models.requests import Decoding, Picture, user

ROOT = Path(__file__).parents[2]
CHECKPOINT = ROOT / "models" / "tiny-qwen2.5-vl"
PERSONA = "You are a careful observer of creatures. Answer with one name and nothing else. " * 5


def question(name: str, frames: list[Picture]) -> Episode[str]:
    (topic,) = yield from ask([Call("agent", "topic", user(PERSONA, f"Question {name}", decoding=Decoding(max_tokens=6)), str)])
    kinds = [user(*frames[:2], PERSONA, f"Question {name}, {k}", decoding=Decoding(max_tokens=6)) for k in range(3)]
    yield from ask([Call("agent", "expand", request, str, 1) for request in kinds])
    return topic


def until(done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def of_port(port: int) -> set[int]:
    return {pid for one in processes.servers() if one.port == port for pid in one.pids}


def api_server(fleet: Fleet) -> int:
    return fleet.servers[0].pid


def engine_process(fleet: Fleet) -> int:
    """vLLM's EngineCore, or the worker below it: a process that the API server has started."""
    words = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in of_port(fleet.servers[0].port) - {api_server(fleet)}}
    return max(pid for pid, word in words.items() if "EngineCore" in word or "Worker" in word)


@pytest.mark.parametrize("victim", [api_server, engine_process])
def test_a_killed_process_mid_run_loses_no_call(
    fleet: Fleet, frames: list[Picture], tmp_path: Path, victim: Callable[[Fleet], int]
) -> None:
    """The server is started again on its port, nothing of the old one is left, and the same run goes on to its end."""
    server = fleet.servers[0]
    before, crashes, restarted = of_port(server.port), server.crashes, server.restarted
    finished: list[str] = []

    def kill(sample: str, _outcome: object) -> None:
        finished.append(sample)
        if len(finished) == 3:
            os.kill(victim(fleet), signal.SIGKILL)

    with Journal(tmp_path / "journal.sqlite") as journal:
        source = ((f"k{i}", question(f"{victim.__name__} {i}", frames)) for i in range(40))
        outcomes = run(source, {"agent": fleet.engine(slots=8)}, journal, on_done=kill)
        assert server.crashes == crashes + 1
        assert len(outcomes) == 40 and all(outcome.ok for outcome in outcomes.values()), outcomes
        assert len({record.key for record in journal.calls()}) == 160
    assert server.restarted == restarted + 1 and before.isdisjoint(of_port(server.port))
    assert all(processes.started(pid) is None for pid in before)


RUN = """
import os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
sys.path.insert(0, {here!r})
from test_kill import question, run, Journal, Decoding
from models.openai_server import OpenAIServer
from models.requests import Picture

frames = [Picture.of(path) for path in sorted(Path({frames!r}).glob("[0-9].png"))]
engine = OpenAIServer([{url!r}], "tiny", key=os.environ["MODEL_API_KEY"], identity="tiny", slots=4, file_urls=True)
with Journal(Path({journal!r})) as journal:
    outcomes = run(((f"r{{i}}", question(f"resumed {{i}}", frames)) for i in range(24)), {{"agent": engine}}, journal)
    print("done", len(outcomes), all(o.ok for o in outcomes.values()), sum(o.reused for o in outcomes.values()), flush=True)
"""


def test_kill_9_of_the_run_itself_and_the_same_command_again(fleet: Fleet, frames: list[Picture], tmp_path: Path) -> None:
    """What had come back is not asked again: the second start reuses it and ends like a run that was never killed."""
    journal, folder = tmp_path / "journal.sqlite", frames[0].path.parent
    here = str(Path(__file__).parent)
    code = RUN.format(root=str(ROOT), here=here, frames=str(folder), url=fleet.urls[0], journal=str(journal))
    environment = {**os.environ, "MODEL_API_KEY": fleet.key}
    first = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL)

    def answered() -> int:
        try:
            with Journal(journal, writable=False) as read:
                return sum(1 for _ in read.calls())
        except RunError:  # not there yet, or still being laid out
            return 0

    until(lambda: first.poll() is not None or answered() >= 20, 120)
    first.kill()
    assert first.wait() == -signal.SIGKILL, "it was over before it could be killed"
    kept = answered()
    assert 20 <= kept < 96
    again = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=True)
    word, count, fine, reused = again.stdout.split()
    assert (word, count, fine) == ("done", "24", "True") and int(reused) >= kept
    assert answered() == 96


def test_a_stale_server_is_told_and_ended(vllm: Path, no_server: None, tmp_path: Path) -> None:
    """`python -m models serve`, its owner and its watchdog killed at once: vLLM's engine stays alive, and the next start says so."""
    log = (tmp_path / "out").open("w+")
    command = [sys.executable, "-m", "models", "serve", CHECKPOINT, "--device", "cpu", "--context", "2048", "--vllm", vllm]
    owner = subprocess.Popen([*command, "--log", tmp_path / "logs"], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    mine = lambda: [one for one in processes.servers() if one.owner == owner.pid]  # noqa: E731
    try:
        until(lambda: "key " in (tmp_path / "out").read_text() or owner.poll() is not None, 400)
        assert owner.poll() is None, (tmp_path / "out").read_text()
        (found,) = mine()
        watchdog = min(found.pids)
        assert "watchdog" in Path(f"/proc/{watchdog}/cmdline").read_text()
        for pid in (owner.pid, watchdog):
            os.kill(pid, signal.SIGKILL)
        owner.wait()
        time.sleep(2)
        (left,) = mine()  # the API server went with the watchdog, its engine did not
        assert left.stale and watchdog not in left.pids
        with pytest.raises(ModelError, match=rf"left behind on port {left.port}.*--end-stale"):
            serve(CHECKPOINT, Placement(device="cpu", context=2048), log_folder=tmp_path / "logs", vllm=str(vllm))
        ended = subprocess.run(
            [sys.executable, "-m", "models", "serve", "--end-stale"], cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        assert ended.returncode == 0 and f"port {left.port}" in ended.stdout
        assert mine() == [] and all(processes.started(pid) is None for pid in left.pids)
    finally:
        owner.kill()
        owner.wait()
        for one in mine():
            processes.kill(one.pids, 5)
        log.close()
