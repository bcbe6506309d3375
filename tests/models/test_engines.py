"""The table of engines: every row can be checked before it is opened, opened by its name, and told apart in the journal's keys."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models.engines import CHECKS, ENGINES, EngineSpec, Stoppable, check_spec, make_engine
from models.errors import ConfigError, ModelError
from models.managed import ManagedEngine
from models.placement import Placement, plan_for
from models.shape import read_shape

TINY = Path(__file__).parents[2] / "models" / "tiny-qwen2.5-vl"


def test_every_engine_has_a_check() -> None:
    assert ENGINES.keys() == CHECKS.keys()
    for act in (make_engine, check_spec):
        with pytest.raises(ConfigError, match=r"unknown engine 'sglang'.*vllm-offline"):
            act(EngineSpec("sglang", "m"))


def test_addresses_are_looked_at_and_not_asked() -> None:
    check_spec(EngineSpec("openai", "m", ("http://127.0.0.1:9/v1",)))
    with pytest.raises(ConfigError, match="'localhost:8000' is no address"):
        check_spec(EngineSpec("openai", "m", ("http://127.0.0.1:9/v1", "localhost:8000")))


@pytest.mark.parametrize("kind", ["transformers", "vllm", "vllm-offline"])
def test_a_folder_that_is_not_there(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model folder"):
        check_spec(EngineSpec(kind, str(tmp_path / "absent"), where=Placement(device="cpu")))


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="this Python has vllm")
def test_vllm_in_a_python_without_it_is_refused_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    where = Placement(device="cpu", context=2048)
    with pytest.raises(ModelError, match="this Python has no vllm"):
        check_spec(EngineSpec("vllm-offline", str(TINY), where=where))
    monkeypatch.setenv("VLLM", str(tmp_path / "vllm"))
    with pytest.raises(ModelError, match="no executable"):
        check_spec(EngineSpec("vllm", str(TINY), where=where))


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="this Python has ray")
def test_ray_where_it_is_not_installed() -> None:
    with pytest.raises(ModelError, match="this Python has no ray"):
        check_spec(EngineSpec("vllm-ray", str(TINY)))


def test_an_identity_names_the_model_on_whatever_address_it_is_served() -> None:
    def digest(port: int, identity: str = "") -> str:
        return make_engine(EngineSpec("openai", "m", (f"http://127.0.0.1:{port}/v1",), identity=identity)).digest

    assert digest(1, "weights") == digest(2, "weights") != digest(1, "other weights")
    assert digest(1) != digest(2)


def test_a_managed_engine_can_be_stopped_and_a_client_cannot(server: Any) -> None:
    client = make_engine(EngineSpec("openai", "tiny", (server.url,)))
    assert not isinstance(client, Stoppable)
    ended: list[bool] = []

    class Fleet:
        restarting, crashes = False, 0
        check = staticmethod(lambda: None)
        stop = staticmethod(lambda: ended.append(True))

    engine = ManagedEngine(client, Fleet())  # type: ignore[arg-type]
    assert isinstance(engine, Stoppable)
    engine.stop()
    assert ended == [True]


@pytest.mark.parametrize(("asked", "planned"), [(None, 8192), (1024, 1024), (10**6, 32_768)])
def test_a_context_that_is_not_given_is_8192_or_the_models_own(asked: int | None, planned: int, tmp_path: Path) -> None:
    config = (TINY / "config.json").read_text()
    (tmp_path / "config.json").write_text(config)
    shape, _ = read_shape(tmp_path)
    where = Placement(device="cpu", context=asked)
    assert plan_for(shape, where).context == min(planned, shape.context)


def test_a_device_that_there_is_not() -> None:
    make: Callable[..., Placement] = Placement
    with pytest.raises(ConfigError, match="device 'tpu' — cuda or cpu"):
        make(device="tpu")
