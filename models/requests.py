"""What goes to a model and what comes back: `Request` and `Completion`, and the key under which a call is remembered.

Knows no engine. Try: python -c "from models.requests import user; print(user('hello').key('m'))"
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from models.files import sha256


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture file. Its digest, not its name, is its identity."""

    path: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> Picture:
        """The picture at `path`; raises OSError when the file cannot be read."""
        stat = path.stat()
        return cls(path, _digest(str(path), stat.st_size, stat.st_mtime_ns))


@lru_cache(maxsize=200_000)
def _digest(path: str, size: int, mtime_ns: int) -> str:
    return sha256(Path(path))


_written = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps makes an encoder each time

Part = str | Picture


@dataclass(frozen=True, slots=True)
class Message:
    """One turn: text and pictures in the order in which the model reads them."""

    role: Literal["system", "user", "assistant"]
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "".join(part for part in self.parts if isinstance(part, str))

    @property
    def pictures(self) -> tuple[Picture, ...]:
        return tuple(part for part in self.parts if isinstance(part, Picture))


@dataclass(frozen=True, slots=True)
class Decoding:
    """How tokens are chosen. `choices` and `pattern` constrain the reply where the engine can (see Engine.can_constrain)."""

    max_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    choices: tuple[str, ...] | None = None
    pattern: str | None = None
    probe: tuple[str, ...] = ()  # words whose probability as the first token is wanted


@dataclass(frozen=True, slots=True)
class Request:
    """One call to a model, complete in itself."""

    messages: tuple[Message, ...]
    decoding: Decoding = field(default_factory=Decoding)

    @property
    def pictures(self) -> tuple[Picture, ...]:
        return tuple(picture for message in self.messages for picture in message.pictures)

    @property
    def text(self) -> str:
        return "\n".join(message.text for message in self.messages)

    def key(self, model_digest: str) -> str:
        """sha256 over prompt bytes, media bytes, decoding and model: any changed byte is a new call."""
        body = [
            model_digest,
            [[m.role, [p if isinstance(p, str) else {"picture": p.digest} for p in m.parts]] for m in self.messages],
            [
                self.decoding.max_tokens,
                self.decoding.temperature,
                self.decoding.top_p,
                self.decoding.seed,
                self.decoding.choices,
                self.decoding.pattern,
                self.decoding.probe,
            ],
        ]
        return hashlib.sha256(_written(body).encode("utf-8", "surrogatepass")).hexdigest()

    def with_decoding(self, **changes: object) -> Request:
        return replace(self, decoding=replace(self.decoding, **changes))  # type: ignore[arg-type]


def user(*parts: Part, system: str = "", decoding: Decoding | None = None) -> Request:
    """A request with one user turn, and a system turn when `system` is not empty."""
    head = (Message("system", (system,)),) if system else ()
    return Request((*head, Message("user", tuple(parts))), decoding or Decoding())


Finish = Literal["stop", "length", "repetition"]


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's reply. Times are seconds of wall clock as the client saw them; None where the engine does not tell.

    `probs` holds, for the words of `Decoding.probe`, the probability of each as the first token.
    """

    text: str
    finish: Finish = "stop"
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    seconds: float = 0.0
    first_token_seconds: float | None = None
    probs: tuple[tuple[str, float], ...] = ()


def text_of(parts: Sequence[Part]) -> str:
    """The text of mixed parts, pictures as ``<picture>`` (for logs)."""
    return "".join(part if isinstance(part, str) else "<picture>" for part in parts)
