"""CUE-M's tasks of the tiny model: gold replies that the real flow accepts, and a vocabulary that grows under a trained state."""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random

import pytest
import torch
from tokenizers import Tokenizer

from bench.cuem.prefer import EQUAL, FIRST, SECOND, UNCLEAR, Preference, bare, preference
from bench.tiny import architecture, checkpoint, clips, cuem_samples, data, evaluate, grow, planted, tasks, tokenizer
from bench.tiny.optimizer import Optimizer
from bench.world import lexicon as lx
from bench.world.asks import KINDS, NOT_FOUND, make_ask, make_asks
from bench.world.creatures import make_world
from bench.world.documents import Library
from models.errors import ConfigError
from pipeline import replies

QWEN = architecture.FAMILIES["qwen2.5-vl"]


@pytest.fixture(scope="module")
def library() -> Library:
    return Library(make_world(3, 4))


def test_a_library_holds_each_fact_once_under_its_own_title(library: Library) -> None:
    assert len(library.by_id) == len(library.by_title) == len(library.documents)
    assert {d.collection for d in library.documents} == {"articles", "products", "places"}
    assert all(document in library.by_id for _, document in library.clicks)
    names = {made.partition(" ")[0] for made in [*library.camps.values(), *(offer.shop for offer in library.offers.values())]}
    assert {lx.split_of(name) for name in names} == {"test"}
    assert Library(make_world(3, 4)).documents == library.documents


@pytest.mark.parametrize("about", sorted(set(KINDS) - {"weapon"}))
def test_every_kind_is_asked_with_its_evidence(library: Library, about: str) -> None:
    ask = make_ask(library, Random(about), about)
    assert ask.about == about and ask == make_ask(library, Random(about), about)
    for fact in ask.facts(library, ask.subject):
        assert set(fact.documents) <= set(library.by_id)
    lost = ask.answer(library) == NOT_FOUND
    assert lost == (about in ("unknown", "harm", "bet"))


def test_questions_are_distinct_and_repeat_by_seed(library: Library) -> None:
    asks = make_asks(library, 5, 60)
    assert len({(a.text, a.subject) for a in asks}) == 60 and asks == make_asks(library, 5, 60) != make_asks(library, 6, 60)


def test_a_full_life_ends_in_the_gold_answer_where_search_found_it() -> None:
    good = total = 0
    for rng, library in itertools.islice(cuem_samples.libraries(2, "test"), 120):
        oracle, log = cuem_samples.lived(library, rng, row="full")
        stages = [call.stage for call, _ in log]
        if not oracle.ask.kind.safe:
            assert "answer" not in stages and stages[-1] == "detect"
            continue
        if oracle.ask.about in ("unknown", "bet", "look"):
            continue
        total += 1
        said = replies.answer(3, NOT_FOUND)(log[-1][1])
        assert said.not_found or said.cited
        good += bare(said.text).replace(" .", ".") == oracle.ask.answer(library)
    assert good / total > 0.6 and total > 60


@pytest.mark.parametrize("task", tasks.CUEM_TASKS)
def test_gold_replies_score_as_right_and_others_as_wrong(task: str) -> None:
    for sample in itertools.islice(tasks.source(task, 4), 40):
        scores = evaluate._judge(sample, sample.reply)
        assert sample.task == task == next(iter(scores)) and all(scores.values())
        assert not next(iter(evaluate._judge(sample, "zebra").values()))
        assert (sample.clip is None) == (not sample.request.pictures)


def test_verdicts_come_both_ways() -> None:
    for task, values in {"safe": {"true", "false"}, "need": {"true", "false"}, "prefer": {FIRST, SECOND, EQUAL}}.items():
        said = [s.reply for s in itertools.islice(tasks.source(task, 4), 200)]
        assert set(said) == values and min(said.count(v) for v in values) > 30
    assert [s.reply for s in itertools.islice(tasks.source("safe", 4), 9)] == [
        s.reply for s in itertools.islice(tasks.source("safe", 4), 9)
    ]


def test_one_picture_shows_the_middle_of_an_attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, "SHARD", 4 * len(clips.LABELS))
    pool = clips.Pool(tmp_path, 1)
    one = pool.clip("roar", "fire", "wild", 1, 1)
    assert one.shape == (1, 84, 140, 3) and (one[0] == pool.clip("roar", "fire", "wild", 3, 0)[1]).all()
    sample = next(s for s in tasks.source("describe", 1) if s.clip is not None and s.clip.frames == 1)
    encoder = data.Encoder(tokenizer.build(["the"], lx.FIRST, lx.NEXT), QWEN)
    row = data.row(encoder, "describe", sample.request, sample.reply, sample.clip, Random(1))
    assert row.show is not None and row.show.count == 1 and row.ids.count(encoder.slot) == 15


