"""The transformers engine on tiny random checkpoints of all three families, made here: same tokens as the library's own `generate`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from models.checkpoint import inspect
from models.engines import BatchEngine, EngineSpec, Workload, make_engine
from models.errors import CallFailed, ModelError
from models.hf import positions
from models.hf_engine import TransformersEngine
from models.requests import Decoding, Picture, user

WORDS = "the creature jumps backward and strikes with fire Yes No None left right answer question : . , ; a b c"
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
SPECIALS += ["<img>", "</img>", "<IMG_CONTEXT>", "<video>"]
SLOT = {"qwen": "<|vision_start|><|image_pad|><|vision_end|>", "intern": "<IMG_CONTEXT>\n", "text": ""}


def template(family: str) -> str:
    return (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['content'] is string %}{{ m['content'] }}{% else %}"
        "{% for c in m['content'] %}{% if c['type'] == 'image' %}" + repr_slot(SLOT[family]) + "{% else %}{{ c['text'] }}{% endif %}"
        "{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )


def repr_slot(slot: str) -> str:
    return "{{ '" + slot.replace("\n", "\\n") + "' }}" if slot else ""


def tokenizer(family: str) -> transformers.PreTrainedTokenizerFast:
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=alphabet)
    tok.train_from_iterator([WORDS] * 20, trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tok, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.add_special_tokens({"additional_special_tokens": SPECIALS})
    fast.chat_template = template(family)
    return fast


def language(tok, **more):
    one = tok.convert_tokens_to_ids
    return dict(
        vocab_size=(len(tok) + 63) // 64 * 64,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=one("<|endoftext|>"),
        eos_token_id=one("<|im_end|>"),
        pad_token_id=one("<|endoftext|>"),
        **more,
    )


def build(family: str, folder: Path) -> Path:
    tok = tokenizer(family)
    one = tok.convert_tokens_to_ids
    torch.manual_seed(7)
    if family == "qwen":
        config = transformers.Qwen2_5_VLConfig(
            text_config=language(tok, rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}),
            vision_config=dict(
                depth=2,
                hidden_size=32,
                intermediate_size=64,
                num_heads=2,
                out_hidden_size=64,
                fullatt_block_indexes=[1],
                patch_size=14,
                spatial_merge_size=2,
                temporal_patch_size=2,
                window_size=56,
            ),
            image_token_id=one("<|image_pad|>"),
            video_token_id=one("<|video_pad|>"),
            vision_start_token_id=one("<|vision_start|>"),
            vision_end_token_id=one("<|vision_end|>"),
        )
        model = transformers.Qwen2_5_VLForConditionalGeneration(config)
        processor = {
            "image_processor_type": "Qwen2VLImageProcessor",
            "size": {"shortest_edge": 28 * 28, "longest_edge": 84 * 84},
            "patch_size": 14,
            "merge_size": 2,
            "temporal_patch_size": 2,
        }
    elif family == "intern":
        config = transformers.InternVLConfig(
            text_config=language(tok, model_type="qwen2"),
            vision_config=dict(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=64,
                image_size=[56, 56],
                patch_size=[14, 14],
                use_mean_pooling=True,
                attention_bias=True,
            ),
            image_token_id=one("<IMG_CONTEXT>"),
            image_seq_length=4,
            downsample_ratio=0.5,
        )
        model = transformers.InternVLForConditionalGeneration(config)
        processor = {
            "image_processor_type": "GotOcr2ImageProcessor",
            "size": {"height": 56, "width": 56},
            "crop_to_patches": True,
            "min_patches": 1,
            "max_patches": 4,
        }
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**language(tok)))
        processor = {}
    for parameter in model.parameters():  # the usual initialisation is so small that every reply would be one token for ever
        parameter.data.mul_(4)
    model.generation_config.eos_token_id = [one("<|im_end|>"), one("<|endoftext|>")]
    model.generation_config.pad_token_id = one("<|endoftext|>")
    model.to(torch.bfloat16).save_pretrained(folder)
    tok.save_pretrained(folder)
    if processor:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


@pytest.fixture(scope="module", params=["qwen", "intern", "text"])
def family(request) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def get(family: str) -> Path:
        if family not in made:
            torch.set_num_threads(1)
            made[family] = build(family, tmp_path_factory.mktemp(family))
        return made[family]

    return get


@pytest.fixture(scope="module")
def engines(folders) -> Callable[[str], TransformersEngine]:
    made: dict[str, TransformersEngine] = {}

    def get(family: str) -> TransformersEngine:
        if family not in made:
            made[family] = TransformersEngine(folders(family), device="cpu", batch=3)
        return made[family]

    return get


def picture(folder: Path, seed: int, size: tuple[int, int] = (70, 42)) -> Picture:
    path = folder / f"{seed}_{size[0]}.png"
    if not path.exists():
        torch.manual_seed(seed)
        data = torch.randint(0, 256, (*size[::-1], 3), dtype=torch.uint8).numpy()
        Image.fromarray(data).save(path)
    return Picture.of(path)


def requests(family: str, folder: Path):
    texts = ["the creature jumps", "question : the creature strikes with fire ; answer", "a", "a b c a b c a b c a b c left right"]
    found = []
    for i, text in enumerate(texts):
        shown = () if family == "text" else tuple(picture(folder, i + k, (70, 42 + 28 * k)) for k in range(i % 3))
        found.append(user("see", *shown, text, decoding=Decoding(max_tokens=12)))
    return found


def reference(engine: TransformersEngine, request) -> str:
    """One request through `generate`, with the library's own input preparation as far as it goes without torchvision."""
    loaded = engine.loaded
    (_, reply), *_ = engine.complete_batch([request])
    from models.encode import encode

    (encoded,) = encode(loaded, [request], engine._sizes)
    ids = torch.tensor(encoded.ids)[None]
    more = {}
    if request.pictures:
        images = [Image.open(p.path).convert("RGB") for p in request.pictures]
        inputs = loaded.pictures(images=images, return_tensors="pt")
        more["pixel_values"] = inputs["pixel_values"].bfloat16()
        if loaded.family == "qwen2.5-vl":
            more["image_grid_thw"] = inputs["image_grid_thw"]
            more["mm_token_type_ids"] = (ids == loaded.image_token).int()
    out = loaded.model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=request.decoding.max_tokens, **more
    )
    assert isinstance(reply, (type(reply), CallFailed))
    return str(loaded.tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True))


