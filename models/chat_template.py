"""A model folder's chat template: found, and tried out on one message before a model is loaded. Loads nothing else.

Rendered in jinja2's immutable sandbox with the names that transformers hands to a template (its chat_template_utils).
Try: python -m models check FOLDER
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")
MISSING = "no chat template (chat_template.jinja, chat_template.json, or chat_template in tokenizer_config.json)"
_WORD = "qzx7"
_GENERATION = re.compile(r"\{%-?\s*(end)?generation\s*-?%\}")  # transformers' own tag: marks the reply, renders nothing


@dataclass(frozen=True)
class Template:
    """`name` is the file that holds it."""

    name: str
    source: str


def find(folder: Path) -> Template | None:
    """The folder's template, the one named ``default`` of several; None without one. Files that are no JSON are somebody else's to tell."""
    for name in FILES:
        try:
            held: Any = (folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if not name.endswith(".jinja"):
            held = _from_json(held)
        if isinstance(held, str) and held:
            return Template(name, held)
    return None


def is_json(path: Path) -> bool:
    """Whether the file holds JSON; one that is not there passes."""
    try:
        json.loads(path.read_bytes())
    except FileNotFoundError:
        return True
    except (OSError, ValueError, RecursionError):
        return False
    return True


def _from_json(text: str) -> Any:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    held = read.get("chat_template") if isinstance(read, dict) else None
    if isinstance(held, list):  # named templates: [{name, template}]
        return next((row.get("template") for row in held if isinstance(row, dict) and row.get("name") == "default"), None)
    return held


def fault(template: Template) -> str:
    """What is wrong with it, in words; empty when one user message, as text or as a list of parts, comes out with its words."""
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    environment.globals.update(raise_exception=raise_exception, strftime_now=lambda _format: "2026-01-01")
    try:
        ready = environment.from_string(_GENERATION.sub("", template.source))
    except jinja2.TemplateSyntaxError as error:
        return f"the chat template in {template.name} is broken: {error} (line {error.lineno})"
    said = "it leaves out what the user says"
    for content in (_WORD, [{"type": "text", "text": _WORD}]):
        names = {"bos_token": "", "eos_token": "", "pad_token": "", "unk_token": "", "tools": None, "documents": None}
        try:
            shown = ready.render(messages=[{"role": "user", "content": content}], add_generation_prompt=True, **names)
        except Exception as error:  # anything that the template's own code can raise
            said = f"{type(error).__name__}: {error}"
            continue
        if _WORD in shown:
            return ""
    return f"the chat template in {template.name} cannot be used: {said}"
