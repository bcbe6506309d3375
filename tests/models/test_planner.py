"""The planner on the published configs of Qwen2.5-VL and InternVL, and its refusals."""

import json
from pathlib import Path

import pytest

from models.__main__ import main
from models.cards import card_named, cards
from models.errors import ConfigError, ModelError
from models.planner import GIB, Need, degrees, plan, plan_cpu
from models.shape import Shape, read_shape, shape_of

GPU24, GPU48, GPU80 = 24 * GIB, 48 * GIB, 80 * GIB


def published(name: str, form: str = "native") -> Shape:
    card = card_named(name)
    return shape_of(card.config(form), round(card.parameters * 2), round(card.vision.parameters * 2))  # type: ignore[arg-type]


# (model, heads, kv heads, degrees up to 8, count of 24, 48 and 80 GiB GPUs that one replica takes at 8,192 tokens; None: more than 8)
TABLE = [
    ("Qwen2.5-VL-3B-Instruct", 16, 2, [1, 2, 4, 8], (1, 1, 1)),
    ("Qwen2.5-VL-7B-Instruct", 28, 4, [1, 2, 4], (1, 1, 1)),
    ("Qwen2.5-VL-32B-Instruct", 40, 8, [1, 2, 4, 8], (4, 2, 1)),
    ("Qwen2.5-VL-72B-Instruct", 64, 8, [1, 2, 4, 8], (8, 4, 4)),
    ("InternVL2_5-1B", 14, 2, [1, 2], (1, 1, 1)),
    ("InternVL2_5-8B", 32, 8, [1, 2, 4, 8], (1, 1, 1)),
    ("InternVL2_5-26B", 48, 8, [1, 2, 4, 8], (8, 2, 1)),
    ("InternVL2_5-78B", 64, 8, [1, 2, 4, 8], (None, 8, 4)),
    ("InternVL3-2B", 12, 2, [1, 2, 4], (1, 1, 1)),
    ("InternVL3-9B", 32, 2, [1, 2, 4, 8], (1, 1, 1)),
    ("InternVL3-14B", 40, 8, [1, 2, 4, 8], (2, 1, 1)),
    ("InternVL3-38B", 40, 8, [1, 2, 4, 8], (8, 4, 2)),
    ("InternVL3-78B", 64, 8, [1, 2, 4, 8], (None, 8, 4)),
]


@pytest.mark.parametrize(("name", "heads", "kv_heads", "possible", "_sizes"), TABLE)
def test_published_heads(name: str, heads: int, kv_heads: int, possible: list[int], _sizes: object) -> None:
    for form in card_named(name).forms:
        shape = published(name, form)
        assert (shape.heads, shape.kv_heads, degrees(shape, 8)) == (heads, kv_heads, possible)


@pytest.mark.parametrize(("name", "_h", "_k", "_d", "sizes"), TABLE)
def test_degree_of_one_replica(name: str, _h: int, _k: int, _d: object, sizes: tuple[int | None, ...]) -> None:
    shape = published(name, card_named(name).forms[0])
    for memory, expected in zip((GPU24, GPU48, GPU80), sizes, strict=True):
        if expected is None:
            with pytest.raises(ModelError):
                plan(shape, 8, [memory] * 8)
        else:
            assert plan(shape, 8, [memory] * 8).tensor_parallel == expected, f"{memory / GIB:.0f} GiB"


def test_every_card_is_planned_in_every_form() -> None:
    for card in cards().values():
        for form in card.forms:
            shape = published(card.name, form)
            assert shape.heads == card.language.heads > 1
            assert shape.is_internvl == card.family.startswith("internvl")
            assert shape.own_code == (form == "opengvlab")
            assert plan(shape, 8, [141 * GIB] * 8).replicas


def test_replicas_where_it_fits() -> None:
    chosen = plan(published("Qwen2.5-VL-7B"), 2, [GPU24] * 2, Need(context=8192))
    assert (chosen.tensor_parallel, chosen.replicas, chosen.idle) == (1, ((0,), (1,)), ())
    assert "2 replicas of 1 GPU each" in str(chosen)
    assert chosen.cache_tokens >= 2 * 8192


def test_what_is_left_over_is_said() -> None:
    chosen = plan(published("Qwen2.5-VL-72B"), 6, [GPU80] * 8)
    assert (chosen.tensor_parallel, chosen.replicas, chosen.idle) == (4, ((0, 1, 2, 3),), (4, 5))
    assert "2 GPUs left idle" in str(chosen)


def test_the_context_decides_too() -> None:
    shape = published("Qwen2.5-VL-7B")
    assert plan(shape, 4, [GPU24] * 4, Need(8192, 1)).tensor_parallel == 1
    assert plan(shape, 4, [GPU24] * 4, Need(120_000, 1)).tensor_parallel == 2


