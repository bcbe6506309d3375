"""A run is a table of rows, each a setting with its options: the six settings are one suite, the ablation grid is another.

Knows no data. Try: python -c "from bench.rows import *; from bench.config import RunConfig; print(settings_suite(RunConfig()))"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.config import RunConfig, validate
from bench.settings import SETTINGS, Setting
from kg.search import SearchConfig


@dataclass(frozen=True)
class Row:
    """One row of a run: its label, its setting, the run's options with this row's changes, and those changes in words."""

    label: str
    setting: Setting
    config: RunConfig
    changes: Mapping[str, Any]

    @property
    def search(self) -> SearchConfig:
        """The search's part of the options."""
        given = {name: value for name in ("max_rounds", "max_calls") if (value := getattr(self.config, name)) is not None}
        return SearchConfig(
            max_paths=0 if self.config.k == "all" else self.config.k,
            order=self.config.order,
            visited=self.config.visited,
            paths=self.config.paths,
            constrained=self.config.constrained,
            **given,
        )


def row(config: RunConfig, setting: str, label: str | None = None, **changes: Any) -> Row:
    """A row of this setting; `changes` are options that differ from the run's. Raises ConfigError for one that cannot be."""
    merged = validate({**config.model_dump(), **changes, "settings": [setting]})
    return Row(label or setting, SETTINGS[setting], merged, changes)


def settings_suite(config: RunConfig) -> tuple[Row, ...]:
    """One row a setting, in the order asked for."""
    return tuple(row(config, setting) for setting in config.settings)
