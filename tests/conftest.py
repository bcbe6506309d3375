"""What holds for every test, and the chat server that several rooms' tests ask.

A shell starts what runs in its background with SIGINT ignored, and children inherit that: it is heeded here.
"""

import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)


class ChatServer(ThreadingHTTPServer):
    """An OpenAI-compatible server on the loopback that can do what is asked of a vLLM: chat, /tokenize, /metrics, caches that are emptied.

    `rules` are (words, reply): the first whose words stand in a request's text is told; `answer` may be replaced altogether. A word is
    one token, a text of messages one a letter; of `true` and `false` the one that is replied is the likely one. `asked` holds the texts
    (all messages of a request, a line each), `bodies` the whole requests.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model: dict[str, Any] = {"id": "stub", "max_model_len": 32768}
        self.rules: Sequence[tuple[str, str]] = ()
        self.answer: Callable[[str], str] = lambda text: next(reply for words, reply in self.rules if words in text)
        self.metrics = ""
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.resets = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        text = text_of(body)
        self.asked.append(text)
        self.bodies.append(body)
        reply = self.answer(text)
        rows = [{"token": f"token_id:{sum(word.encode())}", "logprob": -0.1 if word == reply else -3.0} for word in ("true", "false")]
        logprobs = {"content": [{**rows[0], "top_logprobs": rows}]} if body.get("logprobs") else None
        usage = {"prompt_tokens": len(text), "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": len(text) // 2}}
        message = {"role": "assistant", "content": reply}
        return {"choices": [{"message": message, "finish_reason": "stop", "logprobs": logprobs}], "usage": usage}


def text_of(body: dict[str, Any]) -> str:
    contents = [message["content"] for message in body["messages"]]
    return "\n".join(said if isinstance(said, str) else "".join(part.get("text", "") for part in said) for said in contents)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ChatServer

    def do_GET(self) -> None:
        self._send(self.server.metrics.encode() if self.path == "/metrics" else {"data": [self.server.model]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
        if self.path.startswith("/reset"):
            self.server.resets += 1
            self._send({})
        elif self.path.endswith("/tokenize"):
            self._send({"tokens": [ord(letter) for letter in text_of(body)] if "messages" in body else [sum(body["prompt"].encode())]})
        else:
            self._send(self.server.chat(body))

    def _send(self, body: dict[str, Any] | bytes) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    made = ChatServer()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()
