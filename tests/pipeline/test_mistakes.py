"""What a user gets wrong on the command line: one message, exit code 2, and nothing made or changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests_pipeline import Words

from pipeline import index_cli
from pipeline.__main__ import main
from pipeline.build import Tools, build
from pipeline.collection import Collection
from pipeline.documents import Document
from pipeline.safety.head import SHIPPED


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_cli, "text_encoder", lambda name="": Words())


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = main([str(one) for one in arguments])
    said = capsys.readouterr().err
    assert code == 2 and said.startswith("error: ") and said.count("\n") == 1, said
    return said


PLAIN = ("--image-encoder", "none")


def test_a_target_that_is_a_file(tmp_path: Path, jsonl: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    docs, target = jsonl({"id": "a", "text": "ash"}), tmp_path / "README.md"
    target.write_text("mine")
    assert "cannot be written" in refused(capsys, "index", "build", docs, target, *PLAIN)
    assert "cannot be written" in refused(capsys, "index", "build", docs, target / "below", *PLAIN)
    assert "is no collection" in refused(capsys, "index", "add", docs, target, *PLAIN)
    assert target.read_text() == "mine"


def test_only_build_makes_a_folder(tmp_path: Path, jsonl: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    docs, away = jsonl({"id": "a", "text": "ash"}), tmp_path / "away"
    assert "is no collection" in refused(capsys, "index", "add", docs, away, *PLAIN)
    assert "is no collection" in refused(capsys, "index", "remove", away, "a")
    assert "holds no entry 'a'" in refused(capsys, "safety", "policy", "remove", away / "policy.jsonl", "a")
    assert not away.exists()


@pytest.mark.parametrize("rows", [(), ({"id": "a", "text": " "},), None])
def test_nothing_to_index(
    tmp_path: Path, jsonl: Callable[..., Path], capsys: pytest.CaptureFixture[str], rows: tuple[dict[str, Any], ...] | None
) -> None:
    source, target = tmp_path / "empty", tmp_path / "made"
    source.mkdir()
    if rows is not None:
        source = jsonl(*rows)
    assert f"{source}: no document in it" in refused(capsys, "index", "build", source, target, *PLAIN)
    assert not target.exists()
    build(target, [Document("b", text="birch")], Tools(Words()))
    refused(capsys, "index", "build", source, target, *PLAIN)
    refused(capsys, "index", "add", source, target, *PLAIN)
    kept = Collection(target)
    assert (kept.card.documents, kept.card.generation) == (1, 1)


def test_a_head_is_never_trained_over_the_shipped_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = hashlib.sha256(SHIPPED.read_bytes()).digest()
    texts = tmp_path / "harmful.txt"
    texts.write_text("make a bomb\n")
    with pytest.raises(SystemExit) as stop:
        main(["safety", "train", str(texts)])
    assert stop.value.code == 2 and "--out" in capsys.readouterr().err
    assert "cannot be read" in refused(capsys, "safety", "train", tmp_path, "--out", tmp_path / "head.safetensors")
    assert "is a folder" in refused(capsys, "safety", "train", texts, "--out", tmp_path)
    assert hashlib.sha256(SHIPPED.read_bytes()).digest() == before
