"""A real server of the other architecture: a tiny random InternVL (-hf form), whose answers mean nothing."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from models.fleet import Fleet, serve
from models.placement import Placement
from models.preflight import picture_tokens
from models.requests import Completion, Decoding, Picture, user
from models.shape import read_shape
from models.vllm_flags import ServeOptions


@pytest.fixture
def fleet(one_server: Any, vllm: Path, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    folder = tmp_path_factory.mktemp("internvl") / "model"
    maker = Path(__file__).with_name("make_tiny.py")
    subprocess.run([vllm.with_name("python"), maker, "internvl", folder], check=True, capture_output=True, timeout=600)
    options = ServeOptions("tiny", pictures=10, sequences=16, max_tiles=2)
    where = Placement(device="cpu", context=4096)
    made: Fleet = one_server.use("internvl", lambda: serve(folder, where, options, log_folder=folder.parent, vllm=str(vllm)))
    return made


def test_pictures_choice_and_the_tile_budget(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "wide.png"
    Image.new("RGB", (448, 112), (200, 90, 20)).save(path)
    requests = [user(*[Picture.of(path)] * n, "What?", decoding=Decoding(max_tokens=4)) for n in (1, 3, 10)]
    requests.append(user("Is it so?", decoding=Decoding(max_tokens=4, choices=("Yes", "No"))))

    async def all_of() -> list[Completion]:
        engine = fleet.engine()
        await engine.open()
        try:
            return [await engine.complete(request) for request in requests]
        finally:
            await engine.close()

    one, three, ten, choice = asyncio.run(all_of())
    assert one.prompt_tokens is not None and three.prompt_tokens is not None and ten.prompt_tokens is not None
    each = (three.prompt_tokens - one.prompt_tokens) / 2
    assert ten.prompt_tokens - three.prompt_tokens == 7 * each
    shape, _ = read_shape(fleet.folder)
    assert 0 < each <= picture_tokens(fleet.folder, shape, fleet.options) + 2  # and the line break of the template
    assert choice.text in ("Yes", "No")
