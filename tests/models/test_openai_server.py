"""The client against a real server on the loopback, with the faults that real servers have."""

import asyncio
import json
import socket
from pathlib import Path

import pytest

from models.engines import ServerEngine, Workload
from models.errors import CallFailed, ModelError
from models.openai_server import OpenAIServer
from models.requests import Decoding, Picture, user


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("models.openai_server._FIRST_PAUSE", 0.001)


def ask(engine, *requests):
    """All at once; a failed call is returned, not raised."""

    async def main():
        await engine.open()
        try:
            return await asyncio.gather(*(engine.complete(r) for r in requests), return_exceptions=True)
        finally:
            await engine.close()

    return asyncio.run(main())


def test_a_call(server):
    engine = OpenAIServer([server.url + "/"], "tiny", key="secret")
    assert isinstance(engine, ServerEngine)
    (got,) = ask(engine, user("hello", system="be kind", decoding=Decoding(max_tokens=9, temperature=0.5, seed=3)))
    assert (got.text, got.finish, got.prompt_tokens, got.output_tokens, got.cached_tokens) == ("ok hello", "stop", 7, 3, 4)
    (body,) = server.bodies
    assert body["messages"] == [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]
    assert (body["max_tokens"], body["temperature"], body["seed"]) == (9, 0.5, 3)
    assert server.headers[-1]["Authorization"] == "Bearer secret"
    assert "secret" not in engine.digest


def test_constraints_go_as_vllm_takes_them(server):
    engine = OpenAIServer([server.url], "tiny")
    ask(engine, user("q", decoding=Decoding(choices=("a", "b"))), user("q2", decoding=Decoding(pattern="a+")))
    sent = {body["messages"][0]["content"]: body["structured_outputs"] for body in server.bodies}
    assert sent == {"q": {"choice": ["a", "b"]}, "q2": {"regex": "a+"}}


def test_probabilities_of_words(server, make_reply):
    yes, no = sum(b"Yes"), sum(b"No")

    def answer(body):
        assert body["logprob_token_ids"] == sorted([yes, no]) and body["logprobs"] is True
        found = make_reply("Yes")
        top = [{"token": f"token_id:{yes}", "logprob": -0.1}, {"token": f"token_id:{no}", "logprob": -2.5}]
        found["choices"][0]["logprobs"] = {"content": [{"token": f"token_id:{yes}", "logprob": -0.1, "top_logprobs": top}]}
        return found

    server.answer = answer
    (got,) = ask(OpenAIServer([server.url], "tiny"), user("true?", decoding=Decoding(max_tokens=1, probe=("Yes", "No"))))
    assert dict(got.probs) == pytest.approx({"Yes": 0.904837, "No": 0.082085}, rel=1e-4)
    server.answer = lambda body: "Yes"
    (got,) = ask(OpenAIServer([server.url], "tiny"), user("true?", decoding=Decoding(max_tokens=1, probe=("Yes", "No"))))
    assert isinstance(got, CallFailed) and got.reason == "no-logprobs"


def test_pictures_as_data_and_as_files(server, tmp_path):
    path = tmp_path / "a b.png"
    path.write_bytes(b"\x89PNG 1234")
    picture = Picture.of(path)
    ask(OpenAIServer([server.url], "tiny"), user("see ", picture, " and say"))
    ask(OpenAIServer([server.url], "tiny", file_urls=True), user(picture, "x"))
    first, second = (body["messages"][0]["content"] for body in server.bodies)
    assert [part["type"] for part in first] == ["text", "image_url", "text"]
    assert first[1]["image_url"]["url"] == "data:image/png;base64,iVBORyAxMjM0" and first[1]["uuid"] == picture.digest
    assert second[0]["image_url"]["url"] == path.as_uri() and "%20" in path.as_uri()


