"""A chat server on the loopback that answers from a table after a set time: what a run costs beside its model is measured against it.

A process of its own, so that its CPU time is not the client's. It knows replies by the digest of the request's bytes, in which marks of
the form ``(#12)`` are left out, so that one table serves any number of copies of a question. Works on at most `slots` calls at once.

    with serving(table, seconds=0.1, slots=64) as url: ...
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

MARK = re.compile(rb" \(#\d+\)")
NAME = "stub"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"


def digest(body: bytes) -> str:
    """What the table knows a request by."""
    return hashlib.blake2b(MARK.sub(b"", body), digest_size=12).hexdigest()


def packed(text: str, prompt_tokens: int = 0) -> bytes:
    """A whole HTTP answer with this reply."""
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": len(text.split()), "prompt_tokens_details": {"cached_tokens": 0}}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()
    return _HEAD % (len(body), body)


class _Desk:
    """Takes calls up in their order, `slots` at once, and answers each after `seconds`."""

    def __init__(self, table: Mapping[str, bytes], seconds: float, slots: int) -> None:
        self.table, self.seconds, self.slots = table, seconds, slots
        self.busy = 0
        self.waiting: deque[tuple[_Line, bytes]] = deque()
        models = json.dumps({"data": [{"id": NAME, "max_model_len": 1_000_000}]}).encode()
        self.models, self.unknown = _HEAD % (len(models), models), packed("None")

    def take(self, line: _Line, body: bytes) -> None:
        answer = self.table.get(digest(body), self.unknown)
        if not self.seconds:
            line.send(answer)
        elif self.busy < self.slots:
            self.begin(line, answer)
        else:
            self.waiting.append((line, answer))

    def begin(self, line: _Line, answer: bytes) -> None:
        self.busy += 1
        asyncio.get_running_loop().call_later(self.seconds, self.end, line, answer)

    def end(self, line: _Line, answer: bytes) -> None:
        self.busy -= 1
        line.send(answer)
        if self.waiting:
            self.begin(*self.waiting.popleft())


class _Line(asyncio.Protocol):
    """One kept-alive connection; one request at a time on it, as clients do."""

    def __init__(self, desk: _Desk) -> None:
        self.desk, self.data = desk, bytearray()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, answer: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(answer)

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.data[:end])
            found = re.search(rb"(?i)content-length: *(\d+)", head)
            size = end + 4 + (int(found[1]) if found else 0)
            if len(self.data) < size:
                return
            body, self.data = bytes(self.data[end + 4 : size]), self.data[size:]
            if head.startswith(b"GET"):
                self.send(self.desk.models)
            else:
                self.desk.take(self, body)


@contextmanager
def serving(table: Mapping[str, str], *, seconds: float = 0.0, slots: int = 64) -> Iterator[str]:
    """The base address of a stub that answers from `table` (digest of a request → reply) while the block lasts."""
    with tempfile.TemporaryDirectory(prefix="stub-") as folder:
        path = Path(folder) / "table.json"
        path.write_text(json.dumps(dict(table)), encoding="utf-8")
        command = [sys.executable, "-m", "bench.speed.stub", str(path), str(seconds), str(slots)]
        root = Path(__file__).resolve().parent.parent.parent
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
            assert process.stdout is not None and process.stdin is not None
            try:
                yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
            finally:
                process.stdin.close()  # it ends when this end is gone, however that came about
                process.wait(10)


async def _serve(table: Mapping[str, bytes], seconds: float, slots: int) -> None:
    loop = asyncio.get_running_loop()
    desk = _Desk(table, seconds, slots)
    server = await loop.create_server(lambda: _Line(desk), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


def _main() -> None:
    path, seconds, slots = sys.argv[1:]
    table = {key: packed(text) for key, text in json.loads(Path(path).read_text(encoding="utf-8")).items()}
    asyncio.run(_serve(table, float(seconds), int(slots)))


if __name__ == "__main__":
    _main()
