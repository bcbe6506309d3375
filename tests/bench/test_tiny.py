"""The tiny model's parts: layout, tokenizer, planted heads, fast forms, data, export. Untrained: what it learns is measured elsewhere."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tokenizers import Tokenizer

from bench.tiny import architecture, clips, data, fast, patches, planted, samples, tokenizer
from bench.tiny.optimizer import Optimizer, orthogonal
from bench.tiny.primers import PRIMERS
from bench.world import lexicon as lx
from models.errors import ModelError

WORDS = ["the", "creature", "sweeps", "its", "tail", "topic", "names", "answer", "hunter's", "fire"]
QWEN, INTERN = architecture.FAMILIES["qwen2.5-vl"], architecture.FAMILIES["internvl"]


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return tokenizer.build(WORDS, lx.FIRST, lx.NEXT)


@pytest.fixture(scope="module")
def model(words: Tokenizer) -> Any:
    return architecture.build(QWEN, words, 3)


# ---- tokenizer -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("word", ["yes", "no", "true", "false", "Yes", "No", "None", "<|image_pad|>", "creature", "hunter's"])
def test_decisive_words_are_single_tokens(words: Tokenizer, word: str) -> None:
    assert words.encode(word).tokens == [word]


def test_made_up_names_are_cut_into_syllables(words: Tokenizer) -> None:
    assert words.encode("Varkungre").tokens == ["Var", "##kun", "##gre"]
    assert words.encode("zebra").tokens == ["z", "##e", "##b", "##r", "##a"]
    assert words.encode("é").tokens == ["[UNK]"]


@pytest.mark.parametrize("text", ["The creature sweeps its tail; Yes", "Varkun; Zin: fire, tail.", "None", "hunter's self-made tail?"])
def test_text_survives_the_round_trip(words: Tokenizer, text: str) -> None:
    assert words.decode(words.encode(text).ids) == text


@given(st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs")), max_size=60))
@settings(max_examples=80, deadline=None)
def test_ascii_loses_nothing_but_white_space(text: str) -> None:
    built = tokenizer.build(WORDS, lx.FIRST, lx.NEXT)
    text = text.replace("<", "").replace("[", "")  # the spellings of special tokens
    assert "".join(built.decode(built.encode(text).ids).split()) == "".join(text.split())


def test_the_same_words_give_the_same_bytes() -> None:
    assert tokenizer.build(WORDS, lx.FIRST, lx.NEXT).to_str() == tokenizer.build(reversed(WORDS), lx.FIRST, lx.NEXT).to_str()


def test_frequent_words_leave_names_to_their_syllables() -> None:
    texts = ["Varkun sweeps the tail.", "Varkun sweeps the tail!", "rare"]
    assert tokenizer.frequent_words(texts, 2, lx.FIRST, lx.NEXT) == ["sweeps", "tail", "the"]


# ---- pictures --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [(640, 360), (1920, 1080), (320, 180)])
def test_patches_equal_the_image_processor(tmp_path: Path, words: Tokenizer, model: Any, size: tuple[int, int]) -> None:
    from transformers import AutoImageProcessor

    architecture.export(model, words, QWEN, tmp_path / "m", "card")
    rng = np.random.default_rng(1)
    picture = Image.fromarray(rng.integers(0, 255, (size[1], size[0], 3), dtype=np.uint8))
    given_ = AutoImageProcessor.from_pretrained(tmp_path / "m")(images=[picture], return_tensors="np")
    assert given_["image_grid_thw"].tolist() == [list(patches.GRID)]
    ours = patches.patchify(patches.shrink(picture)[None])
    np.testing.assert_allclose(given_["pixel_values"], ours, atol=1e-5)  # float32 rounding of (x / 255 - mean) / std
    seen = fast.pixels_of(torch.from_numpy(patches.arrange(patches.shrink(picture)[None])), [1]).float().numpy()
    both = ours.reshape(60, 3, 2, 196)
    np.testing.assert_allclose(seen.reshape(60, 3, 196), both[:, :, 0], atol=0.03)  # bfloat16 keeps 8 bits
    np.testing.assert_array_equal(both[:, :, 0], both[:, :, 1])


def test_positions_equal_the_stock_model(words: Tokenizer, model: Any) -> None:
    slot = tokenizer.token(words, QWEN.slot)
    ids = [1, 20, 3, *[slot] * 15, 4, 3, *[slot] * 15, 4, 30, 31]
    row = torch.tensor([ids])
    stock = model.model.get_rope_index(row, mm_token_type_ids=(row == slot).int(), image_grid_thw=torch.tensor([patches.GRID] * 2))[0]
    np.testing.assert_array_equal(stock[:, 0].numpy(), patches.positions(ids, slot))


def test_fast_forms_equal_the_stock_model(words: Tokenizer, model: Any) -> None:
    slot = tokenizer.token(words, QWEN.slot)
    ids = torch.tensor([[1, 20, 3, *[slot] * 15, 4, 40, 41, 42, 2]])
    frame = Image.effect_mandelbrot((640, 360), (-2, -1.5, 1, 1.5), 30).convert("RGB")
    whole = torch.from_numpy(patches.patchify(patches.shrink(frame)[None]))
    half = whole.view(60, 3, 2, 196)[:, :, 0].reshape(60, -1)
    with torch.no_grad():
        kinds = (ids == slot).int()
        grid = torch.tensor([patches.GRID])
        logits = model(input_ids=ids, pixel_values=whole, image_grid_thw=grid, mm_token_type_ids=kinds).logits
        stock = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none")
        x = model.model.language_model.embed_tokens(ids).masked_scatter((ids == slot)[..., None], fast.see(model, False)(half))
        positions = torch.from_numpy(patches.positions(ids[0].tolist(), slot))[:, None]
        ours = fast.token_loss(model, False)(x, positions, ids)[0]
    torch.testing.assert_close(ours, stock, atol=1e-3, rtol=1e-3)  # other order of float32 sums


def test_the_pool_is_the_same_however_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, "SHARD", 200)
    pool = clips.Pool(tmp_path / "a", 1)
    drawn = list(pool.shard(0))
    again = list(clips.Pool(tmp_path / "a", 1).shard(0))
    assert [(c.motion, c.element, c.family) for c in drawn] == [(c.motion, c.element, c.family) for c in again]
    np.testing.assert_array_equal(drawn[7].frames, again[7].frames)
    assert {(c.motion, c.element) for c in drawn} == set(clips.LABELS)
    label = drawn[0]
    assert pool.clip(label.motion, label.element, label.family, 4, 5).shape == (4, 84, 140, 3)


# ---- planted heads ---------------------------------------------------------------------------------------------------
def test_planted_heads_attend_where_they_should(words: Tokenizer) -> None:
    """In `… A B … A`: head (0, 0) looks one token back, head (2, 0) at B. Without planting, both look about everywhere."""

    def weights(made: Any) -> tuple[float, float]:
        made.set_attn_implementation("eager")
        rng, back, found = Random(1), 0.0, 0.0
        for _ in range(10):
            line = rng.sample(range(20, 150), 12)
            with torch.no_grad():
                seen = made(input_ids=torch.tensor([[*line, line[4]]]), output_attentions=True).attentions
            back += float(seen[0][0, 0, range(1, 13), range(12)].mean()) / 10
            found += float(seen[2][0, 0, -1, 5]) / 10
        return back, found

    plain, made = architecture.build(QWEN, words, 3), architecture.build(QWEN, words, 3)
    planted.plant(made)
    back, found = weights(made)
    assert back > 0.9 and found > 0.3  # of 13 places
    back, found = weights(plain)
    assert back < 0.3 and found < 0.15


# ---- data ------------------------------------------------------------------------------------------------------------
def test_the_encoder_equals_the_chat_template(tmp_path: Path, words: Tokenizer, model: Any) -> None:
    from transformers import AutoTokenizer

    architecture.export(model, words, QWEN, tmp_path / "m", "card")
    stock = AutoTokenizer.from_pretrained(tmp_path / "m")
    sample = next(s for s in samples.stream(1, {"online": 1.0}) if s.clip is not None)
    content = [{"type": "text", "text": p} if isinstance(p, str) else {"type": "image"} for p in sample.request.messages[0].parts]
    text = stock.apply_chat_template([{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True)
    text = text.replace(QWEN.slot, QWEN.slot * patches.TOKENS)
    assert stock.encode(text, add_special_tokens=False) == data.Encoder(words, QWEN).prompt(sample.request)


def test_rows_repeat_and_batches_fit(tmp_path: Path, words: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "SHARD", 160)
    monkeypatch.setattr(clips, "SHARD", 330)
    encoder = data.Encoder(words, QWEN)
    rows = data.Rows(tmp_path / "a", encoder, {"perceive": 1.0, "copy": 1.0}, 1, "v")
    first = rows.shard(0, 0)
    assert first == data.Rows(tmp_path / "b", encoder, {"perceive": 1.0, "copy": 1.0}, 1, "v").shard(0, 0)
    assert first != rows.shard(1, 0)
    steps = rows.steps(0, 0, 900, 2)
    pool = clips.Pool(tmp_path / "clips", 1)
    batch = data.collate(next(part for parts in steps for part in parts if part[0].show is not None), encoder, pool, 1)
    assert batch.ids.numel() <= 900 or len(batch.tasks) == 1
    assert batch.pixels is not None and int(batch.slots.sum()) * 4 == len(batch.pixels)
    assert bool((batch.reply + batch.prompt <= 1).all()) and bool((batch.reply.sum(1) >= 2).all())


@pytest.mark.parametrize("name", sorted(PRIMERS))
def test_primers_are_seeded_and_balanced(name: str) -> None:
    pairs = [PRIMERS[name](Random(i)) for i in range(200)]
    assert pairs == [PRIMERS[name](Random(i)) for i in range(200)]
    if name == "equal":
        assert 60 < sum(reply == "Yes" for _, reply in pairs) < 140


# ---- optimizer and export --------------------------------------------------------------------------------------------
def test_muon_orthogonalises_and_state_survives() -> None:
    torch.manual_seed(1)
    values = torch.linalg.svdvals(orthogonal(torch.randn(2, 32, 80)))
    assert float(values.min()) > 0.5 and float(values.max()) < 1.3  # Newton-Schulz in bfloat16 is that loose by design

    def some() -> tuple[torch.nn.ParameterDict, Optimizer]:
        torch.manual_seed(2)
        ps = torch.nn.ParameterDict({"w": torch.randn(4, 4), "b": torch.zeros(4)})
        return ps, Optimizer([("layers.0.w", ps["w"]), ("layers.0.b", ps["b"])], 0.1)

    def push(ps: torch.nn.ParameterDict, optimizer: Optimizer, n: int) -> None:
        for p in ps.values():
            p.grad = p.detach() + n
        optimizer.step(1.0)

    (one, a), (two, b) = some(), some()
    push(one, a, 1)
    push(two, b, 1)
    resumed, c = some()
    resumed.load_state_dict(two.state_dict())
    c.restore(b.state())
    push(one, a, 2)
    push(resumed, c, 2)
    torch.testing.assert_close(dict(one.items()), dict(resumed.items()), rtol=0, atol=0)


@pytest.mark.parametrize("family", [QWEN, INTERN], ids=lambda f: f.name)
def test_an_export_loads_anywhere(tmp_path: Path, words: Tokenizer, family: architecture.Family) -> None:
    from transformers import AutoModelForImageTextToText, AutoTokenizer

    made = architecture.build(family, words, 3)
    assert sum(p.numel() for p in made.parameters()) < 8e6
    architecture.export(made, words, family, tmp_path / "m", "card")
    architecture.export(made, words, family, tmp_path / "m", "newer card")  # replaces the old folder
    assert (tmp_path / "m" / "README.md").read_text() == "newer card"
    assert sum(f.stat().st_size for f in (tmp_path / "m").iterdir()) < 16e6
    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path / "m", dtype=torch.bfloat16)
    ids = torch.tensor([AutoTokenizer.from_pretrained(tmp_path / "m").encode("the creature", add_special_tokens=False)])
    torch.testing.assert_close(loaded(input_ids=ids).logits, architecture.cast(made, torch.bfloat16)(input_ids=ids).logits)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]


def test_unknown_families_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"one of qwen2\.5-vl, internvl"):
        architecture.family_named("llava")
    with pytest.raises(ModelError, match="is no model folder"):
        architecture.load(tmp_path)
