"""The safety categories of a TOML file (category-wise filtering): name, description, response, examples.

Try: python -c "from pathlib import Path; from pipeline.categories import *; print(read_categories(Path('categories.toml')))"
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from models.errors import ConfigError
from pipeline.flow import Category


def read_categories(path: Path) -> tuple[Category, ...]:
    """All rows ``[[category]]``. Raises ConfigError naming the file."""
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("category", [])
        return tuple(Category(**{**row, "examples": tuple(row.get("examples", ()))}) for row in rows)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        remedy = "[[category]] with name, description, response"
        raise ConfigError(f"holds no categories: {error}", where=str(path), remedy=remedy) from None
