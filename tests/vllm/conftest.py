"""Real vLLM on a CPU: the marker, the environment of scripts/make_vllm_venv.sh that these tests need, and one server at a time.

Run by `make test-vllm`; a plain `pytest` skips them, so that the suite stays quick. With VLLM_TESTS=required what would be skipped fails.
"""

import asyncio
import os
import socket
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from PIL import Image

from models import processes
from models.engines import ServerEngine
from models.errors import CallFailed
from models.fleet import Fleet, serve
from models.placement import Placement
from models.requests import Completion, Picture, Request
from models.serve_cli import progress
from models.vllm_flags import ServeOptions

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv-vllm"
# Those that share a server follow one another; each of the others starts its own.
ORDER = ("test_server", "test_errors", "test_kill", "test_internvl", "test_offline", "test_bench", "test_ray")
CHECKPOINT = ROOT / "models" / "tiny-qwen2.5-vl"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "vllm: starts real vllm servers on a CPU; minutes (make test-vllm)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = "vllm" in str(config.getoption("markexpr", "")) or any("vllm" in str(arg) for arg in config.args)
    ours = [item for item in items if Path(item.fspath).parent == Path(__file__).parent]
    for item in ours:
        item.add_marker(pytest.mark.vllm)
        if not asked:
            item.add_marker(pytest.mark.skip(reason="starts real vllm servers, which take minutes: make test-vllm"))
    ours.sort(key=lambda item: ORDER.index(Path(item.fspath).stem))
    items[:] = [item for item in items if item not in ours] + ours


@pytest.fixture(scope="session")
def vllm() -> Path:
    """The `vllm` command of the tests' own environment."""
    if not (VENV / "stamp").is_file():
        why = VENV.with_name(f"{VENV.name}.why")
        reason = why.read_text().strip() if why.is_file() else "it has not been built: scripts/make_vllm_venv.sh"
        if os.environ.get("VLLM_TESTS") == "required":
            pytest.fail(f"no {VENV.name}: {reason}")
        pytest.skip(f"no {VENV.name}: {reason}")
    return VENV / "bin" / "vllm"


@pytest.fixture(scope="session")
def vllm_python(vllm: Path) -> Callable[[Path], list[str | Path]]:
    """How to run a script in vllm's environment, with this project and, behind that environment's own packages, this one's."""

    def command(script: Path) -> list[str | Path]:
        text = script.read_text()
        script.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.path.append({sysconfig.get_path('purelib')!r})\n{text}")
        return [vllm.with_name("python"), script]

    return command


@pytest.fixture(scope="session")
def frames(tmp_path_factory: pytest.TempPathFactory) -> list[Picture]:
    """Ten pictures in a folder of their own: the only one that a server may read from."""
    folder = tmp_path_factory.mktemp("frames")
    found = []
    for i in range(10):
        path = folder / f"{i}.png"
        Image.new("RGB", (112, 112), (20 * i, 90, 200 - 10 * i)).save(path)
        found.append(Picture.of(path))
    return found


class OneServer:
    """Keeps the fleet that was asked for last, and ends it before another one starts: these machines have two cores."""

    def __init__(self) -> None:
        self._name, self._fleet = "", None

    def use(self, name: str, make: Callable[[], Fleet]) -> Fleet:
        if self._name != name or self._fleet is None:
            self.end()
            self._name, self._fleet = name, make().__enter__()
        return self._fleet

    def end(self) -> None:
        fleet, self._fleet = self._fleet, None
        if fleet is not None:
            fleet.stop()
            assert [one for one in processes.servers() if one.owner == os.getpid()] == []


@pytest.fixture(scope="session")
def one_server() -> Iterator[OneServer]:
    holder = OneServer()
    yield holder
    holder.end()


@pytest.fixture
def no_server(one_server: OneServer) -> None:
    """The machine is free for what a test starts itself."""
    one_server.end()


@pytest.fixture(scope="session")
def taken_port() -> Iterator[int]:
    """A port that another program listens on; the servers of these tests are told to prefer it."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield int(other.getsockname()[1])


@pytest.fixture
def fleet(one_server: OneServer, vllm: Path, frames: list[Picture], taken_port: int, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """The tiny trained Qwen2.5-VL behind one real server, which may be started again three times."""

    def make() -> Fleet:
        options = ServeOptions("tiny", pictures=10, media=frames[0].path.parent, sequences=32, profiling=True)
        where = Placement(device="cpu", context=2048)
        logs = tmp_path_factory.mktemp("logs")
        return serve(CHECKPOINT, where, options, log_folder=logs, vllm=str(vllm), port=taken_port, restarts=3, tell=progress())

    return one_server.use("qwen", make)


Answer = Callable[..., list[Completion | CallFailed]]


@pytest.fixture(scope="session")
def answer() -> Answer:
    """answer(fleet, requests, slots=32): every reply or failure, in order, all in flight at once."""

    async def all_of(engine: ServerEngine, requests: Sequence[Request]) -> list[Completion | CallFailed]:
        async def one(request: Request) -> Completion | CallFailed:
            try:
                return await engine.complete(request)
            except CallFailed as error:
                return error

        await engine.open()
        try:
            return await asyncio.gather(*map(one, requests))
        finally:
            await engine.close()

    return lambda fleet, requests, slots=32: asyncio.run(all_of(fleet.engine(slots=slots), requests))


@pytest.fixture(scope="session")
def good() -> Callable[[Completion | CallFailed], Completion]:
    """The reply itself; a failure fails the test."""

    def check(reply: Completion | CallFailed) -> Completion:
        assert isinstance(reply, Completion), reply
        return reply

    return check
