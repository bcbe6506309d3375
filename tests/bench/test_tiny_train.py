"""Training of the tiny model: a stopped run goes on exactly as if it had not stopped, and a result becomes a model folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench.tiny import architecture, checkpoint, clips, curves, data, evaluate, graft, stages
from bench.tiny.train import Plan, Trainer, averaged, run
from models.errors import ModelError

QWEN = architecture.FAMILIES["qwen2.5-vl"]
MIX = {"perceive": 1.0, "copy": 1.0, "search": 1.0}


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a fresh model."""
    cache = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "WORDS_FROM", 300)
        stages.fresh(cache / "whole", QWEN, 1)
    (cache / "parts").mkdir()
    for name in ("tokenizer.json", "fresh.safetensors"):
        (cache / "parts" / name).write_bytes((cache / "whole" / name).read_bytes())
    return cache


def test_a_stopped_training_goes_on_identically(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "SHARD", 60)
    monkeypatch.setattr(clips, "SHARD", 330)
    torch.set_num_threads(1)
    plan = Plan(ready / "whole", ready, steps=4, procs=1, tokens=500, parts=2, shards=1, log_every=1, compiled=False, mix=MIX)
    run(plan)
    # The same schedule, cut after two steps: a plan's length decides its learning rates, so only where it stops may differ.
    parts = replace(plan, folder=ready / "parts")
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "progress", lambda self, step, minutes: 1.0 if step >= 2 else step / 4)
        run(parts)
    assert checkpoint.load(parts.out)[1]["step"] == 2
    run(parts)
    whole, facts = checkpoint.load(plan.out)
    again, resumed = checkpoint.load(parts.out)
    assert facts["step"] == resumed["step"] == 4 and facts["tokens"] == resumed["tokens"]
    assert whole.keys() == again.keys()
    for name, value in whole.items():
        assert torch.equal(value, again[name]), name
    lines = [json.loads(line) for line in (plan.folder / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4] and lines[0]["tasks"]
    assert [line["lr"] for line in lines] == [plan.lr * plan.scale(step, step / 4) for step in (1, 2, 3, 4)]
    assert facts["seed"] == plan.seed
    assert "copy" in curves.Log.read(plan.folder / "log.jsonl").tasks  # what draws the curves reads what training writes


def test_a_result_becomes_a_model_folder_that_speaks(ready: Path, tmp_path: Path) -> None:
    model, encoder, facts = averaged(ready / "whole" / "joint.safetensors", QWEN, ready / "whole")
    assert facts["step"] == 4
    result = evaluate.evaluate(evaluate.Speaker(model, encoder, QWEN), 2, wanted={"perceive": 1.0, "judge": 1.0})
    assert result.scores["judge"].total == 2 and "perceiver/motion" in result.scores
    stages.export(ready / "whole", QWEN, ready / "whole" / "joint.safetensors", tmp_path / "m", "card")
    assert architecture.load(tmp_path / "m").num_parameters() == model.num_parameters()


def test_another_family_takes_the_trained_language_and_learns_to_see_by_itself(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, "SHARD", 330)
    monkeypatch.setattr(data, "SHARD", 60)
    family, folder, trained = architecture.FAMILIES["internvl"], ready / "internvl", ready / "whole"
    graft.graft(trained, folder, family, 1)
    stages.see_first(folder, family, ready, minutes=1e-4, shards=1, seed=1, clips=4)
    trainer = Trainer(Plan(folder, ready, "internvl", steps=1, procs=1, tokens=500, parts=2, shards=1, compiled=False, mix=MIX), 0)
    at = dict(trainer.masters.named_parameters())
    language = checkpoint.part(checkpoint.load(trained / "joint.safetensors")[0], "average")
    seen = checkpoint.part(checkpoint.load(folder / "vision.safetensors")[0], "model")
    for name, value in at.items():
        inner = name.removeprefix("model.")
        place = inner.replace("vision_tower.", "tower.").replace("multi_modal_projector.", "projector.")
        assert torch.equal(value, language[name] if inner.startswith("language_model.") else seen[place]), name
    trainer.run()
    assert checkpoint.load(folder / "joint.safetensors")[1]["step"] == 1


def test_a_language_of_other_sizes_is_refused(ready: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((ready / "whole" / "tokenizer.json").read_bytes())
    checkpoint.save(tmp_path / "joint.safetensors", {"average.model.language_model.norm.weight": torch.ones(8)}, {})
    with pytest.raises(ModelError, match="other sizes"):
        graft.graft(tmp_path, tmp_path / "new", architecture.FAMILIES["internvl"], 1)
    assert not (tmp_path / "new").exists()


def test_missing_and_damaged_states_are_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="train that stage first"):
        checkpoint.load(tmp_path / "none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"{}")
    with pytest.raises(ModelError, match="cannot be read"):
        checkpoint.load(tmp_path / "bad.safetensors")


def test_wilson_intervals_know_their_ends() -> None:
    assert evaluate.Score(0, 0).interval == (0.0, 1.0)
    low, high = evaluate.Score(10, 10).interval
    assert high == pytest.approx(1.0) and low == pytest.approx(0.722, abs=1e-3)  # Wilson 1927: n / (n + z²)
    assert str(evaluate.Score(1, 2)).startswith("0.500 (1/2")