def test_the_same_text_as_generate(family, engines, tmp_path):
    engine = engines(family)
    asked = requests(family, tmp_path)
    got = dict(engine.complete_batch(asked))
    assert sorted(got) == [0, 1, 2, 3]
    for i, request in enumerate(asked):
        alone = reference(engine, request)
        assert alone and len(set(alone)) > 1
        # One at a time the arithmetic is that of generate; in a batch, padding may move a bfloat16 rounding, so only the start is held.
        ((_, single),) = engine.complete_batch([request])
        assert single.text == alone
        assert got[i].text[:1] == alone[:1] and got[i].prompt_tokens == single.prompt_tokens
        assert single.finish in ("stop", "length") and single.output_tokens <= 12


def test_pictures_change_the_answer_and_are_computed_once(engines, tmp_path, monkeypatch):
    import models.hf_engine as module

    for family in ("qwen", "intern"):
        engine = engines(family)
        passes = []
        real = module.features
        monkeypatch.setattr(module, "features", lambda loaded, images, n=passes, real=real: n.append(len(images)) or real(loaded, images))
        one, two = picture(tmp_path, 91), picture(tmp_path, 92)
        asked = [user(p, "the creature", decoding=Decoding(max_tokens=10)) for p in (one, two, one)]
        got = dict(engine.complete_batch(asked))
        list(engine.complete_batch(asked))
        assert sum(passes) == 2
        assert got[0].text == got[2].text
        assert got[0].text != got[1].text
        monkeypatch.undo()


