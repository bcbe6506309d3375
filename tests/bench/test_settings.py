"""The six rows against the paper's Table 2, and the table that turns a row into behaviour."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.settings import SETTINGS, SHOWS, Album, Scene
from kg.graph import Entity
from models.requests import Picture

PICTURE = Picture(Path("x.png"), "d")
# name: (query vision, query human text, gold path, human captions, offline captions, online captions), MH-MMKG Table 2
TABLE_2 = {
    "vanilla": (1, 0, 0, 0, 0, 0),
    "vanilla+": (0, 1, 0, 0, 0, 0),
    "knowledgeable": (0, 1, 1, 1, 0, 0),
    "perceptive": (0, 1, 0, 1, 0, 0),
    "unaided-offline": (1, 0, 0, 0, 1, 0),
    "unaided-online": (1, 0, 0, 0, 0, 1),
}


def test_rows_are_table_2() -> None:
    assert list(SETTINGS) == list(TABLE_2)
    for name, setting in SETTINGS.items():
        seen = (
            setting.needs_query_media,
            "human" in setting.query_sees,
            setting.knowledge == "gold",
            setting.node_sees == "human",
            setting.needs_offline_captions,
            setting.needs_node_media,
        )
        assert tuple(map(int, seen)) == TABLE_2[name], name


def test_only_unaided_settings_perceive() -> None:
    assert [name for name, setting in SETTINGS.items() if setting.perceives] == ["unaided-offline", "unaided-online"]


@pytest.mark.parametrize("sees", list(SHOWS))
def test_human_text_is_never_shown_with_own_eyes(sees: str) -> None:
    text, frames = SHOWS[sees].query(Scene("human text", (PICTURE,), "own text"))  # type: ignore[index]
    entity = Entity(3, "Bite", "Pike", "move", (Path("x.png"),), None, "human caption", "info")
    view = SHOWS[sees].node(Album({3: (PICTURE,)}, {3: "offline caption"}))  # type: ignore[index]
    if sees == "human":
        assert (text, frames, view.caption(entity), view.frames(entity)) == ("human text", (), "human caption", ())
    else:
        assert text != "human text" and "human" not in view.caption(entity)
    assert bool(view.frames(entity)) == (sees in ("frames", "live"))


def test_nobody_asks_for_a_settings_name() -> None:
    bench = Path(__file__).parents[2] / "bench"
    for path in sorted(bench.glob("*.py")):
        if path.name in ("settings.py",):
            continue
        text = path.read_text(encoding="utf-8")
        for name in SETTINGS:
            assert f'"{name}"' not in text and f"'{name}'" not in text, f"{path.name} asks for the setting {name}"
