"""Tools as engines: batches over questions, blame for the guilty call only; applications and tags."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests_pipeline import Words

from models.errors import CallFailed, ConfigError, DataError
from models.requests import Request, user
from pipeline import applications as apps
from pipeline.agents import Agents
from pipeline.applications import Intent, Places, Products, distance_km, price_range
from pipeline.build import Tools, build
from pipeline.collection import Collection
from pipeline.documents import Document
from pipeline.passages import Passage
from pipeline.tags import extract, read_clicks, tags_of
from pipeline.tools import ToolEngine, texts


def test_calls_of_all_questions_share_batches_and_only_the_guilty_fails() -> None:
    sizes: list[int] = []

    def work(requests: Sequence[Request]) -> list[str]:
        sizes.append(len(requests))
        if any("bad" in r.text for r in requests):
            raise DataError("bad one")
        time.sleep(0.01)
        return [r.text.upper() for r in requests]

    async def go() -> list[object]:
        engine = ToolEngine("tool", lambda: "d", work)
        await engine.open()
        asked = [engine.complete(user(text)) for text in ("a", "b", "bad", "c")]
        made = await asyncio.gather(*asked, return_exceptions=True)
        await engine.close()
        return list(made)

    a, b, bad, c = asyncio.run(go())
    assert [getattr(x, "text", None) for x in (a, b, c)] == ["A", "B", "C"]
    assert isinstance(bad, CallFailed) and bad.reason == "tool-refused" and "bad one" in bad.detail
    assert sizes[0] == 4


def test_parts_are_never_glued() -> None:
    assert texts(user("query", "one", "two")) == ("query", "one", "two")


@pytest.fixture
def shop(tmp_path: Path, words: Words) -> Collection:
    rows = [
        ("red lamp", 20.0, "red", "Acme"),
        ("blue lamp", 45.0, "blue", "Acme"),
        ("red chair", 90.0, "red", "Sit"),
        ("lamp oil", 0.0, "", ""),
    ]
    documents = [Document(t, t, t, attributes={"price": p, "colour": c, "brand": b}) for t, p, c, b in rows]
    build(tmp_path / "shop", [*documents, Document("free", "free lamp", "lamp")], Tools(words))
    return Collection(tmp_path / "shop", words)


def intent(text: str) -> Intent:
    return Intent(text, text, text)


def test_products_by_price_and_attribute(shop: Collection) -> None:
    assert Products(shop).search(intent("blue lamp by Acme"))[0].document == "blue lamp"
    assert {p.document for p in Products(shop).search(intent("lamp under 30"))} == {"red lamp", "lamp oil"}
    assert {p.document for p in Products(shop).search(intent("lamp between 40 and 100"))} == {"blue lamp", "red chair"}
    assert "price: 20.0" in Products(shop).search(intent("red lamp"))[0].text


@pytest.mark.parametrize(
    "text,due",
    [
        ("under $50", (None, 50)),
        ("at least 1,200.50 euros", (1200.5, None)),
        ("between 40 and 20", (20, 40)),
        ("5만원 이하", (None, 50_000)),
        ("30000원 이상", (30_000, None)),
        ("under the bridge", (None, None)),
    ],
)
def test_prices(text: str, due: tuple[float | None, float | None]) -> None:
    assert price_range(text) == due


def test_places_by_area_name_and_distance(tmp_path: Path, words: Words) -> None:
    rows = [("Harbour Cafe", "Busan", 35.10, 129.04), ("Hill Cafe", "Busan", 35.16, 129.06), ("Snow Cafe", "강원도", 37.88, 127.73)]
    documents = [Document(n, n, "a cafe", attributes={"area": a, "latitude": y, "longitude": x}) for n, a, y, x in rows]
    build(tmp_path / "map", [*documents, Document("lost", "Lost Cafe", "a cafe")], Tools(words))
    places = Places(Collection(tmp_path / "map", words))
    assert [p.document for p in places.search(intent("cafe 강원도"))] == ["Snow Cafe"]
    near = places.search(intent("a cafe within 10 km of Harbour Cafe"))
    assert [p.document for p in near] == ["Hill Cafe"] and near[0].attributes["distance_km"] == pytest.approx(6.9, abs=0.2)
    assert distance_km((0, 0), (0, 180)) == pytest.approx(20015, abs=1)


USER_APP = """
class Weather:
    name, description, examples = "weather", "tells the weather", ()
    def search(self, intent):
        return []