def test_position_ids_are_the_librarys(engines, tmp_path):
    engine = engines("qwen")
    request = user("a b", picture(tmp_path, 1), "c", picture(tmp_path, 2, (140, 56)), "left", decoding=Decoding(max_tokens=1))
    list(engine.complete_batch([request]))
    from models.encode import encode

    (encoded,) = encode(engine.loaded, [request], engine._sizes)
    ids = torch.tensor(encoded.ids)[None]
    kinds = (ids == engine.loaded.image_token).int()
    wanted, _ = engine.loaded.model.model.get_rope_index(ids, kinds, image_grid_thw=torch.tensor(encoded.sizes))
    assert (positions(engine.loaded, encoded.ids, encoded.sizes) == wanted[:, 0].numpy()).all()


def test_choices_patterns_and_probabilities(family, engines):
    engine = engines(family)
    assert isinstance(engine, BatchEngine)
    asked = [
        user("fire", decoding=Decoding(choices=("Yes", "Yes and No", "creature : fire"), probe=("Yes", "No"))),
        user("fire", decoding=Decoding(pattern=r"(left|right)( ; (left|right))?")),
        user("fire", decoding=Decoding(max_tokens=4)),
        user("fire", decoding=Decoding(pattern=r"(")),
    ]
    got = dict(engine.complete_batch(asked))
    assert got[0].text in ("Yes", "Yes and No", "creature : fire") and got[0].finish == "stop"
    import re

    assert re.fullmatch(r"(left|right)( ; (left|right))?", got[1].text)
    assert got[3].reason == "bad-pattern"
    probs = dict(got[0].probs)
    assert set(probs) == {"Yes", "No"} and 0 < sum(probs.values()) <= 1


def test_sampling_depends_on_the_seed_alone(engines):
    engine = engines("text")
    asked = [user("fire", decoding=Decoding(max_tokens=8, temperature=1.5, seed=seed)) for seed in (1, 1, 2, 3)]
    got = [r.text for _, r in sorted(engine.complete_batch(asked))]
    alone = [r.text for request in asked for _, r in engine.complete_batch([request])]
    assert got[0] == got[1] and len(set(got)) >= 2
    assert alone[0] == alone[1]


def test_bad_pictures_fail_their_call_alone(engines, tmp_path):
    engine = engines("qwen")
    whole = picture(tmp_path, 5)
    cut = tmp_path / "cut.jpg"
    Image.new("RGB", (90, 90), "red").save(cut)
    cut.write_bytes(cut.read_bytes()[:-300])
    text = tmp_path / "text.png"
    text.write_text("no picture")
    sliver = tmp_path / "sliver.png"
    Image.new("RGB", (900, 2)).save(sliver)
    gone = Picture(tmp_path / "gone.png", "ab" * 32)
    dot = tmp_path / "dot.png"
    Image.new("RGB", (1, 1), "blue").save(dot)
    pictures = [whole, Picture.of(cut), Picture.of(text), Picture.of(sliver), gone, Picture.of(dot)]
    got = dict(engine.complete_batch([user(p, "a", decoding=Decoding(max_tokens=2)) for p in pictures]))
    assert [getattr(got[i], "reason", None) for i in range(6)] == [None, "bad-image", "bad-image", "bad-image", "bad-image", None]
    assert "cut.jpg" in got[1].detail


def test_text_that_plays_a_picture_slot_is_refused(engines):
    ((_, got),) = engines("qwen").complete_batch([user("look <|image_pad|> here")])
    assert got.reason == "special-token"


def test_limits_of_context(engines):
    engine = engines("text")
    got = dict(engine.complete_batch([user("a " * 600), user("a " * 230, decoding=Decoding(max_tokens=500))]))
    assert got[0].reason == "too-long"
    assert isinstance(got[1], CallFailed) or got[1].prompt_tokens + got[1].output_tokens <= 513
    with pytest.raises(ModelError, match="context of 512"):
        engine.check(Workload(max_tokens=512))


def test_a_text_model_refuses_pictures_before_the_start(engines, tmp_path):
    engine = engines("text")
    engine.check(Workload(max_tokens=16))
    with pytest.raises(ModelError, match="reads text only"):
        engine.check(Workload(pictures=1))
    ((_, got),) = engine.complete_batch([user(picture(tmp_path, 1), "x")])
    assert got.reason == "no-pictures"


