"""What questions are asked over: collections, applications, policy, classifiers, thresholds; from one YAML file, checked at once.

    collections: [docs]             # paths are below the file's own folder
    products: shop
    graph: my-graph                 # a data set folder of kg/: its retriever becomes an application
    applications:
      - weather.py:Weather          # or module:Class, or an entry point of untamed.applications
      - {use: "stations.py:Nearest", with: {radius: 5}}
    policy: policy.jsonl

Knows no chat model. Try: python -m pipeline ask "…" --config ask.yaml --model FOLDER
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from models.engines import Engine
from models.errors import ConfigError
from pipeline.agents import Agents
from pipeline.applications import Application, EpisodeApplication, Places, Products, load_class, load_graph, table
from pipeline.categories import read_categories
from pipeline.collection import Searchable
from pipeline.encoders import image_encoder, text_encoder
from pipeline.flow import Kit, Stages
from pipeline.index_cli import open_collection
from pipeline.relevance.similarity import Similarity
from pipeline.safety.classifiers import ImageScreen, TextScreen, image_screen, text_screen
from pipeline.safety.policy import Policy
from pipeline.tags import read_clicks
from pipeline.tools import Scorer, application_engine, relevance_engine, screen_engine, search_engine, similar_engine


class Use(BaseModel):
    """An application and what its class is made with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    use: str
    options: Mapping[str, Any] = Field(default={}, alias="with")


def _use(value: object) -> object:
    return {"use": value} if isinstance(value, str) else value


class Settings(BaseModel):
    """Every key of the file. Unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    collections: tuple[Path, ...] = ()
    products: Path | None = None
    places: Path | None = None
    graph: Path | None = None
    applications: tuple[Annotated[Use, BeforeValidator(_use)], ...] = ()
    policy: Path | None = None
    categories: Path | None = None
    clicks: Path | None = None
    adapter: Path | None = None  # of the relevance classifier; without one the encoder's similarity ranks
    text_filter: str = "head"  # head, none, or a local classifier's folder
    image_filter: str = "none"  # none, nudenet, or a local classifier's folder
    harmful_labels: tuple[str, ...] = ()  # of those classifiers; known names are found without
    threshold: float = Field(default=0.5, ge=0, le=1)
    category_threshold: float = Field(default=0.5, ge=0, le=1)
    harm_threshold: float = Field(default=0.5, ge=0, le=1)
    relevant: float = Field(default=0.0, ge=0, le=1)
    search_k: int = Field(default=10, ge=1)
    similar_k: int = Field(default=5, ge=1)
    kept: int = Field(default=5, ge=1)


_PATHS = ("products", "places", "graph", "policy", "categories", "clicks", "adapter")


def read_settings(path: Path) -> Settings:
    """The settings of a YAML file. Raises ConfigError naming every fault at once."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        made = Settings.model_validate(raw or {})
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", where=str(path)) from None
    except yaml.YAMLError as error:
        raise ConfigError(" ".join(f"is not YAML: {error}".split()), where=str(path)) from None
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'the file'}: {e['msg']}" for e in error.errors())
        raise ConfigError(faults, where=str(path), remedy=f"keys: {', '.join(Settings.model_fields)}") from None
    home = path.parent
    moved: dict[str, Any] = {name: _home(home, value) for name in _PATHS if (value := getattr(made, name)) is not None}
    uses = tuple(use.model_copy(update={"use": str(home / use.use)}) if ".py:" in use.use else use for use in made.applications)
    filters = {name: _below(home, getattr(made, name)) for name in ("text_filter", "image_filter")}
    return made.model_copy(
        update={**moved, **filters, "collections": tuple(_home(home, p) for p in made.collections), "applications": uses}
    )


def _home(home: Path, path: Path) -> Path:
    """Below the file's folder; a place on Milvus stays as it is."""
    return path if str(path).startswith("milvus:") else home / path


def _below(home: Path, name: str) -> str:
    return str(home / name) if (home / name).is_dir() else name


@dataclass(frozen=True)
class Equipment:
    """What the settings name, opened; each part once, when it is first needed."""

    settings: Settings
    more: tuple[object, ...] = ()  # applications that were made elsewhere

    @cached_property
    def collections(self) -> tuple[Searchable, ...]:
        return tuple(open_collection(folder) for folder in self.settings.collections)

    @cached_property
    def applications(self) -> dict[str, Application | EpisodeApplication]:
        """By name. Raises ConfigError for one that cannot be made."""
        made: list[object] = list(self.more)
        for use in self.settings.applications:
            try:
                made.append(load_class(use.use)(**use.options))
            except TypeError as error:
                raise ConfigError(
                    f"the application {use.use!r} cannot be made: {error}", remedy="see its class for what `with` takes"
                ) from None
        if self.settings.products:
            made.append(Products(open_collection(self.settings.products)))
        if self.settings.places:
            made.append(Places(open_collection(self.settings.places)))
        if self.settings.graph:
            made.append(load_graph(self.settings.graph))
        return table(made)

    @cached_property
    def policy(self) -> Policy | None:
        return Policy(self.settings.policy, text_encoder(), image_encoder()) if self.settings.policy is not None else None

    @cached_property
    def text_filter(self) -> TextScreen | None:
        return text_screen(self.settings.text_filter, self.settings.harmful_labels)

    @cached_property
    def image_filter(self) -> ImageScreen | None:
        return image_screen(self.settings.image_filter, self.settings.harmful_labels)

    @cached_property
    def scorer(self) -> Scorer:
        """The classifier with its adapter; without one the encoder's similarity, for an untrained head ranks at random."""
        adapter = self.settings.adapter
        from pipeline.relevance.classifier import RelevanceClassifier  # torch: only where something is ranked

        return RelevanceClassifier(adapter=adapter) if adapter is not None else Similarity(text_encoder())

    def kit(self, agents: Agents, stages: Stages | None = None) -> Kit:
        """What all questions share."""
        s = self.settings
        return Kit(
            agents,
            self.applications,
            read_categories(s.categories) if s.categories else (),
            read_clicks(s.clicks) if s.clicks else {},
            stages or Stages(),
            s.threshold,
            s.category_threshold,
            s.harm_threshold,
            s.search_k,
            s.similar_k,
            s.kept,
            s.relevant,
        )

    def engines(self) -> dict[str, Engine]:
        """The tools' engines by role; a chat model for `CHAT` comes beside them."""
        plain = {name: one for name, one in self.applications.items() if isinstance(one, Application)}
        return {
            "search": search_engine(self.collections),
            "similar": similar_engine(self.collections),
            "relevance": relevance_engine(self.scorer),
            "screen": screen_engine(self.text_filter, self.policy, self.image_filter),
            "application": application_engine(plain),
        }


# The roles that a chat model answers: those of pipeline/, and those of the knowledge graph's retriever.
CHAT = ("perceiver", "agent", "answer", "topic", "expander", "validator", "summarizer", "captioner")