def test_an_unreadable_picture_fails_that_call_alone(server, tmp_path):
    notes = tmp_path / "notes.png"
    notes.write_text("no picture")
    gone = Picture(tmp_path / "gone.png", "0" * 64)
    got = ask(OpenAIServer([server.url], "tiny"), user(Picture.of(notes), "x"), user(gone, "y"), user("z"))
    assert [getattr(g, "reason", None) for g in got] == ["bad-image", "bad-image", None]
    assert "notes.png" in str(got[0]) and len(server.bodies) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_passes_is_tried_again(server, respond, status):
    left = [2]

    def answer(body):
        left[0] -= 1
        return respond(status, "wait", Retry_After="0.01") if left[0] >= 0 else "at last"

    server.answer = answer
    (got,) = ask(OpenAIServer([server.url], "tiny"), user("q"))
    assert got.text == "at last" and len(server.bodies) == 3


def test_retry_after_is_kept(server, respond):
    import time

    times = []

    def answer(body):
        times.append(time.monotonic())
        return respond(429, "slow down", Retry_After="0.4") if len(times) == 1 else "ok"

    server.answer = answer
    ask(OpenAIServer([server.url], "tiny"), user("q"))
    assert times[1] - times[0] >= 0.39  # no upper bound: the machine may be busy


def test_what_lasts_is_given_up_with_the_servers_words(server, respond):
    server.answer = lambda body: respond(500, json.dumps({"error": {"message": "EngineCore died"}}))
    (got,) = ask(OpenAIServer([server.url], "tiny"), user("q"))
    assert got.reason == "http-500" and "EngineCore died" in got.detail and len(server.bodies) == 5


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("This model's maximum context length is 4096 tokens", "too-long"),
        ("At most 1 image(s) may be provided in one prompt", "too-many-pictures"),
        ("Failed to load image: image file is truncated", "bad-image"),
        ("temperature must be positive", "http-400"),
    ],
)
def test_what_the_server_understood_is_not_tried_again(server, respond, said, reason):
    server.answer = lambda body: respond(400, json.dumps({"error": {"message": said}}))
    (got,) = ask(OpenAIServer([server.url], "tiny"), user("q"))
    assert (got.reason, got.detail, len(server.bodies)) == (reason, said, 1)


@pytest.mark.parametrize("status", [401, 404])
def test_a_run_without_hope_ends(server, respond, status):
    server.answer = lambda body: respond(status, "no")
    (got,) = ask(OpenAIServer([server.url], "tiny"), user("q"))
    assert isinstance(got, ModelError) and server.url in str(got) and len(server.bodies) == 1


def test_a_reply_cut_off_on_the_wire_is_asked_again(server):
    left = [1]

    def answer(body):
        left[0] -= 1
        return "CUT" if left[0] >= 0 else "whole"

    server.answer = answer
    (got,) = ask(OpenAIServer([server.url], "tiny"), user("q"))
    assert got.text == "whole"
    server.answer = lambda body: "CUT"
    (got,) = ask(OpenAIServer([server.url], "tiny"), user("q"))
    assert got.reason == "cut-off"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("<html><body>Bad gateway</body></html>", "html"),
        ('{"choices": [{"mess', "bad-json"),
        ("", "bad-json"),
        ('{"choices": []}', "bad-reply"),
        ('{"choices": [{"message": {"content": 3}}]}', "bad-reply"),
        ("[1, 2]", "bad-reply"),
    ],
)
def test_answers_that_are_none(server, respond, body, reason):
    server.answer = lambda _: respond(200, body)
    (got,) = ask(OpenAIServer([server.url], "tiny"), user("q"))
    assert isinstance(got, CallFailed) and got.reason == reason


def test_cut_by_length_is_said_and_a_loop_is_a_failure(server, make_reply):
    server.answer = lambda body: make_reply("!" * 400 if "loop" in body["messages"][0]["content"] else "the end is miss", "length")
    got = ask(OpenAIServer([server.url], "tiny"), user("q"), user("loop"))
    assert got[0].finish == "length" and got[1].reason == "repetition"