class Half:
    name = "half"
"""


def test_a_users_application_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "weather.py"
    path.write_text(USER_APP)
    weather = apps.load_class(f"{path}:Weather")()
    assert list(apps.table([weather])) == ["weather"]
    for names, words in (([apps.load_class(f"{path}:Half")()], "Half is no application"), ([weather, weather], "two applications")):
        with pytest.raises(ConfigError, match=words):
            apps.table(names)
    for name in ("nothing", f"{path}:None_", "no.such.module:X", f"{tmp_path}/none.py:X"):
        with pytest.raises(ConfigError):
            apps.load_class(name)


def passage(document: str, score: float, title: str = "", text: str = "", tags: tuple[str, ...] = ()) -> Passage:
    return Passage(f"{document}#0", document, "c", title, text, score, tags=tags)


def test_tags_come_from_clicks_keywords_and_very_similar_pictures() -> None:
    similar = [
        passage("a", 0.95, "Desk lamp", "lamp lamp light light red", ("vintage",)),
        passage("b", 0.7, "Oak", tags=("never",)),
        passage("c", 0.2, "Noise"),
    ]
    made = {tag.text: tag.origin for tag in tags_of(similar, {"a": {"banker's lamp": 9}, "c": {"spam": 99}})}
    assert made["banker's lamp"] == "clicks" and made["vintage"] == "own" and made["Desk lamp"] == "keywords" and "Oak" in made
    assert not {"never", "Noise", "spam"} & set(made)
    assert next(iter(made)) == "banker's lamp" and tags_of([], {}) == ()


def test_extracts_keep_what_the_question_asks_for() -> None:
    text = "Lamps are old. The price is 20 euros. It has a switch. " + "More words here. " * 50
    assert "price is 20" in extract(passage("a", 1, text=text), "price") and len(extract(passage("a", 1, text=text), "price")) <= 300
    assert extract(passage("a", 1), "x") == ""


def test_a_click_log_with_a_wrong_line(tmp_path: Path) -> None:
    path = tmp_path / "clicks.jsonl"
    path.write_text('{"query": "q", "document": "d"}\n{"query": "q", "document": "d"}\n')
    assert read_clicks(path) == {"d": {"q": 2}}
    path.write_text('{"query": "q"}\n')
    with pytest.raises(DataError, match=r"clicks\.jsonl:1"):
        read_clicks(path)


@pytest.mark.parametrize("prompts", ["full", "compact"])
def test_prompt_sets_render_every_call(prompts: str) -> None:
    agents = Agents.load(prompts)
    given = [passage("a", 1, "T", "text {question} {{")]
    calls = [
        agents.describe(()), agents.refine("q", "", [("T", "x")], [("user", "hi")]), agents.queries("i", [], []), agents.detect("i", "q"),
        agents.select(Products(None), "i"), agents.answer("q", "i", "d", given, [], ()),  # type: ignore[arg-type]
    ]  # fmt: skip
    assert all(call.request.text for call in calls) and "{question}" in calls[-1].request.text
    assert calls[3].request.decoding.probe == ("true", "false") and calls[3].read is not None


def test_prompt_sets_that_are_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="compact, full"):
        Agents.load("nothing")
    (tmp_path / "select.yaml").write_text('reply: text\nfields: [intent]\nbody: "{intent}"')
    with pytest.raises(ConfigError, match="no shape"):
        Agents.load(tmp_path)
    (tmp_path / "select.yaml").unlink()
    (tmp_path / "style.yaml").write_text('fence: {open: "{code}", close: "x"}')
    with pytest.raises(ConfigError, match="both marks"):
        Agents.load(tmp_path)
