"""Writing dataset.toml. Knows no layout. Try: python -m kg convert DATA --to plain --out DIR"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from kg.card import CardFile


def write_card(path: Path, card: CardFile) -> None:
    """The card as TOML. Raises: OSError."""
    lines = [f"{key} = {_quoted(getattr(card, key))}" for key in ("name", "persona", "subject", "root_kind", "phase_kind", "action_kind")]
    lines += [f"tasks = {_listed(card.tasks)}", "", "[kinds]"]
    lines += [f"{_quoted(kind)} = {_quoted(meaning)}" for kind, meaning in card.kinds.items()]
    for rule in card.rules:
        lines += ["", "[[rules]]", f"kind = {_quoted(rule.kind)}"]
        lines += [f"suffix = {_quoted(rule.suffix)}"] if rule.suffix else []
        for key, values in (("names", rule.names), ("owners", rule.owners), ("after", rule.after)):
            lines += [f"{key} = {_listed(values)}"] if values is not None else []
        lines += ["shared = true"] if rule.shared else []
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _quoted(text: str) -> str:
    """A TOML basic string: JSON's escapes, and DEL, which JSON leaves bare."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _listed(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"