def test_28_heads_refuse_8_gpus_and_the_message_names_what_works() -> None:
    with pytest.raises(ModelError) as error:
        plan(published("Qwen2.5-VL-7B"), 8, [GPU24] * 8, tensor_parallel=8)
    assert "28 attention heads do not divide by 8" in str(error.value) and "1, 2, 4" in str(error.value)
    with pytest.raises(ModelError, match="7 divides the 28 attention heads but does not fit the 4 key-value heads"):
        plan(published("Qwen2.5-VL-7B"), 7, [GPU24] * 8, tensor_parallel=7)


@pytest.mark.parametrize("count", [-1, 0, 9, 10**6])
def test_counts_that_the_machine_does_not_have(count: int) -> None:
    with pytest.raises(ModelError, match=r"this machine has 8.*counts that work here: 1, 2, 3, 4, 5, 6, 7, 8"):
        plan(published("Qwen2.5-VL-3B"), count, [GPU24] * 8)


def test_too_few_gpus_names_the_counts() -> None:
    with pytest.raises(ModelError, match=r"does not fit on 3 .*counts that work here: 4, 5, 6, 7, 8$"):
        plan(published("Qwen2.5-VL-72B"), 3, [GPU80] * 8)
    with pytest.raises(ModelError, match="needs 4 GPUs of this size; this machine has 2"):
        plan(published("Qwen2.5-VL-72B"), 2, [GPU80] * 2)


def test_a_hopeless_model_and_a_smaller_context_that_would_do() -> None:
    with pytest.raises(ModelError, match=r"take larger GPUs, a smaller model or quantized weights"):
        plan(published("Qwen2.5-VL-72B"), 8, [8 * GIB] * 8)
    with pytest.raises(ModelError, match=r"--context (\d+) would") as error:
        plan(published("InternVL3-1B"), 8, [8 * GIB] * 8, Need(32768, 200))
    shorter = int(str(error.value).split("--context ")[-1].split()[0])
    assert plan(published("InternVL3-1B"), 8, [8 * GIB] * 8, Need(shorter, 200)).replicas


def test_unequal_gpus_are_planned_for_the_smallest() -> None:
    shape = published("Qwen2.5-VL-32B")
    assert plan(shape, 2, [GPU80, GPU80, GPU24]).tensor_parallel == 1
    with pytest.raises(ModelError):
        plan(shape, 3, [GPU80, GPU80, GPU24])


def test_no_gpu_and_too_long_a_context() -> None:
    with pytest.raises(ModelError, match=r"no GPU answers.*--gpu-memory"):
        plan(published("Qwen2.5-VL-3B"), 1, [])
    with pytest.raises(ModelError, match=r"made for 32,768 tokens, 40,000 are asked for"):
        plan(published("InternVL3-8B"), 1, [GPU80], Need(40_000))


def test_internvl_heads_lie_one_level_down(tmp_path: Path) -> None:
    config = card_named("InternVL3-78B").config("opengvlab")
    assert "num_attention_heads" not in config  # a planner that reads the top level alone finds none
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape, weights = read_shape(tmp_path)
    assert (shape.heads, shape.kv_heads, shape.layers) == (64, 8, 80)
    assert weights.faults == ("no *.safetensors file",)


def test_a_config_without_heads_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"hidden_size": 64, "num_hidden_layers": 2}}))
    with pytest.raises(ModelError, match=r"config.json: lacks num_attention_heads, intermediate_size, vocab_size"):
        read_shape(tmp_path)
    for broken in ("", "{", "[]", "[" * 100_000):
        (tmp_path / "config.json").write_text(broken)
        with pytest.raises(ModelError, match=r"config.json"):
            read_shape(tmp_path)


def test_the_cpu_plan() -> None:
    chosen = plan_cpu(published("Qwen2.5-VL-3B"), Need(4096), replicas=2, cache_gib=1)
    assert (chosen.device, len(chosen.replicas)) == ("cpu", 2)


@pytest.mark.parametrize(
    "words",
    [
        *(("--gpu-memory", one) for one in ("nan", "inf", "-80", "0", "1e300")),
        *(("--gpu-utilisation", one) for one in ("nan", "0", "1.5")),
        ("--gpus", str(10**12)),
        *((f"--{name}", one) for name in ("gpus", "context", "calls") for one in ("-1", "0")),
    ],
)
def test_options_that_mean_nothing_are_named(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "Qwen2.5-VL-7B-Instruct", *(() if "--gpu-memory" in words else ("--gpu-memory", "80")), *words]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"error: {words[0]} ") and not said.out


def test_an_unknown_card_is_answered_with_the_list() -> None:
    with pytest.raises(ConfigError, match=r"Qwen2.5-VL-7B-Instruct"):
        card_named("Qwen9-VL")
