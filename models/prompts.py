"""Prompt files: YAML beside the room that uses them, checked when they are loaded.

A file holds `system`, `body`, `fields` (every `{name}` that system, body or examples may hold; `images` fields take pictures),
`reply` (the shape of the reply, a name that the room's parser table knows), `max_tokens` and optionally `fixed`: sentences of the
body that a tuner has to keep as they are (policy, safety). What is constant stands first and what varies last, so that a prefix
cache serves sibling calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic import Field as PydanticField

from models.errors import ConfigError
from models.requests import Decoding, Message, Part, Picture, Request

Field = str | Sequence[Picture]
_SLOT = re.compile(r"\{([a-z_]+)\}")


class Prompt(BaseModel):
    """One prompt file. Unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    reply: str
    body: str
    system: str = ""
    fields: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    max_tokens: int = PydanticField(default=512, ge=1)
    fixed: tuple[str, ...] = PydanticField(default=(), exclude=True)  # says nothing to the model, so it is no part of a digest

    @model_validator(mode="after")
    def _declared(self) -> Prompt:
        lost = [text for text in self.fixed if self.body.count(text) != 1 or not text.strip()]
        if lost:
            raise ValueError(f"fixed: {lost[0][:60]!r} has to stand in the body once")
        used = set(_SLOT.findall(self.system + self.body))
        declared = set(self.fields) | set(self.images)
        if used - declared:
            raise ValueError(f"uses {{{'}, {'.join(sorted(used - declared))}}} without declaring it in fields or images")
        if declared - used:
            raise ValueError(f"declares {', '.join(sorted(declared - used))} but never uses it")
        return self

    def render(self, fields: Mapping[str, Field]) -> Request:
        """A request with every slot filled; pictures stand where their slot stands. Text is inserted once, never re-read for slots."""
        missing = {name for name in (*self.fields, *self.images) if name not in fields}
        if missing:
            raise ConfigError(f"prompt {self.name!r} needs {', '.join(sorted(missing))}", remedy="give the field or drop it from the file")
        messages = []
        if self.system:
            messages.append(Message("system", tuple(self._parts(self.system, fields))))
        messages.append(Message("user", tuple(self._parts(self.body, fields))))
        return Request(tuple(messages), Decoding(max_tokens=self.max_tokens))

    def _parts(self, template: str, fields: Mapping[str, Field]) -> list[Part]:
        parts: list[Part] = []
        text = ""
        for i, piece in enumerate(_pieces(template)):
            value: Field = fields[piece] if i % 2 else piece
            if isinstance(value, str):
                text += escape_special(value) if i % 2 else value
            else:
                if text:
                    parts.append(text)
                    text = ""
                parts.extend(value)
        text = text.rstrip("\n")
        if text or not parts:
            parts.append(text)
        return parts


@lru_cache(maxsize=1024)
def _pieces(template: str) -> tuple[str, ...]:
    """Text and names of slots in turn."""
    return tuple(_SLOT.split(template))


# <|image_pad|>, <|im_start|>, <img>, <IMG_CONTEXT> … typed by a user or held by a data set must not become slots of the chat format.
_SPECIAL = re.compile(r"<(\|[a-zA-Z0-9_]+\||/?img|IMG_CONTEXT|/?image|/?video|/?s|/?tool_call)>")


def escape_special(text: str) -> str:
    """Text in which no chat or vision token of a known family can be read as one: a zero-width space breaks it up."""
    return _SPECIAL.sub("<\u200b\\1>", text) if "<" in text else text


def load_prompt(path: Path) -> Prompt:
    """The prompt in `path`. Raises ConfigError naming the file and every fault in it."""
    try:
        raw: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Prompt.model_validate(dict(raw, name=path.stem))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path), remedy="a prompt set holds one file per agent") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"is not YAML: {error}".replace("\n", " "), where=str(path)) from None
    except (TypeError, ValueError) as error:
        if isinstance(error, ValidationError):
            faults = [": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"]))) for e in error.errors()]
        else:
            faults = ["should be a mapping of keys, body among them"]
        raise ConfigError("; ".join(faults), where=str(path), remedy="see docs/prompts.md for the keys") from None


def load_prompts(folder: Path, names: Sequence[str], fallback: Path | None = None) -> dict[str, Prompt]:
    """The named prompts of a set; what the set lacks comes from `fallback`. All faults are reported at once."""
    found: dict[str, Prompt] = {}
    faults: list[str] = []
    if not folder.is_dir():
        raise ConfigError(f"no such folder of prompts: {folder}", remedy="give a folder of YAML files, or leave --prompts out")
    for name in names:
        path = folder / f"{name}.yaml"
        if not path.exists() and not path.is_symlink() and fallback is not None:  # a broken link is no file that was left out
            path = fallback / f"{name}.yaml"
        try:
            found[name] = load_prompt(path)
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError(" | ".join(faults))
    return found
