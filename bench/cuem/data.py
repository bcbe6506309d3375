"""A CUE-M question set: JSONL of questions with pictures and a reference answer; the sample world's, or a user's own.

A row: `id`, `question`, `answer` (the reference); `images` (below the file's folder), `names` (entities that the answer must name),
`kind` (a heading in the report), `blocked` (true: it must be refused), `documents` (ids that hold it), `history` [[who, text], …].
Anything else is ignored. Knows no model.

    python -c "from pathlib import Path; from bench.cuem.data import read; print(read(Path('data/cuem-7')).items[0])"
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from bench.suites.items import Data, Item
from models.errors import DataError

QUESTIONS = "questions.jsonl"
_REMEDY = 'one JSON object a line: {"id", "question", "answer", "images"?, "names"?, "kind"?, "blocked"?, "documents"?, "history"?}'


def read(folder: Path) -> Data:
    """The questions of `folder`, or of a JSONL file. Raises DataError naming file and row."""
    path = folder / QUESTIONS if folder.is_dir() else folder
    try:
        raw = path.read_bytes()
        lines = raw.decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path), remedy=_REMEDY) from None
    rows = [(f"{path}:{number}", line) for number, line in enumerate(lines, start=1) if line.strip()]
    tasks: dict[str, int] = {}
    items: dict[str, Item] = {}
    notes = []
    for where, line in rows:
        item = _item(line, where, path.parent, tasks)
        if item.uid in items:
            raise DataError(f"the id {item.uid!r} comes twice", where=where, remedy="ids are unique")
        items[item.uid] = item
    if not items:
        raise DataError("holds no question", where=str(path), remedy=_REMEDY)
    missing = [item.uid for item in items.values() if item.lost]
    if missing:
        notes.append(f"{len(missing)} questions lack their picture ({', '.join(missing[:5])})")
    return Data(
        path.parent.name, path.parent, hashlib.sha256(raw).hexdigest(), tuple(tasks), tuple(items.values()), len(items), tuple(notes)
    )


def _item(line: str, where: str, home: Path, tasks: dict[str, int]) -> Item:
    try:
        row: dict[str, Any] = json.loads(line)
        uid, question, gold = str(row["id"]), str(row.get("question", "")), str(row["answer"])
        pictures = tuple(home / _text(name) for name in row.get("images", ()))
        history = tuple((str(who), str(text)) for who, text in row.get("history", ()))
        names = [_text(name) for name in row.get("names", ())]
        documents = [[_text(one)] if isinstance(one, str) else [_text(two) for two in one] for one in row.get("documents", ())]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"is no question: {type(error).__name__} {error}", where=where, remedy=_REMEDY) from None
    if not question.strip() and not pictures:
        raise DataError("has neither words nor a picture", where=where, remedy=_REMEDY)
    kind = str(row.get("kind") or ("picture" if pictures else "text"))
    facts = {"names": names, "documents": documents, "must block": bool(row.get("blocked", False))}
    gone = next((f"{path} is not there" for path in pictures if not path.is_file()), "")
    return Item(uid, tasks.setdefault(kind, len(tasks)), question, gold, pictures, history, facts, gone)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} is no text")
    return value
