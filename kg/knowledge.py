"""From walks to the text that agents read: the function ℵ of MH-MMKG equation 11, and the memory and neighbour lists of its prompts.

The wording is data: `style.yaml` of a prompt set. Knows no model.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from kg.graph import Edge, Entity, Graph, Walk
from models.errors import ConfigError

Captions = Callable[[Entity], str]
_EDGE = ("source", "name", "relation", "condition", "information")
# template → the slots that are filled in it; the others are plain words, put in as they stand
SLOTS: Mapping[str, tuple[str, ...]] = {
    "start": ("name", "info", "caption"),
    "step": (*_EDGE, "info", "caption"),
    "info": ("name", "info"),
    "caption": ("name", "caption"),
    "condition": ("condition",),
    "information": ("information",),
    "neighbour": _EDGE,
    "neighbour_again": _EDGE,
    "walk": ("number", "walk"),
}


class Style(BaseModel):
    """Templates of a prompt set. `{info}`, `{caption}`, `{condition}` and `{information}` vanish with their words when empty."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: str
    step: str
    info: str
    caption: str
    condition: str
    information: str
    neighbour: str
    neighbour_again: str = ""
    neighbour_join: str
    option_join: str
    walk: str
    walk_join: str
    nothing: str
    no_caption: str
    no_info: str
    passed_info: bool = True  # whether nodes before the end show their additional information

    @model_validator(mode="after")
    def _slots_are_filled(self) -> Self:
        for template, slots in SLOTS.items():
            try:
                used = [(slot, spec, how) for _, slot, spec, how in string.Formatter().parse(getattr(self, template)) if slot is not None]
            except ValueError as error:
                raise ValueError(f"{template}: {error}; a brace that is no slot is written twice") from None
            wrong = sorted({slot for slot, spec, how in used if slot not in slots or spec or how})
            if wrong:
                raise ValueError(f"{template}: nothing fills {{{'}, {'.join(wrong)}}}; it has {', '.join(slots)}")
        return self

    def attributes(self, entity: Entity, caption: str, *, info: bool = True) -> tuple[str, str]:
        """The entity's (info, caption) as worded, "" for what it lacks."""
        return (
            self.info.format(name=entity.name, info=entity.info) if info and entity.info else "",
            self.caption.format(name=entity.name, caption=caption) if caption else "",
        )

    def memory(self, graph: Graph, walk: Walk, captions: Captions, *, with_end: bool = True) -> str:
        """The walk from the root to its end; without `with_end`, the end is named but its attributes are left out."""
        text = ""
        for i, node in enumerate(walk.nodes):
            entity, end = graph.entity(node), i == len(walk.nodes) - 1
            shown = with_end or not end
            info, caption = self.attributes(entity, captions(entity) if shown else "", info=shown and (end or self.passed_info))
            if i == 0:
                text += self.start.format(name=entity.name, info=info, caption=caption)
            else:
                source, edge = graph.entity(walk.nodes[i - 1]), walk.edges[i - 1]
                text += self.step.format(source=source.name, name=entity.name, info=info, caption=caption, **self._edge(edge))
        return text.strip()

    def knowledge(self, graph: Graph, walks: Sequence[Walk], captions: Captions) -> str:
        """Every walk as text, numbered from 1; `nothing` when there is none."""
        if not walks:
            return self.nothing
        texts = [self.walk.format(number=i, walk=self.memory(graph, walk, captions)) for i, walk in enumerate(walks, 1)]
        return self.walk_join.join(texts)

    def neighbours(self, graph: Graph, edges: Sequence[Edge]) -> str:
        """The list from which the expansion agent chooses; an edge whose relation repeats the one before may be worded shorter."""
        items: list[str] = []
        last = None
        for edge in edges:
            template = self.neighbour_again if edge.relation == last and self.neighbour_again else self.neighbour
            source, target = graph.entity(edge.source), graph.entity(edge.target)
            items.append(template.format(source=source.name, name=target.name, **self._edge(edge)))
            last = edge.relation
        return self.neighbour_join.join(items)

    def _edge(self, edge: Edge) -> dict[str, str]:
        return {
            "relation": edge.relation,
            "condition": self.condition.format(condition=edge.condition) if edge.condition else "",
            "information": self.information.format(information=edge.information) if edge.information else "",
        }


def load_style(path: Path) -> Style:
    """The style in `path`; raises ConfigError naming the file and its faults."""
    try:
        return Style.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path), remedy="a prompt set holds a style.yaml") from None
    except ValidationError as error:
        faults = [": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"].removeprefix("Value error, ")))) for e in error.errors()]
        raise ConfigError("; ".join(faults), where=str(path), remedy=f"keys of a style: {', '.join(Style.model_fields)}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(" ".join(f"is not YAML: {error}".split()), where=str(path)) from None
