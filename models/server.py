"""One server process of ours: started, waited for, watched, restarted once, ended with all its children. Knows no vLLM flag.

The process runs under models/watchdog.py in a group of its own; its log goes to a file; its last lines and a hint go into the error.
Models/fleet.py builds the command and keeps one of these for each replica.

Try: python -m models serve FOLDER
"""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from models import environment, log_hints, processes
from models.errors import ModelError
from models.vllm_flags import HOST

_WATCHDOG = Path(__file__).with_name("watchdog.py")
Tell = Callable[[str], None]


class ManagedServer:
    """A server on `host`: 127.0.0.1, but for the nodes of a Ray cluster.

    Args:
        command: builds the argument list for a port.
        log: the file that takes everything the server says; appended to after a restart.
        variables: environment on top of models/environment.py (the key, the GPUs).
        port: preferred port; another is found when it is taken.
        ready_seconds: how long it may take to answer /health.
        grace: seconds between SIGTERM and SIGKILL.
        hang_seconds: a server that answers no /health for so long is ended and counts as crashed.
        restarts: how often a server that was ready is started again after a crash.
        tell: takes progress lines.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        log: Path,
        *,
        variables: Mapping[str, str] | None = None,
        port: int = 0,
        ready_seconds: float = 1800.0,
        grace: float = 15.0,
        hang_seconds: float = 300.0,
        restarts: int = 1,
        tell: Tell | None = None,
        label: str = "server",
        host: str = HOST,
    ) -> None:
        self._command, self._wanted, self._variables = command, port, dict(variables or {})
        self._ready_seconds, self._grace, self._hang = ready_seconds, grace, hang_seconds
        self._restarts_left, self._tell, self.label = restarts, tell or (lambda line: None), label
        self.host = host
        self.log, self.port, self.crashes, self.restarted, self.restarting = log, 0, 0, 0, False
        self.failure: ModelError | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None
        self._output: IO[bytes] | None = None
        self._pid, self._from, self._retries_left = 0, 0, 3
        self._stopping = threading.Event()
        self._letting_go = threading.Lock()  # a descriptor closed twice may be somebody else's by then
        self._watcher: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/v1"

    @property
    def pid(self) -> int:
        """The command's process id, which is its process group too; 0 before the start."""
        return self._pid

    def start(self) -> None:
        """Starts the process and returns at once. Raises ModelError when the command cannot be run or the log not be written."""
        self.port = processes.free_port(self._wanted, self.host)
        self._spawn()

    def _spawn(self) -> None:
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self._output = self.log.open("ab")
        except OSError as error:
            raise ModelError(f"the server's log cannot be written: {error.strerror}", where=str(self.log), remedy="another --log") from None
        self._from = self._output.tell()
        held, self._lifeline = os.pipe()
        reads, report = os.pipe()
        command = list(self._command(self.port))
        try:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-I", str(_WATCHDOG), str(held), str(report), str(self._grace), *command],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=(held, report),
                start_new_session=True,  # Ctrl-C reaches this process only, which then ends the server in order
                env={**environment.environment(self._variables), **processes.mark(self.port)},
            )
        finally:
            os.close(held)
            os.close(report)
        with os.fdopen(reads, "rb") as said:
            self._pid = int(said.readline() or b"0")
        if not self._pid:
            self._watchdog.wait()
            words = log_hints.last_words(self._said(), 1)
            self._release()
            raise ModelError(f"the server cannot be started: {words}", where=command[0], remedy="pip install '.[vllm]', or --vllm PATH")

    def wait(self) -> None:
        """Until /health answers, with a progress line; then the watching begins. Raises ModelError with the last lines and a hint."""
        begun = time.monotonic()
        while not self.healthy():
            seconds = time.monotonic() - begun
            if not self.running:
                if self._retries_left and log_hints.PORT_TAKEN.search(self._said()):  # someone was faster than we: another port
                    self._retries_left -= 1
                    self._end()
                    self.port = processes.free_port(host=self.host)
                    self._spawn()
                    continue
                raise self._error(f"{self.label} ended with {self._code()} after {seconds:.0f} s, before it was ready")
            if seconds > self._ready_seconds:
                self.stop()
                raise self._error(f"{self.label} was not ready after {seconds:.0f} s")
            self._tell(f"{self.label}: {log_hints.stage(self._said())}, {seconds:.0f} s")
            if self._stopping.wait(0.2 if seconds < 5 else 0.5):
                raise self._error(f"{self.label} was stopped before it was ready")
        self._tell(f"{self.label}: ready after {time.monotonic() - begun:.0f} s at {self.url}")
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name=f"watch {self.label}", daemon=True)
            self._watcher.start()

    @property
    def running(self) -> bool:
        return self._watchdog is not None and self._watchdog.poll() is None

    def healthy(self, timeout: float = 2.0) -> bool:
        """Whether /health answers 200 now."""
        if not self.running:
            return False
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def check(self) -> None:
        """Raises the ModelError that ended the server for good, if one did."""
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """Ends the server and all its children; returns when they are gone. May be called twice, and from any thread."""
        self._stopping.set()
        watcher = self._watcher
        if watcher is not None and watcher is not threading.current_thread():
            watcher.join(timeout=self._grace + 10)
        self._end()

    def _end(self) -> None:
        watchdog = self._watchdog
        if watchdog is None:
            return
        self._drop()
        try:
            watchdog.wait(timeout=self._grace + 10)
        except subprocess.TimeoutExpired:
            watchdog.kill()
            watchdog.wait()
        # Should the watchdog have been killed: whatever carries our mark goes with it.
        for one in processes.servers():
            if one.port == self.port and one.owner == os.getpid():
                processes.kill(one.pids, 1.0)
        self._release()

    def let_go(self) -> None:
        """Tells the server to end, and returns at once."""
        self._stopping.set()
        self._drop()

    def _drop(self) -> None:
        with self._letting_go:
            if self._lifeline is not None:
                os.close(self._lifeline)
                self._lifeline = None

    def _release(self) -> None:
        self._drop()
        with self._letting_go:
            if self._output is not None:
                self._output.close()
                self._output = None

    def _watch(self) -> None:
        """Runs in a thread: restarts a server that crashed or hangs, keeps the error when it may not."""
        while not self._stopping.is_set():
            silent = time.monotonic()
            while self.running and time.monotonic() - silent < self._hang:
                if self._stopping.wait(1.0):
                    return
                if self.healthy(timeout=min(30.0, self._hang)):
                    silent = time.monotonic()
            if self._stopping.is_set():
                return
            how = f"did not answer for {self._hang:.0f} s" if self.running else f"ended with {self._code()}"
            error = self._error(f"{self.label} {how} while it was in use")
            self.restarting = self._restarts_left > 0
            self.crashes += 1
            self._end()
            if self._restarts_left < 1:
                self.failure = error
                self._tell(f"{self.label}: {how}, and is not started again")
                return
            self._restarts_left -= 1
            self._tell(f"{self.label}: {how}, started again ({error.remedy or 'see ' + str(self.log)})")
            try:
                self._spawn()
                self.wait()
            except ModelError as again:
                self.failure = again if not self._stopping.is_set() else None
                self.restarting = False
                self._end()
                return
            self.restarted += 1
            self.restarting = False

    def _code(self) -> str:
        code = self._watchdog.poll() if self._watchdog is not None else None
        if code is not None and code < 0:
            return f"its watchdog's signal {-code}"
        if code is not None and code > 128:
            return f"signal {code - 128}" + (" (killed, often for want of main memory)" if code == 137 else "")
        return f"exit code {code}"

    def _said(self) -> str:
        """What the log holds of this start, its last 64 KiB."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(self._from, size - 65_536))
            return file.read().decode("utf-8", "replace")
        return ""

    def _error(self, what: str) -> ModelError:
        said = self._said()
        lines = log_hints.last_words(said)
        return ModelError(f"{what}\n{lines}\n" if lines else what, where=str(self.log), remedy=log_hints.hint(said) or None)

    def __enter__(self) -> ManagedServer:
        try:
            self.start()
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