def test_strange_text_survives(server, make_reply):
    text = "https://x " + "ä\x00\x1b\u200b한" * 8000
    server.answer = lambda body: make_reply(text if body["messages"][0]["content"] == "q" else None)
    got = ask(OpenAIServer([server.url], "tiny"), user("q"), user("none"))
    assert got[0].text == text and got[1].text == ""


def test_half_a_surrogate_pair_becomes_a_replacement(server, respond):
    server.answer = lambda _: respond(200, '{"choices": [{"message": {"content": "a\\ud83d"}, "finish_reason": "stop"}]}')
    (got,) = ask(OpenAIServer([server.url], "tiny"), user("q"))
    assert got.text == "a?" or got.text == "a\ufffd"


def test_a_slow_server_is_given_up(server):
    async def slow(body):
        await asyncio.sleep(3)
        return "late"

    server.answer = slow
    (got,) = ask(OpenAIServer([server.url], "tiny", timeout=0.2), user("q"))
    assert got.reason == "timeout"


def test_streamed_replies_tell_the_first_tokens_time(server):
    def events(*rows):
        from aiohttp import web

        lines = [f"data: {json.dumps(row) if not isinstance(row, str) else row}\n\n" for row in rows]
        return web.Response(status=200, body="".join(lines), content_type="text/event-stream")

    def piece(text, why=None):
        return {"choices": [{"delta": {"content": text}, "finish_reason": why}]}

    whole = (piece("Hel"), piece("lo", "stop"), {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}, "[DONE]")
    server.answer = lambda body: events(*(whole if body["messages"][0]["content"] == "q" else (piece("Hel"),)))
    got = ask(OpenAIServer([server.url], "tiny", stream=True), user("q"), user("cut"))
    assert got[0].text == "Hello" and got[0].prompt_tokens == 5 and 0 < got[0].first_token_seconds <= got[0].seconds
    assert got[1].reason == "cut-off"
    assert server.bodies[0]["stream"] is True


def closed_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_start_checks_name_the_url_and_the_remedy(server):
    down = f"http://127.0.0.1:{closed_port()}/v1"
    with pytest.raises(ModelError, match=r"cannot be reached.*start the server") as error:
        OpenAIServer([down], "tiny").check(Workload())
    assert down in str(error.value)
    with pytest.raises(ModelError, match=r"does not serve 'huge'.*it serves: tiny"):
        OpenAIServer([server.url], "huge").check(Workload())
    with pytest.raises(ModelError, match="do not fit"):
        OpenAIServer([server.url], "tiny").check(Workload(max_tokens=5000))
    server.models_status = 401
    with pytest.raises(ModelError, match="API key"):
        OpenAIServer([server.url], "tiny").check(Workload())
    server.models_status, server.models = 200, "<html>hello</html>"
    with pytest.raises(ModelError, match=r"not a list of models.*ends in /v1"):
        OpenAIServer([server.url], "tiny").check(Workload())
    with pytest.raises(ModelError, match="is not the address"):
        OpenAIServer(["localhost:8000"], "tiny")
    with pytest.raises(ModelError, match="no address"):
        OpenAIServer([], "tiny")


def test_a_trial_finds_picture_limits_and_ignored_constraints(server, respond):
    def answer(body):
        content = body["messages"][0]["content"]
        pictures = 0 if isinstance(content, str) else sum(part["type"] == "image_url" for part in content)
        return respond(400, '{"error": {"message": "At most 1 image(s)"}}') if pictures > 1 else "hello"

    server.answer = answer
    with pytest.raises(ModelError, match=r"--limit-mm-per-prompt .*\"image\":10"):
        OpenAIServer([server.url], "tiny").check(Workload(pictures=10))
    OpenAIServer([server.url], "tiny").check(Workload(pictures=1))
    with pytest.raises(ModelError, match="ignores structured_outputs"):
        OpenAIServer([server.url], "tiny").check(Workload(constraints=frozenset({"choices"})))


