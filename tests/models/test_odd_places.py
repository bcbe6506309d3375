"""Places that are no places: pipes for files, a home of nobody, a reader who has left."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from models.checkpoint import inspect
from models.errors import ModelError
from models.locate import locate

ROOT = Path(__file__).parents[2]
TINY = ROOT / "models" / "tiny-qwen2.5-vl"


@pytest.mark.parametrize("name", sorted(path.name for path in TINY.iterdir() if path.suffix in (".json", ".safetensors", ".jinja")))
def test_a_pipe_in_a_models_folder_is_told_and_never_opened(name: str, tmp_path: Path) -> None:
    for path in TINY.iterdir():
        if path.name != name:
            (tmp_path / path.name).symlink_to(path)
    os.mkfifo(tmp_path / name)
    with pytest.raises(ModelError, match=f"{name}: no file but a pipe"):
        inspect(tmp_path)


def test_the_home_of_nobody_is_a_missing_folder() -> None:
    with pytest.raises(ModelError, match="no model folder '~nobody-at-all/model'"):
        locate("~nobody-at-all/model")


@pytest.mark.parametrize("words", [[], ["switches"], ["list", "--in", "models"]], ids=lambda words: " ".join(words) or "help")
def test_a_reader_who_leaves_is_no_traceback(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "models", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    os.close(write)
    assert done.stderr == "" and done.returncode == 0
