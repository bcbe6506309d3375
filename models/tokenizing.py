"""Text requests → token ids under a folder's own tokenizer and chat template, without loading a model or a server.

For counting only; pictures are left out. Try: python -m bench speed --rows radix
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from models.chat_template import find
from models.errors import ModelError
from models.requests import Request


def chat_ids(folder: Path) -> Callable[[Request], list[int]]:
    """A function from requests to ids. Raises ModelError for a folder without tokenizer.json or chat template."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from tokenizers import Tokenizer

    path, template = folder / "tokenizer.json", find(folder)
    if not path.is_file() or template is None:
        raise ModelError(
            "no tokenizer.json" if template is not None else "no chat template", where=str(folder), remedy="give a model's folder"
        )
    try:
        made: Any = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"tokenizer.json cannot be read: {error}", where=str(folder), remedy="give a model's folder") from None
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    rendering = environment.from_string(template.source)

    @lru_cache(maxsize=100_000)
    def ids(text: str) -> list[int]:
        return list(made.encode(text, add_special_tokens=False).ids)

    def of(request: Request) -> list[int]:
        last = request.messages[-1].text
        shown = _shown(rendering, [{"role": m.role, "content": m.text} for m in request.messages])
        if last not in shown:  # a template that takes parts alone
            shown = _shown(rendering, [{"role": m.role, "content": [{"type": "text", "text": m.text}]} for m in request.messages])
        return ids(shown)

    return of


def _shown(rendering: Any, turns: list[dict[str, object]]) -> str:
    names = {"bos_token": "", "eos_token": "", "tools": None, "documents": None}
    try:
        return str(rendering.render(messages=turns, add_generation_prompt=True, **names))
    except Exception as error:  # anything that the template's own code can raise
        raise ModelError(f"its chat template cannot be used: {error}", remedy="python -m models check FOLDER") from None