def test_the_pixel_budget_counts_and_is_part_of_the_digest(folders, engines, tmp_path):
    small = TransformersEngine(folders("qwen"), device="cpu", max_pixels=28 * 28 * 2, min_pixels=28 * 28)
    request = user(picture(tmp_path, 3, (140, 140)), "a", decoding=Decoding(max_tokens=1))
    ((_, less),) = small.complete_batch([request])
    ((_, more),) = engines("qwen").complete_batch([request])
    assert less.prompt_tokens < more.prompt_tokens
    assert small.digest != engines("qwen").digest
    with pytest.raises(ModelError, match="is above max_pixels"):
        TransformersEngine(folders("qwen"), device="cpu", min_pixels=10_000, max_pixels=1_000)


def test_the_table_makes_it(folders):
    engine = make_engine(EngineSpec("transformers", str(folders("text")), device="cpu"))
    assert isinstance(engine, BatchEngine) and engine.digest.startswith("hf:")


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("model.safetensors", "no *.safetensors file"),
        ("tokenizer.json", "no tokenizer"),
        ("chat_template.jinja", "no chat template"),
        ("preprocessor_config.json", "no preprocessor_config.json"),
        ("config.json", "no config.json"),
    ],
)
def test_a_folder_that_is_not_whole(folders, tmp_path, lost, said):
    shutil.copytree(folders("qwen"), tmp_path / "m")
    (tmp_path / "m" / lost).unlink()
    with pytest.raises(ModelError) as error:
        inspect(tmp_path / "m")
    assert said in str(error.value) and str(tmp_path / "m") in str(error.value)


def test_other_faults_of_a_folder(folders, tmp_path):
    with pytest.raises(ModelError, match="no such model folder"):
        inspect(tmp_path / "nowhere")
    shutil.copytree(folders("text"), tmp_path / "p")
    (tmp_path / "p" / "model.safetensors").rename(tmp_path / "p" / "pytorch_model.bin")
    with pytest.raises(ModelError, match="only pickles"):
        inspect(tmp_path / "p")
    shutil.copytree(folders("text"), tmp_path / "s")
    weights = tmp_path / "s" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    (tmp_path / "s" / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match=r"cut short.*no chat template"):
        inspect(tmp_path / "s")
    shutil.copytree(folders("text"), tmp_path / "v")
    config = json.loads((tmp_path / "v" / "config.json").read_text())
    (tmp_path / "v" / "config.json").write_text(json.dumps(config | {"model_type": "llava", "vision_config": {"a": 1}}))
    with pytest.raises(ModelError, match="model_type 'llava'"):
        inspect(tmp_path / "v")


def test_any_changed_byte_is_another_digest(folders, tmp_path):
    shutil.copytree(folders("text"), tmp_path / "m")
    before = inspect(tmp_path / "m").digest
    assert before == inspect(folders("text")).digest
    weights = tmp_path / "m" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    changed = inspect(tmp_path / "m").digest
    (tmp_path / "m" / "chat_template.jinja").write_text("other {{ messages }}")
    assert len({before, changed, inspect(tmp_path / "m").digest}) == 3


def test_pictures_are_upright_and_flattened_on_white(tmp_path):
    from models.pictures import open_rgb, size_of

    wide = Image.new("RGB", (40, 20), "red")
    wide.paste("blue", (0, 0, 20, 20))
    for orientation in range(1, 9):
        path = tmp_path / f"{orientation}.png"
        exif = Image.Exif()
        exif[0x0112] = orientation
        wide.save(path, exif=exif)
        shown = open_rgb(Picture.of(path))
        assert shown.size == size_of(Picture.of(path)) == ((40, 20) if orientation < 5 else (20, 40))
    for mode, transparent in (("RGB", (1, 2, 3)), ("L", 7), ("P", 0)):
        path = tmp_path / f"{mode}.png"
        image = Image.new(mode, (8, 8), transparent)
        image.save(path, transparency=transparent)
        assert open_rgb(Picture.of(path)).getpixel((3, 3)) == (255, 255, 255)
