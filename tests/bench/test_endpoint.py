"""A whole run against a server on the loopback that goes wrong: what each kind of fault costs, and what the user is told."""

from __future__ import annotations

import json
import resource
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.folder import RunFolder


class Server(ThreadingHTTPServer):
    """Answers well; from the call after `well` on as `fault` says."""

    daemon_threads = True
    fault: str = ""
    well: int = 0
    calls: int = 0

    def handle_error(self, *_: object) -> None:
        """A client that left is no matter."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: object) -> None: ...

    def answer(self, code: int, body: object, length: int | None = None) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length or len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self.answer(200, {"data": [{"id": "m", "max_model_len": 100_000}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.calls += 1
        fault = self.server.fault if self.server.calls > self.server.well else ""
        content: object = "Yes" if fault != "null" else None
        bodies = {"html": b"<html>Log in</html>", "no choices": {"choices": []}, "a list": [1], "half": b'{"choi'}
        if fault.isdigit():
            self.answer(int(fault), {"error": {"message": "so it is"}})
        elif fault in bodies:
            self.answer(200, bodies[fault])
        elif fault == "cut":
            self.answer(200, b'{"choices"', length=500)
            self.close_connection = True
        elif fault == "hangs up":
            self.close_connection = True
        elif fault == "slow":
            threading.Event().wait(5)
        else:
            self.answer(200, {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]})


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def ask(server: Server, pond: Path, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    words = ["run", "--data", str(pond), "--model", "m", "--endpoint", url, "--prompts", str(prompts), "--judge", "exact"]
    return lambda *more: main([*words, "--settings", "vanilla+", "--slots", "1", "--timeout", "1", *more])


def only_run() -> RunFolder:
    return RunFolder(next(path for path in Path("runs").iterdir() if path.is_dir()))


@pytest.mark.parametrize("fault", ["400", "429", "500", "503", "html", "no choices", "a list", "half", "cut", "hangs up", "slow"])
def test_a_fault_loses_its_samples_only_and_is_counted(
    fault: str, server: Server, ask: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    server.well, server.fault = 2, fault
    assert ask() == 0
    records = only_run().records().values()
    assert [r.ok for r in records].count(True) == 2 and len(records) == 4
    assert "2 samples failed; --retry asks them again." in capsys.readouterr().out
    server.fault = ""
    assert ask("--retry") == 0
    assert all(r.ok for r in only_run().records().values())


@pytest.mark.parametrize("fault", ["401", "403", "404"])
def test_a_fault_that_would_meet_every_call_ends_the_run_and_keeps_what_came(
    fault: str, server: Server, ask: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    server.well, server.fault = 2, fault
    assert ask() == 2
    said = capsys.readouterr().err
    assert said.startswith("error: http://127.0.0.1") and fault in said and " — " in said and said.count("\n") == 1
    server.fault, before = "", server.calls
    assert ask() == 0
    assert len(only_run().records()) == 4 and server.calls == before + 2


@pytest.mark.parametrize("kilobytes", [0, 1, 16, 40, 60])
def test_a_disk_that_is_full_is_one_message_and_the_run_goes_on_from_there(
    kilobytes: int, ask: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024, hard))  # no file may grow beyond
    try:
        code = ask()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said = capsys.readouterr().err
    assert code == 2 and said.startswith("error: ") and said.count("\n") == 1
    assert not list(Path("runs").rglob("*.part"))
    assert ask() == 0
    assert len(only_run().samples.read_text().splitlines()) == 4 and all(r.ok for r in only_run().records().values())
