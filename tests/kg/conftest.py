"""Data sets of this room's tests: real .xlsx, .csv and .jsonl files in a temporary folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from kg.load_mh import NODE_HEADER, QUESTION_HEADER, RELATION_HEADER
from kg.write_xlsx import write_sheet

Rows = list[Sequence[Any]]

# No test may fail because the machine is busy.
settings.register_profile("unhurried", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@dataclass
class MhFolder:
    """A small sound data set in the MH layout, to be changed before `write`."""

    folder: Path
    nodes: dict[str, Rows] = field(
        default_factory=lambda: {
            "Oru": [
                ("Oru", "", "", "", "Nicknamed the Lamp."),
                ("Calm Phase", "", "", "", ""),
                ("Leap", "", "", "Oru jumps.", ""),
                ("Spark", "", "", "Oru glows.", ""),
                ("Fire Element", "", "", "", ""),
            ],
            "Vex": [("Vex", "", "", "", ""), ("Leap", "", "", "Vex jumps.", ""), ("Fire Element", "", "", "", "")],
        }
    )
    relations: dict[str, Rows] = field(
        default_factory=lambda: {
            "Oru": [
                ("Oru", "has attack phase of", "", "", "Calm Phase"),
                ("Calm Phase", "has attack action of", "", "is angry", "Leap"),
                ("Leap", "continues with attack action of", "fast", "", "Spark"),
                ("Oru", "is weaken with", "", "", "Fire Element"),
                ("Oru", "has subspecies of", "", "", "Vex"),
            ],
            "Vex": [("Vex", "has attack action of", "", "", "Leap"), ("Vex", "is resistant with", "", "", "Fire Element")],
        }
    )
    questions: Rows = field(
        default_factory=lambda: [
            ("q1", "", "", "What does{} do?", "Oru", "{} is calm.", "It jumps.", "Oru>Calm Phase>Leap;Oru>Vex>Leap", "Leap", 1),
            ("Pure Text", "", "", "Its nickname?", "Oru", "", "", "Oru", "the Lamp", 0),
        ]
    )

    def write(self) -> Path:
        for root, rows in self.nodes.items():
            write_sheet(self.folder / "mmkg" / root / "Node.xlsx", NODE_HEADER, rows)
            write_sheet(self.folder / "mmkg" / root / "Relations.xlsx", RELATION_HEADER, self.relations[root])
        write_sheet(self.folder / "questions_mh" / "question_list.xlsx", QUESTION_HEADER, self.questions)
        return self.folder


CARD = """
name = "Trees"
persona = "You know trees."
subject = "tree"
root_kind = "tree"
tasks = ["leaf", "bark"]
[kinds]
tree = "a tree"
part = "a part"
"""


@pytest.fixture
def mh(tmp_path: Path) -> MhFolder:
    return MhFolder(tmp_path / "data")


@pytest.fixture
def plain(tmp_path: Path) -> Callable[..., Path]:
    """plain(entities=..., relations=..., questions=..., card=..., suffix=".csv") → the folder. None leaves a file out."""

    def write(
        entities: str | None = "name,kind,owner\nOak,tree,\nLeaf,part,Oak\n",
        relations: str | None = "source,relation,target\nOak,has,Leaf\n",
        questions: str | None = "id,text,root,answer,routes,task\na,What?,Oak,green,Oak>Leaf,leaf\n",
        card: str | None = CARD,
        suffix: str = ".csv",
    ) -> Path:
        folder = tmp_path / "plain"
        folder.mkdir(exist_ok=True)
        files = {f"entities{suffix}": entities, f"relations{suffix}": relations, f"questions{suffix}": questions, "dataset.toml": card}
        for name, text in files.items():
            if text is not None:
                (folder / name).write_text(text, encoding="utf-8", newline="")
        return folder

    return write
