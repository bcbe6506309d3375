"""dataset.toml: the card of a data set, and the rules that tell kinds apart where sheets hold none.

Unknown keys are rejected. `kg/cards/*.toml` are cards of published data sets that come without one.
Knows no domain. Try: python -m kg check DATA

Rules are tried in order and the first that fits names the kind. A rule fits when every condition it states holds:
    suffix = " Phase"          the name ends so               names = ["Pierce Pod"]   the name is one of these
    owners = ["Zinogre"]       it belongs to one of these     after = ["generates"]    all relations that lead to it begin so
    shared = true              not a condition: entities that fit belong to all roots alike
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kg.dataset import Card
from models.errors import DataError


class Rule(BaseModel):
    """One line of `[[rules]]`; see the module's text."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    kind: str
    suffix: str = ""
    names: list[str] | None = None
    owners: list[str] | None = None
    after: list[str] | None = None
    shared: bool = False

    @model_validator(mode="after")
    def _shared_by_name(self) -> Rule:
        if self.shared and (self.after or self.owners or not (self.suffix or self.names)):
            raise ValueError("a shared rule states a suffix or names and neither owners nor after: the name alone decides whose it is")
        return self

    def fits(self, name: str, owner: str, incoming: Collection[str]) -> bool:
        if not name.endswith(self.suffix) or (self.names is not None and name not in self.names):
            return False
        if self.owners is not None and owner not in self.owners:
            return False
        if self.after is None:
            return True
        begins = tuple(relation.casefold() for relation in self.after)
        return bool(incoming) and all(relation.casefold().startswith(begins) for relation in incoming)


class CardFile(BaseModel):
    """The file's keys: the fields of `kg.dataset.Card`, and `rules`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str = Field(min_length=1)
    persona: str
    root_kind: str = Field(min_length=1)
    kinds: dict[str, str] = Field(min_length=1)
    tasks: list[str] = Field(min_length=1)
    phase_kind: str = ""
    action_kind: str = ""
    subject: str = "entity"
    rules: list[Rule] = []

    @model_validator(mode="after")
    def _kinds_are_named(self) -> CardFile:
        for key, kind in (("root_kind", self.root_kind), ("phase_kind", self.phase_kind), ("action_kind", self.action_kind)):
            if kind and kind not in self.kinds:
                raise ValueError(f"{key} = {kind!r} is not one of the kinds {', '.join(self.kinds)}")
        for rule in self.rules:
            if rule.kind not in self.kinds:
                raise ValueError(f"a rule names the kind {rule.kind!r}; [kinds] holds {', '.join(self.kinds)}")
        return self

    def card(self) -> Card:
        fields = {key: getattr(self, key) for key in ("name", "persona", "root_kind", "kinds", "phase_kind", "action_kind", "subject")}
        return Card(tasks=tuple(self.tasks), **fields)

    def is_shared(self, name: str) -> bool:
        """True when the first rule that fits by name alone is a shared one."""
        return next((r.shared for r in self.rules if r.after is None and r.owners is None and r.fits(name, "", ())), False)

    def kind_of(self, name: str, owner: str, incoming: Collection[str]) -> str | None:
        """The kind of an entity that is not a root; None when no rule fits."""
        return next((r.kind for r in self.rules if r.fits(name, owner, incoming)), None)


def read_card(path: Path) -> CardFile:
    """The card in this file. Raises: DataError naming the key that is wrong."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"the card cannot be read: {e}", where=str(path), remedy="see docs/data.md for its keys") from e
    return parse_card(text, str(path))


def parse_card(text: str, where: str) -> CardFile:
    """The card in this text. Raises: DataError."""
    try:
        return CardFile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as e:
        raise DataError(f"the card is not TOML: {e}", where=where, remedy="see docs/data.md for an example") from e
    except ValidationError as e:
        wrong = "; ".join(f"{'.'.join(map(str, p['loc'])) or 'card'}: {p['msg']}" for p in e.errors())
        known = ", ".join(CardFile.model_fields)
        raise DataError(f"the card is wrong: {wrong}", where=where, remedy=f"known keys: {known}") from e


def builtin_card(layout: str) -> tuple[CardFile, str]:
    """The card shipped for a published layout, and its text. Raises: DataError listing the names that exist."""
    cards = resources.files("kg") / "cards"
    file = cards / f"{layout}.toml"
    if not file.is_file():
        known = ", ".join(sorted(c.name.removesuffix(".toml") for c in cards.iterdir() if c.name.endswith(".toml")))
        raise DataError(f"no card is shipped for {layout!r}", remedy=f"shipped: {known}")
    text = file.read_text(encoding="utf-8")
    return parse_card(text, f"kg/cards/{layout}.toml"), text