# ---- preferences -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("reply", "verdict"),
    [("first", FIRST), ("The Second.", SECOND), ("equal", EQUAL), ("first or second", UNCLEAR), ("", UNCLEAR), ("neither", UNCLEAR)],
)
def test_preferences_are_read(reply: str, verdict: str) -> None:
    assert preference(reply) == verdict


def test_the_judge_sees_no_citation_and_no_open_fence() -> None:
    call = Preference.load("compact").call("q", "gold.", "a » b [1, 2].", "c")
    assert call.request.text == "prefer . « q » gold : « gold. » first : « a  b. » second : « c »"
    assert "a » b." in Preference.load().call("q", "g", "a » b [3].", "c").request.text


# ---- growing ---------------------------------------------------------------------------------------------------------
def _state(folder: Path, words: Tokenizer) -> None:
    model = architecture.build(QWEN, words, 3)
    planted.plant(model, 3)
    named = list(model.named_parameters())
    optimizer = Optimizer(named, 0.01)
    for _, p in named:
        p.grad = torch.ones_like(p)
    optimizer.step(1.0)
    tensors = {f"{part}.{name}": p.detach().clone() for part in ("model", "average") for name, p in named}
    tensors |= {f"optimizer.{key}": value for key, value in optimizer.state().items()}
    folder.mkdir()
    (folder / "tokenizer.json").write_text(words.to_str(pretty=True), encoding="utf-8")
    facts = {"step": 1, "minutes": 2.0, "samples": 3, "tokens": 4, "mix": "x", "mix_step": 0}
    checkpoint.save(folder / "joint.safetensors", tensors, facts)


def test_a_grown_state_speaks_as_before_and_trains_on(tmp_path: Path) -> None:
    old = tokenizer.build(["the", "creature", "answer"], lx.FIRST, lx.NEXT)
    _state(tmp_path / "a", old)
    words = ["«", "»", "Search", *(f"word{n}" for n in range(80)), "the"]
    assert grow.grow(tmp_path / "a", tmp_path / "b", QWEN, words=words) == 83
    new = tokenizer.with_vocabulary_of((tmp_path / "b" / "tokenizer.json").read_text(encoding="utf-8"))
    assert new.encode("« Search the Varkun »").tokens == ["«", "Search", "the", "Var", "##kun", "»"]
    assert all(new.token_to_id(word) == n for word, n in old.get_vocab().items())

    before, facts = checkpoint.load(tmp_path / "a" / "joint.safetensors")
    after, kept = checkpoint.load(tmp_path / "b" / "joint.safetensors")
    assert facts == kept and set(before) == set(after)
    changed = {key for key in after if after[key].shape != before[key].shape}
    assert len(changed) == 4 and sum(key.startswith("optimizer.adam.") for key in changed) == 2
    n = old.get_vocab_size()
    for key in changed:
        torch.testing.assert_close(after[key][:n], before[key][:n], rtol=0, atol=0)
        fresh = after[key][n:]
        assert float(fresh.abs().max()) == 0 if "adam" in key else 0.04 < float(fresh.std()) < 0.08

    model = architecture.build(QWEN, new)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(after[f"average.{name}"])
    optimizer = Optimizer(model.named_parameters(), 0.01)
    optimizer.restore(checkpoint.part(after, "optimizer"))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step(1.0)
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    architecture.export(model, new, QWEN, tmp_path / "m", "card")
    assert architecture.load(tmp_path / "m").config.text_config.vocab_size == (n + 83 + 63) // 64 * 64


def test_a_state_is_never_grown_over_another(tmp_path: Path) -> None:
    _state(tmp_path / "a", tokenizer.build(["the"], lx.FIRST, lx.NEXT))
    with pytest.raises(ConfigError, match="already"):
        grow.grow(tmp_path / "a", tmp_path / "a", QWEN, words=["x"])


def test_new_words_are_frequent_and_no_names() -> None:
    words = tokenizer.build(["the"], lx.FIRST, lx.NEXT)
    found = grow.new_words(words, ["« the Varkun pays »"] * 3 + ["rare"])
    assert {"«", "»", "pays"} <= set(found) and not {"the", "Varkun", "rare"} & set(found)
