"""Everything that would stop a server is found before it starts, all at once, and never by opening a pickle."""

import contextlib
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models import preflight
from models.cards import card_named
from models.engines import Workload
from models.errors import ModelError
from models.fleet import prepare
from models.placement import Placement
from models.planner import plan_cpu
from models.preflight import check, picture_tokens, require
from models.shape import read_shape, shape_of
from models.vllm_flags import ServeOptions, arguments, split_args
from models.weights import BadShard, look, read_header


def shard(path: Path, tensors: dict[str, list[int]]) -> None:
    """A sound safetensors file of BF16 zeros."""
    header, at = {}, 0
    for name, shape in tensors.items():
        size = 2
        for side in shape:
            size *= side
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole Qwen2.5-VL-7B folder, but for the size of its tensors."""
    here = tmp_path / "model"
    here.mkdir()
    (here / "config.json").write_text(json.dumps(card_named("Qwen2.5-VL-7B-Instruct").config()))
    (here / "tokenizer.json").write_text("{}")
    (here / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}))
    (here / "preprocessor_config.json").write_text(json.dumps({"patch_size": 14, "merge_size": 2, "max_pixels": 12_845_056}))
    shard(here / "model-00001-of-00002.safetensors", {"visual.a": [4, 4], "model.b": [8]})
    shard(here / "model-00002-of-00002.safetensors", {"model.c": [16]})
    placed = {"visual.a": 1, "model.b": 1, "model.c": 2}
    index = {"weight_map": {name: f"model-0000{n}-of-00002.safetensors" for name, n in placed.items()}}
    (here / "model.safetensors.index.json").write_text(json.dumps(index))
    return here


def misfits(folder: Path, context: int = 32_768, work: Workload | None = None, **options: Any) -> str:
    shape, weights = read_shape(folder)
    found = check(folder, shape, weights, ServeOptions("m", **options), context, work=work)
    return " | ".join(f"{one.what} — {one.remedy}" for one in found)


def test_a_whole_folder_passes(folder: Path) -> None:
    assert misfits(folder) == ""
    weights = look(folder)
    assert (weights.bytes, weights.vision_bytes, weights.parameters) == (80, 32, 40)


def test_all_misfits_at_once(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    (folder / "preprocessor_config.json").write_text("{")
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError) as error:
        _, _, found = prepare(folder, Placement(device="cpu"), ServeOptions("m", media=folder / "absent"))
        require(found, str(folder))
    said = str(error.value)
    assert "5 things must be put right first" in said
    for part in (
        "00002-of-00002.safetensors is missing",
        "no tokenizer",
        "preprocessor_config.json is not JSON",
        "no chat template",
        "absent",
    ):
        assert part in said


def test_a_missing_chat_template_names_the_file(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{}")
    assert f"put the model's chat template into {folder / 'chat_template.jinja'}" in misfits(folder)
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}")
    assert "the chat template in chat_template.jinja is broken" in misfits(folder)
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% if m %}{% break %}{% endif %}{% endfor %}")
    assert misfits(folder) == ""
    (folder / "chat_template.jinja").unlink()
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "{{ messages }}"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert misfits(folder) == ""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{% for m in messages %}{{ m.content + 1 }}{% endfor %}", "cannot be used: TypeError"),
        ("{{ raise_exception('no turns here') }}", "no turns here"),
        ("{% for m in messages %}{{ m.contents }}{% endfor %}", "leaves out what the user says"),
        ("{{ messages[3].content }}", "has no element 3"),
        ("{% for m in messages %}{{ m.content | tojsonn }}{% endfor %}", "No filter named 'tojsonn'"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "cannot be used: SecurityError"),
    ],
)
def test_a_chat_template_that_fails_only_when_it_is_used(folder: Path, source: str, said: str) -> None:
    (folder / "chat_template.jinja").write_text(source)
    assert said in misfits(folder)


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{% for part in m.content %}{{ part['text'] + '' }}{% endfor %}{% endfor %}",  # lists of parts only
        "{% for m in messages %}{{ m.content + '' }}{% endfor %}",  # texts only
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}{{ strftime_now('%d %b %Y') }}",
    ],
)
def test_a_chat_template_that_takes_one_form_of_content_is_fine(folder: Path, source: str) -> None:
    (folder / "chat_template.jinja").write_text(source)
    assert misfits(folder) == ""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a safetensors file"),
        (b"\x80\x04" + bytes(100), "looks like a pickle"),
        (b"PK\x03\x04" + bytes(100), "looks like a pickle"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 99\n", "Git LFS pointer"),
        (struct.pack("<Q", 10) + b"not json!!", "unreadable safetensors header"),
        (struct.pack("<Q", 2) + b"[]", "unreadable safetensors header"),
        (struct.pack("<Q", 2**60) + bytes(50), "is not a safetensors file"),
    ],
)
def test_damaged_shards(folder: Path, content: bytes, said: str) -> None:
    (folder / "model-00001-of-00002.safetensors").write_bytes(content)
    assert said in misfits(folder)


def test_a_shard_that_was_cut_short_or_lacks_a_tensor(folder: Path) -> None:
    whole = (folder / "model-00002-of-00002.safetensors").read_bytes()
    (folder / "model-00002-of-00002.safetensors").write_bytes(whole[:-1])
    assert "a download or a copy was cut short" in misfits(folder)
    shard(folder / "model-00002-of-00002.safetensors", {"model.other": [16]})
    assert "lacks 1 tensors" in misfits(folder) and "model.c" in misfits(folder)


def test_an_index_cannot_point_out_of_the_folder(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../../etc/passwd"}}))
    assert "outside the folder" in misfits(folder)
    (folder / "model.safetensors.index.json").write_text("[1]")
    assert "is not an index" in misfits(folder)
    (folder / "model.safetensors.index.json").unlink()
    assert "is missing beside 2 safetensors files" in misfits(folder)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("exploded", "w"))


def test_pickled_weights_are_named_and_never_opened(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for path in folder.glob("model*"):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    assert "only pickles (pytorch_model.bin)" in misfits(folder)
    (folder / "model.safetensors").write_bytes(pickle.dumps(Bomb()))
    assert "looks like a pickle" in misfits(folder)
    assert not (tmp_path / "exploded").exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_header_reader(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.safetensors"
    for content in (data, struct.pack("<Q", len(data)) + data):
        path.write_bytes(content)
        with contextlib.suppress(BadShard):
            assert isinstance(read_header(path), dict)


def test_local_code_needs_the_word(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(card_named("InternVL3-8B").config("opengvlab")))
    said = misfits(folder)
    assert "InternVLChatModel loads only with Python code that lies in the model's folder" in said
    assert "--trust-local-code" in said and "-hf form" in said
    assert misfits(folder, own_code=True) == ""
    (folder / "config.json").write_text(json.dumps(card_named("InternVL3-8B").config("native")))
    assert misfits(folder) == ""


def test_context_budget(folder: Path) -> None:
    ten = Workload(pictures=10, prompt_chars=6000, max_tokens=512)
    said = misfits(folder, work=ten)
    assert "10 pictures of up to 16,386 tokens, about 2,000 of text and 512 of reply are 166,372, the context holds 32,768" in said
    pixels = int(said.split("--max-pixels ")[1].split()[0])
    assert misfits(folder, work=ten, max_pixels=pixels) == ""
    assert misfits(folder, work=ten, max_pixels=pixels + 28 * 28 * 10) != ""
    assert "--context 200,000 is beyond the model's 128,000" in misfits(folder, context=200_000)


def test_a_context_that_is_not_given_grows_to_what_the_frames_need(folder: Path) -> None:
    """Ten frames of 1,024 pixels a side are about 1,400 tokens each; with pictures of any size the model's own budget counts."""
    cpu, options = Placement(device="cpu"), ServeOptions("m")

    def context(where: Placement, work: Workload | None) -> int:
        return prepare(folder, where, options, work=work)[1].context

    assert context(cpu, None) == context(cpu, Workload(max_tokens=400)) == 8192
    frames = Workload(10, max_tokens=400, pixels=1024**2)
    shape, _ = read_shape(folder)
    each = picture_tokens(folder, shape, options, 1024**2)
    assert 1024**2 // 28**2 < each <= 1053**2 // 28**2 + 2
    assert 10 * each + 400 + 4096 <= context(cpu, frames) < 10 * each + 400 + 4096 + 1024
    assert context(Placement(device="cpu", context=4096), frames) == 4096
    _, chosen, found = prepare(folder, cpu, options, work=Workload(10, max_tokens=400))
    assert chosen.context == shape.context and "--max-pixels" in found[-1].remedy


