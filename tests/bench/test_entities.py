"""Named entities by a local spaCy model: a tiny pipeline with an entity ruler, made here; what is no model is one message."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.cuem import entities, sheets
from bench.cuem.entities import Entities, keep, kept
from bench.folder import RunFolder
from bench.records import Record, RecordWriter
from models.errors import ModelError, RunError

MANIFEST = {"suite": "cuem", "config": {"name": "", "tags": [], "seed": 1, "limit": None}, "rows": []}
MANIFEST |= {part: {} for part in ("data", "models", "prompts", "predicting")}
needs_spacy = pytest.mark.skipif(importlib.util.find_spec("spacy") is None, reason="spaCy is not installed: pip install 'untamed[ner]'")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    import spacy

    made = spacy.blank("en")
    ruler = made.add_pipe("entity_ruler")
    patterns = [("PERSON", "Ada Lovelace"), ("GPE", "Seoul"), ("DATE", "1843"), ("GPE", "서울")]
    ruler.add_patterns([{"label": label, "pattern": text} for label, text in patterns])  # type: ignore[attr-defined]
    made.to_disk(tmp_path / "ner")
    return tmp_path / "ner"


@needs_spacy
def test_entities_are_distinct_and_name_something(model: Path) -> None:
    made = Entities(model).opened()
    found = made.of(["Ada Lovelace saw Seoul in 1843, and Ada Lovelace left Seoul.", "nothing here", "", "서울 이다"])
    assert found == [("Ada Lovelace", "Seoul"), (), (), ("서울",)]
    assert len(made.digest) == 64 and made.digest == Entities(model).digest
    (model / "entity_ruler" / "patterns.jsonl").write_text('{"label": "GPE", "pattern": "Busan"}\n')
    assert Entities(model).digest != made.digest and Entities(model).of(["Busan, Seoul"]) == [("Busan",)]


@needs_spacy
def test_a_run_keeps_them_and_the_report_counts_what_the_answer_holds(model: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    folder = RunFolder(tmp_path / "run")
    folder.write("config.json", json.dumps(MANIFEST))
    writer = RecordWriter(folder.samples)
    golds = ("Ada Lovelace lived in Seoul.", "It rains.")
    answers = (("full", "It was ada lovelace [1]."), ("mllm", "no idea"))
    for row, answer in answers:
        for i, gold in enumerate(golds):
            writer.write(Record(row, f"q{i}", 0, True, "q", gold, answer=answer))
    writer.close()
    assert kept(folder) == ("", {}) and "ner" not in {m.name for m in sheets.sheet(folder).measures}
    keep(folder, Entities(model))
    (measure,) = (m for m in sheets.sheet(folder).measures if m.name == "ner")
    assert [measure.of(record, None) for record in folder.records().values()] == [0.5, None, 0.0, None]
    assert "ner, " in measure.note
    for damaged in ("{", "[]", '{"model": "m", "digest": "d", "entities": {"x": "Seoul"}}'):
        folder.write(entities.KEPT, damaged)
        with pytest.raises(RunError, match=r"entities\.json"):
            sheets.sheet(folder)


@needs_spacy
def test_what_finds_no_entities_or_is_damaged_is_named(model: Path, tmp_path: Path) -> None:
    import spacy

    spacy.blank("en").to_disk(tmp_path / "plain")
    with pytest.raises(ModelError, match="finds no entities"):
        Entities(tmp_path / "plain").opened()
    (model / "config.cfg").write_text("[nlp")
    with pytest.raises(ModelError, match="cannot open it"):
        Entities(model).opened()


def test_no_model_and_no_package_are_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["cuem", "--judge", "exact", "--runs", str(tmp_path / "runs")]
    for folder in ("en_core_web_sm", str(tmp_path)):
        assert main([*asked, "--ner", folder]) == 2
        assert "no folder of a spaCy model" in capsys.readouterr().err
    (tmp_path / "config.cfg").write_text("")
    (tmp_path / "meta.json").write_text("{}")
    monkeypatch.setattr(entities.importlib.util, "find_spec", lambda name: None)
    assert main([*asked, "--ner", str(tmp_path)]) == 2
    assert "untamed[ner]" in capsys.readouterr().err and not (tmp_path / "runs").exists()
