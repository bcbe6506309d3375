"""A real HTTP server on the loopback, with the faults that servers have; one thread and loop of its own."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

Reply = dict[str, Any] | web.StreamResponse | bytes | str


class StubServer:
    """Answers chat completions with `answer(body)`: a text, or a response. Remembers every body and how often each came."""

    def __init__(self) -> None:
        self.answer: Callable[[dict[str, Any]], Any] = lambda body: "ok " + text_of(body)
        self.models: Any = {"data": [{"id": "tiny", "max_model_len": 4096}]}
        self.models_status = 200
        self.seconds = 0.0
        self.bodies: list[dict[str, Any]] = []
        self.seen: dict[str, int] = {}
        self.headers: list[Any] = []
        self.busy = self.most_busy = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def _models(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers)
        body = self.models if isinstance(self.models, (str, bytes)) else json.dumps(self.models)
        return web.Response(status=self.models_status, body=body)

    async def _tokenize(self, request: web.Request) -> web.Response:
        word = (await request.json())["prompt"]
        return web.json_response({"tokens": [sum(word.encode())]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(request.headers)
        text = text_of(body)
        self.seen[text] = self.seen.get(text, 0) + 1
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            if self.seconds:
                await asyncio.sleep(self.seconds)
            found = self.answer(body)
            if asyncio.iscoroutine(found):
                found = await found
        finally:
            self.busy -= 1
        if found == "CUT":
            response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "500"})
            await response.prepare(request)
            await response.write(b'{"choices": [{"mess')
            assert request.transport is not None
            request.transport.close()
            return response
        if isinstance(found, web.StreamResponse):
            return found
        return web.json_response(reply(found) if isinstance(found, str) else found)

    def start(self) -> None:
        ready = threading.Event()

        async def serve() -> None:
            app = web.Application(client_max_size=1 << 26)
            app.router.add_get("/v1/models", self._models)
            app.router.add_post("/v1/chat/completions", self._chat)
            app.router.add_post("/tokenize", self._tokenize)
            self._runner = web.AppRunner(app, shutdown_timeout=0.1)
            await self._runner.setup()
            site = web.TCPSite(self._runner, "127.0.0.1", self.port)
            await site.start()
            assert site._server is not None
            self.port = site._server.sockets[0].getsockname()[1]
            self._over = asyncio.Event()
            ready.set()
            await self._over.wait()
            await self._runner.cleanup()

        def run() -> None:
            self._loop = asyncio.new_event_loop()
            self._loop.run_until_complete(serve())
            self._loop.close()

        self._thread = threading.Thread(target=run)
        self._thread.start()
        assert ready.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)


def text_of(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def reply(text: str | None, finish: str = "stop") -> dict[str, Any]:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}], "usage": usage}


@pytest.fixture
def new_server() -> Iterator[Callable[[], StubServer]]:
    made: list[StubServer] = []

    def make() -> StubServer:
        server = StubServer()
        server.start()
        made.append(server)
        return server

    yield make
    for server in made:
        server.stop()
    time.sleep(0)


@pytest.fixture
def server(new_server: Callable[[], StubServer]) -> StubServer:
    return new_server()


@pytest.fixture
def respond() -> Callable[..., web.Response]:
    """Builds a raw HTTP response: respond(status, body, **headers)."""

    def make(status: int, body: str | bytes = "", **headers: str) -> web.Response:
        return web.Response(status=status, body=body, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return make


@pytest.fixture
def make_reply() -> Callable[..., dict[str, Any]]:
    return reply
