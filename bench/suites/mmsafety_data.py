"""MM-SafetyBench in its published layout, harmless questions beside it, and our own small set for jailbreaks in retrieval.

data/processed_questions/NN-Scenario.json and data/imgs/NN-Scenario/SD_TYPO/ID.jpg; SD goes with another wording. Harmless questions:
benign.jsonl in the folder ({"id", "question", "image"}), or our own. Try: python -m bench mmsafety --data DIR --limit 12
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from bench.records import digest
from bench.suites.items import Data, Item
from bench.suites.pictures import draw
from models.errors import DataError

# The six scenarios of CUE-M's table; names keep upstream's spelling.
SCENARIOS = ("01-Illegal_Activitiy", "02-HateSpeech", "04-Physical_Harm", "06-Fraud", "07-Sex", "09-Privacy_Violence")
WORDINGS = {"SD_TYPO": "Rephrased Question", "SD": "Rephrased Question(SD)", "TYPO": "Changed Question"}
KINDS = ("indirect intent", "composition", "meme")  # of CUE-M's appendix on jailbreaks in multimodal retrieval
BENIGN = "benign"
TASKS = (*SCENARIOS, *KINDS, BENIGN)
OWN = Path(__file__).with_name("jailbreaks.yaml")


def read(folder: Path | None, pictures: str, drawn: Path, benign: Path | None = None) -> Data:
    """All items. `folder` None: our own set alone. `drawn`: where our own pictures are made. Raises DataError naming file and id."""
    items = list(_scenarios(folder, pictures)) if folder is not None else []
    own, harmless = _own(drawn)
    beside = benign or (folder / "benign.jsonl" if folder is not None else None)
    given = list(_benign(beside)) if beside is not None and (benign is not None or beside.exists()) else []
    every = [*items, *own, *(given or []), *harmless]
    notes = [f"{sum(bool(i.lost) for i in every)} pictures are missing: their questions fail."] if any(i.lost for i in every) else []
    notes += [] if items else ["MM-SafetyBench itself was not given: only our own small set was asked."]
    told = digest("\n".join(f"{i.uid} {i.question} {i.lost}" for i in every))
    name = f"MM-SafetyBench {pictures}" if items else "our own jailbreaks"
    return Data(name, folder or OWN.parent, told, TASKS, tuple(every), len(every), tuple(notes))


def _scenarios(folder: Path, pictures: str) -> Iterator[Item]:
    home = folder / "data" if (folder / "data" / "processed_questions").is_dir() else folder
    questions = home / "processed_questions"
    if not questions.is_dir():
        remedy = "give the folder that holds data/processed_questions and data/imgs"
        raise DataError("holds no processed_questions", where=str(folder), remedy=remedy)
    for task, name in enumerate(SCENARIOS):
        path = questions / f"{name}.json"
        if not path.exists():
            raise DataError("is missing", where=str(path), remedy=f"the six scenarios are {', '.join(SCENARIOS)}")
        for id_, row in _object(path).items():
            text = row.get(WORDINGS[pictures]) if isinstance(row, dict) else None
            if not isinstance(text, str) or not text.strip() or not id_.isdigit():
                raise DataError(f"entry {id_!r} has no {WORDINGS[pictures]!r}", where=str(path))
            found = [p for suffix in (".jpg", ".png", ".jpeg") if (p := home / "imgs" / name / pictures / f"{id_}{suffix}").is_file()]
            lost = "" if found else f"imgs/{name}/{pictures}/{id_}.jpg"
            asked = str(row.get("Changed Question") or row.get("Question") or text)  # what the picture hides, for the judge
            yield Item(f"{name}/{id_}", task, text, asked, tuple(found[:1]), facts={"harmful": True}, lost=lost)


def _object(path: Path) -> Mapping[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path)) from None
    if not isinstance(raw, dict) or not raw:
        raise DataError("is no object of questions", where=str(path))
    return raw


def _benign(path: Path) -> Iterator[Item]:
    """Harmless questions of the user's. Raises DataError naming the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path)) from None
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            id_, question, image = str(row["id"]), str(row.get("question", "")), row.get("image")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"is no question: {error!r}", where=where, remedy='{"id", "question", "image"}') from None
        if id_ in seen or not (question.strip() or image):
            raise DataError(f"id {id_!r} comes twice, or nothing is asked", where=where)
        seen.add(id_)
        file = path.parent / str(image) if image else None
        lost = str(image) if file is not None and not file.is_file() else ""
        yield Item(
            f"benign/{id_}",
            TASKS.index(BENIGN),
            question,
            pictures=(file,) if file and not lost else (),
            facts={"harmful": False},
            lost=lost,
        )


def _own(drawn: Path) -> tuple[list[Item], list[Item]]:
    """Our jailbreaks of three kinds, and their harmless twins: the same pictures or nearly the same words."""
    rows = yaml.safe_load(OWN.read_text(encoding="utf-8"))
    harmful, harmless = [], []
    for row in rows:
        picture = draw(row["picture"], drawn)
        harmful.append(
            Item(f"own/{row['id']}", TASKS.index(row["kind"]), row["question"], row["means"], (picture,), facts={"harmful": True})
        )
        twin = row["harmless"]
        harmless.append(
            Item(
                f"own/{row['id']}-harmless",
                TASKS.index(BENIGN),
                twin["question"],
                pictures=(draw(twin.get("picture", row["picture"]), drawn),),
                facts={"harmful": False, "twin": row["id"]},
            )
        )
    return harmful, harmless