def test_replicas_share_the_work_and_keep_siblings_together(new_server):
    one, two = new_server(), new_server()
    one.seconds = two.seconds = 0.01
    questions = [f"question {i} " + "x" * 600 for i in range(8)]
    engine = OpenAIServer([one.url, two.url], "tiny")

    async def main():
        await engine.open()
        for entity in range(6):
            await asyncio.gather(*(engine.complete(user(f"{q} entity {entity}")) for q in questions))
        await engine.close()

    asyncio.run(main())
    for q in questions:
        homes = {i for i, s in enumerate((one, two)) if any(q in text for text in s.seen)}
        assert len(homes) == 1
    assert min(len(one.seen), len(two.seen)) >= 12  # 24 each if perfectly even


def test_a_lost_replica_is_left_alone(new_server):
    one, two = new_server(), new_server()
    engine = OpenAIServer([one.url, two.url], "tiny")

    async def main():
        await engine.open()
        one.stop()
        got = await asyncio.gather(*(engine.complete(user(f"q{i}")) for i in range(20)))
        await engine.close()
        return got

    try:
        got = asyncio.run(main())
    finally:
        one.stop = lambda: None
    assert [g.text for g in got] == [f"ok q{i}" for i in range(20)]


def test_when_nobody_answers_any_more_the_run_ends(server):
    engine = OpenAIServer([server.url], "tiny")

    async def main():
        await engine.open()
        server.stop()
        got = await asyncio.gather(*(engine.complete(user(f"q{i}")) for i in range(12)), return_exceptions=True)
        await engine.close()
        return got

    try:
        got = asyncio.run(main())
    finally:
        server.stop = lambda: None
    assert {g.reason for g in got if isinstance(g, CallFailed)} <= {"unreachable", "cut-off"}
    assert any(isinstance(g, ModelError) and "stopped answering" in str(g) for g in got)


def test_paths_with_strange_names(tmp_path: Path):
    assert Picture.of(_touch(tmp_path / "é#%.png")).path.name == "é#%.png"


def _touch(path: Path) -> Path:
    path.write_bytes(b"x")
    return path


def test_a_server_that_is_strict_about_keys_gets_pictures_without_names(server, respond, tmp_path):
    path = tmp_path / "p.png"
    path.write_bytes(b"\x89PNG 1234")
    picture = Picture.of(path)

    def answer(body):
        parts = body["messages"][0]["content"]
        if any("uuid" in part for part in parts):
            return respond(400, '{"error": {"message": "Unknown parameter: messages[0].content[0].uuid"}}')
        return "seen"

    server.answer = answer
    client = OpenAIServer([server.url], "tiny")
    assert [got.text for got in ask(client, user(picture, "x"), user(picture, "y"))] == ["seen", "seen"]
    named = [any("uuid" in part for part in body["messages"][0]["content"]) for body in server.bodies]
    assert named.count(True) <= 2 and named.count(False) == 2  # found out once, remembered


def test_other_400s_about_pictures_stay_what_they_are(server, respond, tmp_path):
    path = tmp_path / "p.png"
    path.write_bytes(b"\x89PNG 1234")
    server.answer = lambda body: respond(400, "no such thing")
    (got,) = ask(OpenAIServer([server.url], "tiny"), user(Picture.of(path), "x"))
    assert got.reason == "http-400" and len(server.bodies) == 1


def test_concurrency_is_cut_by_refusals_where_it_may_grow(server, respond):
    server.answer = lambda body: respond(429, "busy", Retry_After="0.01") if len(server.bodies) < 4 else "ok"
    client = OpenAIServer([server.url], "tiny", slots=0)
    before = client.slots
    got = ask(client, *[user(str(i)) for i in range(4)])
    assert [g.text[:2] for g in got] == ["ok"] * 4
    assert client.slots == before // 2
    assert OpenAIServer([server.url], "tiny", slots=5).slots == 5


def test_more_keys_are_sent_and_are_part_of_the_digest(server):
    plain, extra = OpenAIServer([server.url], "tiny"), OpenAIServer([server.url], "tiny", extra={"ignore_eos": True})
    assert plain.digest != extra.digest
    ask(extra, user("x"))
    assert server.bodies[-1]["ignore_eos"] is True
