"""The embedded model, for real: real pixels, real agents, all six settings on a small world whose names it has never seen.

Every accuracy, path measure and topic accuracy stays within its 95 % interval around what this checkpoint scored when it was shipped
(embedded.json, made by the command that stands in it), so that a prompt, a parser, a frame or the search that breaks is noticed. Words are
compared, not judged.
"""

from pathlib import Path
from typing import Any

import pytest

from bench.config import EMBEDDED_MODEL
from bench.settings import SETTINGS
from bench.tiny import regression
from bench.tiny.endtoend import Worlds, measure

ROOT = Path(__file__).parents[2]
EXPECTED = regression.read(Path(__file__).with_name("embedded.json"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return measure(ROOT / EMBEDDED_MODEL, regression.WORLD, tmp_path_factory.mktemp("embedded"))


def test_the_figures_are_of_this_checkpoint_and_this_world() -> None:
    assert EXPECTED["weights"] == regression.weights_digest(ROOT / EMBEDDED_MODEL), f"another checkpoint: {regression.COMMAND}"
    asked = Worlds(tuple(world["seed"] for world in EXPECTED["worlds"]), EXPECTED["worlds"][0]["creatures"])
    assert asked == regression.WORLD, f"another world: {regression.COMMAND}"


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_stays_within_its_intervals(found: dict[str, Any], setting: str) -> None:
    assert found["questions"] == EXPECTED["questions"]
    only = {"settings": {setting: EXPECTED["settings"][setting]}}
    assert regression.outside(only, found) == []


@pytest.mark.parametrize("setting", ["vanilla", "vanilla+"])
def test_nothing_is_known_without_the_graph(found: dict[str, Any], setting: str) -> None:
    accuracy = found["settings"][setting]["acc"]
    assert accuracy["right"] <= 0.25 * accuracy["total"]
