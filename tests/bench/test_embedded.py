"""The embedded model, for real: real pixels, real agents, all six settings on a small world whose names it has never seen.

The bounds lie below what the checkpoint scores here (docs/tiny.md), so that a prompt, a parser, a frame or the search that breaks is
noticed. Words are compared, not judged.
"""

from pathlib import Path

import pytest

from bench.config import EMBEDDED_MODEL, RunConfig
from bench.records import Record
from bench.rows import settings_suite
from bench.run import report, run_suite
from bench.world.write import write_world

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    folder = tmp_path_factory.mktemp("embedded")
    write_world(folder / "world", seed=41, creatures=4, clips=None, keyframes=True, workers=2)
    config = RunConfig(
        data=str(folder / "world"),
        model=str(ROOT / EMBEDDED_MODEL),
        prompts="compact",
        judge="exact",
        runs=str(folder / "runs"),
        similarity=False,
    )
    run = run_suite("settings", settings_suite(config), config, cache=folder / "cache")
    records: list[Record] = list(run.records().values())
    assert all(record.ok for record in records), [record for record in records if not record.ok]
    summary = report(run)
    return {row["label"]: {name: cell["mean"] for name, cell in row["cells"].items()} for row in summary["rows"]}


@pytest.mark.parametrize(
    ("setting", "least"),
    [("knowledgeable", 0.80), ("perceptive", 0.60), ("unaided-offline", 0.55), ("unaided-online", 0.50)],
)
def test_accuracy_does_not_fall(cells: dict[str, dict[str, float]], setting: str, least: float) -> None:
    assert cells[setting]["acc"] >= least


@pytest.mark.parametrize("setting", ["vanilla", "vanilla+"])
def test_nothing_is_known_without_the_graph(cells: dict[str, dict[str, float]], setting: str) -> None:
    assert cells[setting]["acc"] <= 0.25


@pytest.mark.parametrize("setting", ["perceptive", "unaided-offline", "unaided-online"])
def test_the_search_finds_its_way(cells: dict[str, dict[str, float]], setting: str) -> None:
    assert cells[setting]["topic"] >= 0.95
    assert cells[setting]["rec"] >= 0.60
    assert cells[setting]["pre"] >= 0.50