def test_pictures_allowed(folder: Path) -> None:
    said = misfits(folder, work=Workload(pictures=10), pictures=1, max_pixels=50_000)
    assert "calls hold up to 10 pictures, the server would allow 1 — --pictures 10" in said


def test_tokens_of_a_picture(folder: Path) -> None:
    shape, _ = read_shape(folder)
    assert picture_tokens(folder, shape, ServeOptions("m")) == 16_384 + 2
    assert picture_tokens(folder, shape, ServeOptions("m", max_pixels=112 * 112)) == 16 + 2
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": {"longest_edge": 12_544}, "patch_size": 14, "merge_size": 2}))
    assert picture_tokens(folder, shape, ServeOptions("m")) == 16 + 2
    for form, patch in (("native", [14, 14]), ("opengvlab", 14)):
        config = card_named("InternVL3-8B").config(form)  # type: ignore[arg-type]
        config["vision_config"] = {**config["vision_config"], "image_size": 448, "patch_size": patch}  # type: ignore[dict-item]
        (folder / "config.json").write_text(json.dumps(config))
        internvl, _ = read_shape(folder)
        assert picture_tokens(folder, internvl, ServeOptions("m")) == 13 * 256 + 2
        assert picture_tokens(folder, internvl, ServeOptions("m", max_tiles=1)) == 256 + 2


