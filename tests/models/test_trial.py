"""Before a run: what a server's faults are called when it is asked the first time, and which remedy goes with them."""

from collections.abc import Callable
from typing import Any

import pytest

from models import openai_server
from models.engines import Workload
from models.errors import ModelError
from models.openai_server import OpenAIServer


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_server, "_FIRST_PAUSE", 0.001)


@pytest.mark.parametrize(("status", "remedy"), [(429, "try again later"), (500, "the server's own log"), (503, "the server's own log")])
def test_a_server_that_is_not_well_is_no_wrong_address(server: Any, status: int, remedy: str) -> None:
    server.models_status, server.models = status, '{"error": {"message": "come back on Monday"}}'
    with pytest.raises(ModelError, match=rf"answers {status}: come back on Monday.*{remedy}") as error:
        OpenAIServer([server.url], "tiny").check(Workload())
    assert "/v1 —" not in str(error.value) and "ends in /v1" not in str(error.value)


def pictures_of(body: dict[str, Any]) -> int:
    content = body["messages"][0]["content"]
    return 0 if isinstance(content, str) else sum(part["type"] == "image_url" for part in content)


@pytest.mark.parametrize(
    ("status", "said", "remedy"),
    [
        (500, "cannot do a call of 4 pictures.*mmproj", "own log"),
        (429, "cannot do a call of 4 pictures", "--slots"),
        (400, "refuses 4 pictures in a call", "limit-mm-per-prompt"),
    ],
)
def test_only_a_refusal_is_read_as_a_picture_limit(server: Any, respond: Callable[..., Any], status: int, said: str, remedy: str) -> None:
    def answer(body: dict[str, Any]) -> Any:
        return respond(status, '{"error": {"message": "at least one mmproj"}}', Retry_After="0") if pictures_of(body) else "hello"

    server.answer = answer
    with pytest.raises(ModelError, match=f"{said}.*{remedy}"):
        OpenAIServer([server.url], "tiny").check(Workload(pictures=4))


def test_a_server_that_answers_nothing_is_not_blamed_for_pictures(server: Any, respond: Callable[..., Any]) -> None:
    server.answer = lambda body: respond(500, '{"error": {"message": "EngineCore died"}}')
    with pytest.raises(ModelError, match=r"does not answer a short text: .*EngineCore died") as error:
        OpenAIServer([server.url], "tiny").check(Workload(pictures=4, constraints=frozenset({"choices"})))
    assert "picture" not in str(error.value)
    assert not any(pictures_of(body) for body in server.bodies)


def test_a_constraint_that_a_server_fails_at_is_not_called_missing(server: Any, respond: Callable[..., Any]) -> None:
    server.answer = lambda body: respond(500, "{}") if "structured_outputs" in body else "hello"
    with pytest.raises(ModelError, match=r"does not do choices: .*own log"):
        OpenAIServer([server.url], "tiny").check(Workload(constraints=frozenset({"choices"})))
