"""Options: what arrives, from where, and what is refused, with which words."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.config import NOT_PREDICTING, RunConfig, add_arguments, from_arguments, parse_set, resolve
from bench.workshop import spec_of
from models.errors import ConfigError


def parsed(*arguments: str) -> RunConfig:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return from_arguments(parser.parse_args(arguments))


def test_values_arrive_whole() -> None:
    assert parsed("--set", "name=Bob's").name == "Bob's"
    assert parsed("--set", 'tags=["A, B","C=D"]').tags == ("A, B", "C=D")
    assert parsed("--set", "model=a=b,c 'd'").model == "a=b,c 'd'"
    assert parsed("--set", "name=").name == ""


@pytest.mark.parametrize("text", ["1e5", "no", "007", "2024-01-01", "a: b: c", "@x", "{", "null and void", "[1]"])
def test_text_options_take_any_text(text: str) -> None:
    assert parsed("--set", f"name={text}").name == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_arrives(text: str) -> None:
    assert resolve(flags={"name": text}).name == text
    if text.lstrip()[:1] not in ("'", '"') and text.strip() not in ("null", "~"):
        assert resolve(sets=[f"name={text}"]).name == text


def test_order_is_file_then_set_then_flag(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("k: 1\nlimit: 7\nmax-side: 336\nroles: {validator: A}\n")
    config = parsed("--config", str(path), "--set", "k=2", "--k", "3", "--set", "roles.validator.endpoint=http://h/v1")
    assert (config.k, config.limit, config.max_side) == (3, 7, 336)
    assert config.roles["validator"].model == "A" and config.roles["validator"].endpoint == "http://h/v1"


def test_flags_can_be_switched_off() -> None:
    assert parsed("--no-ask-name").ask_name is False and parsed("--ask-name").ask_name is True
    assert parsed("--set", "ask-extra=false").ask_extra is False
    assert parsed("--k", "all").k == "all" and parsed("--k", "3").k == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limt": 3}, "unknown option 'limt' (did you mean 'limit'?)"),
        ({"k": 0.5}, "option 'k' came as '0.5': input should be a valid integer or 'all' —"),
        ({"k": "x"}, "option 'k' came as 'x': input should be a valid integer or 'all' —"),
        ({"k": 0}, "option 'k' came as '0': input should be greater than or equal to 1 or 'all' —"),
        ({"limit": 0}, "greater than or equal to 1"),
        ({"settings": "perceptve"}, "did you mean 'perceptive'?"),
        ({"settings": "vanilla,vanilla"}, "listed twice"),
        ({"settings": ""}, "no settings"),
        ({"roles": {"judgge": "x"}}, "unknown role 'judgge'"),
        ({"roles": {"judge": {"modl": "x"}}}, "unknown option 'roles.judge.modl'"),
        ({"order": "random"}, "'bfs' or 'dfs'"),
        ({"keyframes": "humn"}, "did you mean 'human'?"),
        ({"ask_name": "maybe"}, "valid boolean"),
        ({"limit": True}, "option 'limit' came as True, and it is no switch"),
        ({"temperature": False}, "option 'temperature' came as False"),
        ({"judge_endpoint": "http://h/v1"}, "give --judge with"),
        ({"vllm_args": "'"}, "--vllm-args are for a vLLM of ours"),
        ({"runs": ""}, "--runs is empty"),
        ({"captions": " "}, "--captions is empty"),
    ],
)
def test_refusals_name_the_option_and_what_is_allowed(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(flags=options)
    assert said in str(caught.value)


def test_all_faults_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(flags={"limt": 1, "order": "x", "roles": {"nobody": "m"}})
    assert all(word in str(caught.value) for word in ("limt", "order", "nobody"))


@pytest.mark.parametrize("body", ["- a\n- b\n", "a: [", "\xff\xfe", "a: " + "[" * 3000])
def test_broken_files_are_named(tmp_path: Path, body: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(body.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"c\.yaml"):
        resolve(file=path)


@pytest.mark.parametrize("text", ["k", "=3", ""])
def test_set_without_key_or_value(text: str) -> None:
    with pytest.raises(ConfigError, match="key=value"):
        parse_set(text)


def test_not_predicting_options_exist() -> None:
    assert set(RunConfig.model_fields) >= NOT_PREDICTING


def test_judges() -> None:
    assert RunConfig(model="m", endpoint="http://h/v1").judges_itself
    other = RunConfig(model="m", endpoint="http://h/v1", judge="j").judge_backend
    assert other is not None and (other.model, other.endpoint) == ("j", "http://h/v1")
    assert RunConfig(judge="exact").judge_backend is None and not RunConfig(judge="exact").judges_itself
    assert not RunConfig(model="m", roles={"judge": {"model": "j"}}).judges_itself  # type: ignore[dict-item]


def test_a_server_of_ours_finds_its_folder_of_pictures_in_a_fresh_checkout(tmp_path: Path) -> None:
    config = parsed("--set", "engine=vllm", "--set", "gpu=1")
    spec = spec_of(config.backends["agent"], config, tmp_path / "fresh" / ".cache")
    assert spec.serving is not None and spec.serving.media is not None and spec.serving.media.is_dir()


@pytest.mark.parametrize(
    ("model", "prompts"),
    [("models/tiny-qwen2.5-vl", "compact"), ("/else/where/tiny-internvl/", "compact"), ("/models/Qwen2.5-VL-7B-Instruct", "full")],
)
def test_the_tiny_models_get_their_prompts_wherever_they_lie(model: str, prompts: str) -> None:
    assert RunConfig(model=model).prompt_set == prompts
