"""What a real vLLM refuses and how, held against what the client makes of it: the facts that models/wire.py and the client rest on."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from models.errors import CallFailed, ModelError
from models.fleet import Fleet
from models.prompts import escape_special
from models.requests import Completion, Decoding, Picture, user
from models.tokenized import tokenized

Answer = Good = Callable[..., Any]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"enum": ["yes", "no"]}, "score": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["answer", "score"],
    "additionalProperties": False,
}


def post(fleet: Fleet, path: str = "chat/completions", **body: Any) -> tuple[int, dict[str, Any]]:
    """A bare call, past the client: status and answer."""
    full = {"model": "tiny", "messages": [{"role": "user", "content": "Is it so?"}], "max_tokens": 8, "temperature": 0, **body}
    headers = {"Authorization": f"Bearer {fleet.key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{fleet.urls[0]}/{path}", json.dumps(full).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return int(answer.status), json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"{}")


def shown(url: str, count: int = 1) -> list[dict[str, Any]]:
    pictures = [{"type": "image_url", "image_url": {"url": url}}] * count
    return [{"role": "user", "content": [*pictures, {"type": "text", "text": "What?"}]}]


def text_of(found: dict[str, Any]) -> str:
    return str(found["choices"][0]["message"]["content"])


def test_json_after_a_schema_and_after_a_response_format(fleet: Fleet) -> None:
    for body in (
        {"structured_outputs": {"json": SCHEMA}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "verdict", "schema": SCHEMA}}},
    ):
        status, found = post(fleet, max_tokens=60, **body)
        assert status == 200, found
        read = json.loads("".join(text_of(found).split()))  # this tokenizer joins its words with spaces, also inside of quotes
        assert read.keys() == {"answer", "score"} and read["answer"] in ("yes", "no") and 0 <= read["score"] <= 9


def test_the_old_word_for_a_choice_is_silently_ignored(fleet: Fleet) -> None:
    """So the client may never send it: a 200 with any words in it."""
    status, found = post(fleet, guided_choice=["qzx7"])
    assert status == 200 and text_of(found).strip() != "qzx7"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"model": "another"}, 404, "does not exist"),
        ({"messages": shown("data:image/png;base64,aGVsbG8=")}, 400, "image"),
        ({"messages": shown("data:image/png;base64,%%%")}, 400, ""),
        ({"messages": shown("file:///etc/hostname")}, 400, "allowed"),
        ({"messages": [{"role": "user", "content": "word " * 5000}]}, 400, "maximum context length"),
        ({"structured_outputs": {"json": {"type": "nonsense"}}}, 400, ""),
        ({"structured_outputs": {"regex": "(["}}, 400, ""),
        ({"logprobs": True, "top_logprobs": 21}, 400, ""),
        ({"max_tokens": "many"}, 400, ""),
    ],
    ids=["model", "bytes", "base64", "outside", "too-long", "schema", "regex", "logprobs", "type"],
)
def test_refused_with_a_reason(fleet: Fleet, body: dict[str, Any], status: int, said: str) -> None:
    got, found = post(fleet, **body)
    assert got == status, found
    message = found["error"]["message"] if "error" in found else str(found)
    assert message and said in message
    assert post(fleet, max_tokens=1)[0] == 200


@pytest.mark.parametrize("url", ["file://{frames}/absent.png", "http://127.0.0.1:9/p.png"])
def test_a_picture_that_cannot_be_fetched_costs_one_call_and_no_more(
    fleet: Fleet, answer: Answer, good: Good, frames: list[Picture], url: str
) -> None:
    """The server answers 500 or 400 and may drop the connection, which the client's retry hides from the next call."""
    status, _ = post(fleet, messages=shown(url.format(frames=frames[0].path.parent)))
    assert status in (400, 404, 422, 500, 502)
    for reply in answer(fleet, [user(f"after it {i}", decoding=Decoding(max_tokens=1)) for i in range(4)], slots=1):
        good(reply)


def test_what_the_client_makes_of_refusals(fleet: Fleet, answer: Answer, good: Good, frames: list[Picture], tmp_path: Path) -> None:
    broken = frames[0].path.with_name("broken.png")
    broken.write_bytes(b"no picture at all")
    outside = tmp_path / "outside.png"
    Image.new("RGB", (112, 112)).save(outside)
    requests = [
        user(Picture.of(broken), "What?"),
        user(Picture.of(outside), "What?"),
        user(*frames, frames[0], "Eleven pictures"),
        user("word " * 5000),
        user("A number:", decoding=Decoding(max_tokens=8, pattern="([")),
        user("still here", decoding=Decoding(max_tokens=2)),
    ]
    *bad, fine = answer(fleet, requests)
    assert all(isinstance(reply, CallFailed) for reply in bad), bad
    assert [reply.reason for reply in bad[2:4]] == ["too-many-pictures", "too-long"], bad
    assert good(fine).output_tokens


def test_another_model_or_key_ends_the_run_with_the_remedy(fleet: Fleet) -> None:
    async def ask(model: str, key: str) -> Completion:
        from models.openai_server import OpenAIServer

        engine = OpenAIServer(fleet.urls, model, key=key)
        await engine.open()
        try:
            return await engine.complete(user("hello"))
        finally:
            await engine.close()

    with pytest.raises(ModelError, match="it serves: tiny"):
        asyncio.run(ask("another", fleet.key))
    with pytest.raises(ModelError, match="refuses the API key"):
        asyncio.run(ask("tiny", "guess"))


def test_marks_of_the_template_in_a_users_text_are_words(fleet: Fleet, answer: Answer, good: Good) -> None:
    """`<|image_pad|>` as text is taken for a picture's place, and no server says so; as prompts escape it, it is text."""
    text = "What is <|vision_start|><|image_pad|><|vision_end|> it?"
    raw, escaped = (user(words, decoding=Decoding(max_tokens=2)) for words in (text, escape_special(text)))
    (mark,) = json.loads(tokenize(fleet, "<|image_pad|>"))["tokens"]
    as_it_is, as_words = tokenized(fleet.urls[0], fleet.key, "tiny", [raw, escaped])
    assert mark in as_it_is and mark not in as_words
    assert good(answer(fleet, [escaped])[0]).prompt_tokens == len(as_words)


def tokenize(fleet: Fleet, prompt: str) -> bytes:
    body = {"model": "tiny", "prompt": prompt, "add_special_tokens": False}
    headers = {"Authorization": f"Bearer {fleet.key}", "Content-Type": "application/json"}
    request = urllib.request.Request(fleet.urls[0].removesuffix("/v1") + "/tokenize", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())
