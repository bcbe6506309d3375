"""Budgets: token counts equal those of the models' own image processors; what is planned fits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from video.budget import ImageBudget, fitted, image_tokens, plan, qwen_size, smart_resize
from video.errors import BudgetError
from video.options import FrameOptions

SIZES = [(1024, 576), (576, 1024), (28, 28), (500, 333), (2000, 30), (33, 1900), (1920, 1080), (100, 100), (448, 448), (900, 448)]


def test_qwen_tokens_are_the_processors() -> None:
    module = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    for least, most in ((3136, 28 * 28 * 1280), (28 * 28 * 64, 28 * 28 * 256)):
        processor = module.Qwen2VLImageProcessorPil(size={"shortest_edge": least, "longest_edge": most})
        budget = ImageBudget("qwen", min_pixels=least, max_pixels=most)
        for size in SIZES:
            grid = processor(images=[Image.new("RGB", size)], return_tensors="np")["image_grid_thw"][0]
            assert image_tokens(size, budget) == int(grid.prod()) // 4, (size, most)
            assert qwen_size(size, budget) == (int(grid[2]) * 14, int(grid[1]) * 14)


def test_internvl_tokens_are_the_processors() -> None:
    module = pytest.importorskip("transformers.models.got_ocr2.image_processing_pil_got_ocr2")
    for most in (1, 6, 12):
        processor = module.GotOcr2ImageProcessorPil(crop_to_patches=True, size={"height": 448, "width": 448}, max_patches=most)
        for size in SIZES:
            tiles = int(processor(images=[Image.new("RGB", size)], return_tensors="np")["num_patches"][0])
            assert image_tokens(size, ImageBudget("internvl", max_tiles=most)) == 256 * tiles, (size, most)


def test_the_librarys_arithmetic_is_ours() -> None:
    pytest.importorskip("torchvision", reason="qwen_vl_utils cannot be imported without torchvision")
    library = pytest.importorskip("qwen_vl_utils").smart_resize
    for wide, high in SIZES:
        assert smart_resize(high, wide, 28, 3136, 28 * 28 * 1280) == tuple(library(high, wide, 28, 3136, 28 * 28 * 1280))


@settings(deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(28, 2000), st.integers(28, 2000)), min_size=1, max_size=12),
    family=st.sampled_from(["qwen", "internvl"]), tokens=st.integers(300, 20_000), images=st.integers(1, 12),
)  # fmt: skip
def test_a_plan_keeps_to_every_limit(sizes, family, tokens, images) -> None:
    result = plan(sizes, ImageBudget(family, max_tokens=tokens, max_images=images))
    assert 1 <= len(result.kept) <= min(images, len(sizes)) and result.total <= tokens
    assert list(result.kept) == sorted(set(result.kept))
    assert result.tokens == tuple(image_tokens(sizes[place], result.budget) for place in result.kept)
    if len(result.kept) < len(sizes):
        assert result.notes


def test_frames_are_shrunk_before_they_are_left_out() -> None:
    result = plan([(1024, 576)] * 10, ImageBudget("qwen", max_tokens=4096))
    assert len(result.kept) == 10 and 3000 < result.total <= 4096
    tight = plan([(1024, 576)] * 10, ImageBudget("qwen", max_tokens=300))
    assert len(tight.kept) == 4 and "4 of 10 images fit" in " ".join(tight.notes)


def test_ten_frames_against_a_one_image_limit_is_said() -> None:
    result = plan([(1024, 576)] * 10, ImageBudget("qwen", max_images=1))
    assert len(result.kept) == 1 and "10 images against a limit of 1" in result.notes[0]
    with pytest.raises(BudgetError):
        plan([(64, 64)], ImageBudget("qwen", max_images=0))


def test_options_are_fitted_before_anything_is_decoded() -> None:
    options, notes = fitted(FrameOptions(), ImageBudget("qwen", max_tokens=4096))
    assert options.frames == 10 and options.long_side < 1024 and notes
    size = (options.long_side, round(options.long_side * 9 / 16))
    assert 10 * image_tokens(size, ImageBudget("qwen")) <= 4096
    assert fitted(FrameOptions(), ImageBudget("qwen"))[0].frames == 10


def test_a_model_folder_tells_its_budget(tmp_path) -> None:
    def card(**files: object) -> ImageBudget:
        for name in ("config", "preprocessor_config"):
            (tmp_path / f"{name}.json").write_text(json.dumps(files.get(name, {})))
        return ImageBudget.of_model(tmp_path, max_images=5)

    qwen = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 12845056}
    assert card(preprocessor_config=qwen) == ImageBudget("qwen", 28, 3136, 12845056, max_images=5)
    intern = {"model_type": "internvl_chat", "force_image_size": 448, "max_dynamic_patch": 6, "downsample_ratio": 0.5}
    assert card(config=intern) == ImageBudget("internvl", max_tiles=6, max_images=5)
    with pytest.raises(BudgetError, match="not known"):
        card(config={"model_type": "llava"})


def test_shapes_that_a_processor_refuses_are_refused_here() -> None:
    with pytest.raises(BudgetError, match="longer than 200"):
        qwen_size((5000, 20), ImageBudget("qwen"))
    with pytest.raises(BudgetError, match="choose one of"):
        ImageBudget("clip")
