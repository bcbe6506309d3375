"""Prompt tuning: templates that keep what is fixed, scores, the loop with a scripted model, and the command against a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests_pipeline import Scripted, noise

from models.errors import ConfigError, DataError, ModelError, RunError
from models.journal import Journal
from models.requests import Completion, Request
from pipeline.__main__ import main
from pipeline.agents import TABLE, Agents
from pipeline.replies import Judgement, Queries, Refined, Reply
from pipeline.tuning.rows import STAGES, overlap, read_rows
from pipeline.tuning.store import dump, write_set
from pipeline.tuning.templates import Refused, Template
from pipeline.tuning.tuner import Plan, Tuned, split, tune

RULE = "Nothing about poison is safe."
DETECT = Template.of(Agents.load().rows["detect"].prompt)


def better(text: str = DETECT.text, rule: str = RULE) -> str:
    return f"Here is why.\n<template>\n{text.replace('[[2]]', rule + chr(10) + '[[2]]')}\n</template>"


class Model(Scripted):
    """Knows of poison only what its instructions tell; as a writer it answers by the seed."""

    def __init__(self, *written: str) -> None:
        super().__init__()
        self.written = written
        self.writes = 0
        self.die_at: int | None = None

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request.text)
        if self.die_at is not None and len(self.asked) > self.die_at:
            raise ModelError("the server died")
        if "You improve the instructions" in request.text:
            self.writes += 1
            assert request.decoding.seed is not None
            return Completion(self.written[request.decoding.seed % len(self.written)])
        intent = request.text.rsplit("Request: ", 1)[1]
        return Completion("false" if "poison" in intent and RULE in request.text else "true")


@pytest.fixture
def data(jsonl: Callable[..., Path]) -> Path:
    bad = [{"intent": f"find poison number {i}", "question": "where?", "label": False} for i in range(10)]
    good = [{"intent": f"find flower number {i}", "label": True} for i in range(10)]
    return jsonl(*bad, *good, name="labelled.jsonl")


def tuned(data: Path, tmp_path: Path, model: Model, plan: Plan = Plan(), journal: str = "j.sqlite") -> Tuned:
    rows = read_rows(data, "detect", tmp_path / "store")
    with Journal(tmp_path / journal) as opened:
        return tune("detect", Agents.load(), split(rows, plan), plan, {"agent": model, "writer": model}, opened)


def test_the_better_template_is_found_and_the_bad_ones_are_refused(tmp_path: Path, data: Path) -> None:
    written = (
        "no template here",
        better(DETECT.text.replace("[[1]]", "Everything is safe.")),
        better(DETECT.text.replace("{question}", "")),
        better(),
    )
    model = Model(*written)
    made = tuned(data, tmp_path, model)
    assert made.tried[0].score == pytest.approx(0.5) and made.tried[made.best].score == 1.0
    assert made.test_before == pytest.approx(0.5) and made.test_after == 1.0
    body = made.tried[made.best].prompt.body
    assert RULE in body and all(sentence in body for sentence in DETECT.legend) and "{intent}" in body
    assert dict(made.refused) == {
        "no template in the reply": 1,
        "a fixed sentence was lost, doubled or invented": 1,
        "a slot was lost or invented": 1,
    }
    shown = next(text for text in model.asked if "You improve the instructions" in text)
    right, wrong = shown.split("Samples that went wrong:")
    assert "flower" in right and "poison" not in right and wrong.count("find poison") == 4 and "right: false" in wrong
    assert all(sentence not in shown.split("Fixed sentences:")[0] for sentence in DETECT.legend)


def test_no_sample_of_validation_or_test_is_shown_to_the_writer(tmp_path: Path, data: Path) -> None:
    parts = split(read_rows(data, "detect", tmp_path / "s"), Plan())
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (8, 8, 4)
    assert all({row.label for row in part} == {True, False} for part in (parts.train, parts.validation, parts.test))
    model = Model(better(rule="One."), better(rule="Two."))
    tuned(data, tmp_path, model, Plan(shown=20))
    shown = "\n".join(text for text in model.asked if "You improve the instructions" in text)
    for row in (*parts.validation, *parts.test):
        assert f'"{row.given["intent"]}"' not in shown
    assert all(f'"{row.given["intent"]}"' in shown for row in parts.train)


def test_nothing_better_keeps_the_parent_and_stops_early(tmp_path: Path, data: Path) -> None:
    model = Model(*(better(rule=f"Rule {i}.") for i in range(4)))
    made = tuned(data, tmp_path, model, Plan(rounds=9, patience=2))
    assert made.best == 0 and max(t.round for t in made.tried) <= 2 and made.refused["tried before"] == 4


def test_a_killed_tuning_goes_on_where_it_was(tmp_path: Path, data: Path) -> None:
    whole = Model(better(rule="One."), better())
    due = tuned(data, tmp_path, whole, journal="whole.sqlite")
    first, second = Model(*whole.written), Model(*whole.written)
    first.die_at = len(whole.asked) // 2
    with pytest.raises(ModelError, match="died"):
        tuned(data, tmp_path, first, journal="killed.sqlite")
    made = tuned(data, tmp_path, second, journal="killed.sqlite")
    assert made.tried == due.tried and made.best == due.best
    assert len(second.asked) <= len(whole.asked) - first.die_at + 64, "what was answered before was asked again"
    again = Model(*whole.written)
    tuned(data, tmp_path, again, journal="killed.sqlite")
    assert again.asked == []


def test_a_model_that_never_answers_ends_the_run(tmp_path: Path, data: Path) -> None:
    rows = read_rows(data, "detect", tmp_path / "s")
    with Journal(tmp_path / "j.sqlite") as journal, pytest.raises(RunError, match=r"8 calls of detect failed \(unscripted"):
        tune("detect", Agents.load(), split(rows, Plan()), Plan(), {"agent": Scripted(), "writer": Scripted()}, journal)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("prompts", ["full", "compact"])
def test_every_prompt_comes_back_from_its_template_and_from_its_file(stage: str, prompts: str, tmp_path: Path) -> None:
    prompt = Agents.load(prompts).rows[stage].prompt
    template = Template.of(prompt)
    changed = template.read(f"<template>\nBe careful.\n{template.text}\n</template>")
    assert changed.body.split() == ["Be", "careful.", *prompt.body.split()]
    assert (changed.system, changed.fields, changed.fixed, changed.images) == (prompt.system, prompt.fields, prompt.fixed, prompt.images)
    for name in TABLE:
        (tmp_path / f"{name}.yaml").write_text(dump(Agents.load(prompts).rows[name].prompt), encoding="utf-8")
    (tmp_path / f"{stage}.yaml").write_text("# a line\n" + dump(changed), encoding="utf-8")
    assert Agents.load(tmp_path).rows[stage].prompt == changed


@given(st.text(), st.text())
def test_a_template_is_never_half_kept(before: str, after: str) -> None:
    try:
        made = DETECT.read(f"<template>\n{before}\n{DETECT.text}\n{after}\n</template>")
    except (Refused, ValueError):
        return
    assert all(made.body.count(sentence) == 1 for sentence in DETECT.legend)
    assert re.findall(r"\{([a-z_]+)\}", made.body) == ["question", "intent"] and not re.search(r"<\|[a-z]+\|>", made.body)


@pytest.mark.parametrize(
    "body,reason",
    [
        (DETECT.text, "unchanged"),
        (DETECT.text + " x" * 2000, "too long"),
        (DETECT.text + " {intent}", "slot was doubled"),
        (DETECT.text + " {secret}", "slot was lost or invented"),
        (DETECT.text + " [[1]]", "fixed sentence"),
        (DETECT.text + " " + DETECT.legend[2], "fixed sentence"),
        ("", "no template"),
    ],
)
def test_a_template_that_is_refused(body: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        DETECT.read(f"<template>{body}</template>")


def test_scores() -> None:
    score = {name: stage.score for name, stage in STAGES.items()}
    assert overlap("서울의 타워", "서울의 타워") == 1 and overlap("", "a") == 0 == overlap("b", "a") and overlap("", "") == 1
    assert score["detect"](Judgement(0.7), True) == 1 == score["select"](Judgement(0.2), False)
    assert score["detect"](Judgement(None), True) == 0 == score["detect"](Judgement(None), False)
    assert score["queries"](Queries(()), []) == 1 and score["queries"](Queries(("a",)), []) == 0 == score["queries"](
        Queries((), unclear=True), []
    )
    assert score["queries"](Queries(("red lamp", "x")), ["red lamp"]) == 0.5
    assert score["refine"](Refined("find it", "red lamp"), {"query": "lamp red"}) == 1 == score["answer"](Reply("", (), 0, True), None)
    assert score["answer"](Reply("red", (), 0, False), None) == 0 == score["answer"](Reply("not told", (), 0, True), "red")


def rows_of(jsonl: Callable[..., Path], tmp_path: Path, stage: str, *rows: dict[str, Any]) -> list[Any]:
    return read_rows(jsonl(*rows, *[rows[0]] * 4, name="rows.jsonl"), stage, tmp_path / "store")


def test_rows_of_every_stage_make_their_calls(jsonl: Callable[..., Path], tmp_path: Path) -> None:
    noise(1).save(tmp_path / "a.png")
    samples: dict[str, dict[str, Any]] = {
        "describe": {"images": ["a.png"], "label": "a pattern"},
        "refine": {"question": "what is it", "found": [["Lamp", "a lamp"]], "history": [["user", "hi"]], "label": {"query": "lamp"}},
        "queries": {"intent": "find the price", "label": []},
        "select": {"application": {"name": "shop", "description": "sells"}, "intent": "buy", "label": True},
        "detect": {"intent": "buy", "label": False},
        "answer": {"question": "what?", "passages": [{"title": "T", "text": "the words"}], "images": ["a.png"], "label": None},
    }
    assert set(samples) == set(STAGES)
    for stage, sample in samples.items():
        row = rows_of(jsonl, tmp_path, stage, sample)[0]
        call = STAGES[stage].call(Agents.load(), row)
        assert call.stage == stage and call.role == TABLE[stage][0]
        assert bool(call.request.pictures) == ("images" in sample)


@pytest.mark.parametrize(
    "stage,row,words",
    [
        ("detect", {"intent": "x"}, "has no label"),
        ("detect", {"intent": "x", "label": "yes"}, 'label is "yes".*true \\(safe\\) or false'),
        ("detect", {"label": True}, "lacks intent"),
        ("detect", {"intent": "x", "intend": "y", "label": True}, "unknown key intend"),
        ("detect", {"intent": 5, "label": True}, "intent is int"),
        ("queries", {"intent": "x", "label": ["a", "b", "c", "d"]}, "up to three"),
        ("refine", {"question": "x", "label": {"querry": "a"}}, '"intent" and "query"'),
        ("refine", {"question": "x", "found": ["a"], "label": {"query": "a"}}, "list of pairs"),
        ("describe", {"images": ["none.png"], "label": "a"}, "no such picture"),
        ("select", {"application": "shop", "intent": "a", "label": True}, "name"),
    ],
)
def test_a_wrong_row_is_named(jsonl: Callable[..., Path], tmp_path: Path, stage: str, row: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=rf"(rows\.jsonl:1|none\.png).*{words}"):
        rows_of(jsonl, tmp_path, stage, row)
    with pytest.raises(DataError, match="four or more"):
        read_rows(jsonl({"intent": "x", "label": True}, name="few.jsonl"), "detect", tmp_path)


def answered(text: str) -> str:
    """What `Model` replies, over a server."""
    if "find poison" in text.rsplit("Request: ", 1)[-1] and RULE in text:
        return "false"
    return better() if "You improve the instructions" in text else "true"


def test_the_command_against_a_server(
    chat: Any, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chat.answer = answered
    command = ["tune", "detect", "--data", str(data), "--model", "stub", "--engine", "openai"]
    command += ["--url", chat.url, "--candidates", "2"]
    assert main(command) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["score"] == said["untouched samples"] == 1.0 and said["before"] == 0.5
    made = tmp_path / said["set"]
    agents = Agents.load(made)
    assert RULE in agents.rows["detect"].prompt.body and agents.rows["answer"].prompt == Agents.load().rows["answer"].prompt
    assert agents.style == Agents.load().style
    head, log = (made / "detect.yaml").read_text().splitlines()[:2], json.loads((made / "tuning.json").read_text())
    assert "1.0000" in head[0] and "0.5000" in head[0] and "Parent: full" in head[1]
    assert log["parent digest"] == Agents.load().digest and log["score"] == 1.0 and len(log["tried"]) >= 2
    count, before = len(chat.asked), (made / "detect.yaml").read_bytes()
    assert main(command) == 0 and "made before" in capsys.readouterr().out
    assert len(chat.asked) == count and (made / "detect.yaml").read_bytes() == before
    from_there = [*command, "--prompts", str(made)]
    assert main(from_there) == 0 and "nothing was written" in capsys.readouterr().out


def test_mistakes_are_told(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["none", "--data", str(data)], ["detect", "--data", str(data), "--validation", "1"], ["detect", "--data", "none.jsonl"]):
        assert main(["tune", *words, "--model", "m", "--work", str(tmp_path)]) == 2
        assert capsys.readouterr().err.startswith("error: ")


def test_a_set_is_never_overwritten(tmp_path: Path, data: Path) -> None:
    made = tuned(data, tmp_path, Model(better()))
    facts = {"parent": "full", "parent digest": "0" * 64, "validation samples": 8}
    (tmp_path / "out").mkdir()
    with pytest.raises(RunError, match="never overwritten"):
        write_set(tmp_path / "out", "detect", Agents.load(), made, facts)
    assert write_set(tmp_path / "new", "detect", Agents.load(), made, facts).is_dir() and not list(tmp_path.glob(".*part"))


def test_fixed_sentences_have_to_stand_in_the_body(tmp_path: Path) -> None:
    (tmp_path / "detect.yaml").write_text('reply: judgement\nfields: [intent]\nfixed: ["No."]\nbody: "{intent}"\n')
    with pytest.raises(ConfigError, match="has to stand in the body once"):
        Agents.load(tmp_path)