def test_versions_of_the_environment_that_vllm_belongs_to(folder: Path, tmp_path: Path) -> None:
    vllm = tmp_path / "venv" / "bin" / "vllm"
    site = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    for name in ("vllm-0.6.0", "transformers-4.48.3"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    vllm.parent.mkdir()
    shape, weights = read_shape(folder)
    found = check(folder, shape, weights, ServeOptions("m"), 8192, vllm=vllm)
    assert [one.what.split(",")[0] for one in found] == ["vllm 0.6.0 is installed", "transformers 4.48.3 is installed"]
    for path in site.iterdir():
        path.rename(site / {"vllm": "vllm-0.33.0+cu130.dist-info", "tran": "transformers-5.19.0.dist-info"}[path.name[:4]])
    assert check(folder, shape, weights, ServeOptions("m"), 8192, vllm=vllm) == []


def test_a_full_disk_and_a_bad_port(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_MIN_DISK", 2**62)
    shape, weights = read_shape(folder)
    found = check(folder, shape, weights, ServeOptions("m"), 8192, log_folder=tmp_path / "not" / "yet", port=70_000)
    assert "MiB free" in found[0].what and "port 70000" in found[1].what


def test_flags_of_each_family() -> None:
    for name, form, expected in (
        ("Qwen2.5-VL-7B-Instruct", "native", {"min_pixels": 3136, "max_pixels": 50_176}),
        ("InternVL3-8B", "native", {"max_patches": 4}),
        ("InternVL3-8B", "opengvlab", {"max_dynamic_patch": 4}),
    ):
        shape = shape_of(card_named(name).config(form), 1)  # type: ignore[arg-type]
        options = ServeOptions("m", min_pixels=3136, max_pixels=50_176, max_tiles=4)
        words = arguments(shape, plan_cpu(shape, preflight_need()), options, 8000)
        assert json.loads(words[words.index("--mm-processor-kwargs") + 1]) == expected
        assert "--trust-remote-code" not in words and "--mm-encoder-tp-mode" not in words


def preflight_need() -> Any:
    from models.planner import Need

    return Need(4096)


def test_flags_under_tensor_parallelism_and_overrides() -> None:
    from models.planner import GIB, plan

    shape = shape_of(card_named("Qwen2.5-VL-72B").config(), int(146e9), int(1.4e9))
    chosen = plan(shape, 4, [80 * GIB] * 4)
    words = arguments(shape, chosen, ServeOptions("m"), 8000)
    assert words[words.index("--tensor-parallel-size") + 1] == "4"
    assert words[words.index("--mm-encoder-tp-mode") + 1] == "data"
    extra = split_args("--max_model_len=999 -tp 2 --no-enable-prompt-tokens-details")
    words = arguments(shape, chosen, ServeOptions("m", extra=extra), 8000)
    assert "--max-model-len" not in words and "--tensor-parallel-size" not in words and "--enable-prompt-tokens-details" not in words
    assert words[-4:] == list(extra)
