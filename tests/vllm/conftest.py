"""Real vLLM on a CPU: the marker, and the environment of scripts/make_vllm_venv.sh that these tests need. Skips with the reason."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VLLM = ROOT / ".venv-vllm" / "bin" / "vllm"
# The project's own tiny trained model first, then the prototype that lies beside a checkout.
CHECKPOINTS = (ROOT / "models" / "tiny-qwen2.5-vl", ROOT.parent / "shared" / "tiny_vlm" / "checkpoint")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "vllm: starts real vllm servers on a CPU; minutes (deselect with -m 'not vllm')")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.fspath).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.vllm)


@pytest.fixture(scope="session")
def vllm() -> Path:
    """The `vllm` command."""
    if not (VLLM.parent.parent / "stamp").is_file():
        pytest.skip("no .venv-vllm: run scripts/make_vllm_venv.sh (2.5 GB)")
    return VLLM


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """A tiny Qwen2.5-VL."""
    found = next((path for path in CHECKPOINTS if (path / "config.json").is_file()), None)
    if found is None:
        pytest.skip("no tiny Qwen2.5-VL checkpoint: models/tiny-qwen2.5-vl is not there")
    return found
