"""A model's name or path → its folder. Try: python -c "from models.locate import locate; print(locate('smollm2-135m'))" """

from __future__ import annotations

import os
from pathlib import Path

from models.errors import ModelError

# What `python -m models fetch` can bring.
FETCHABLE = ("smollm2-135m",)
HOME = Path(".cache/models")


def at_home(name: str) -> Path:
    """A path whose ~ is somebody's home; a user who is not there leaves it as it is, to be told as a folder that is missing."""
    return Path(os.path.expanduser(name))  # noqa: PTH111 (Path's own raises for such a user)


def locate(name: str, home: Path | None = None) -> Path:
    """The folder of a fetched model or of a path. Raises ModelError saying what was looked for."""
    path = at_home(name)
    if path.is_dir():
        return path
    fetched = (home or HOME) / name
    if name in FETCHABLE:
        if fetched.is_dir():
            return fetched
        raise ModelError(f"{name} has not been fetched yet", remedy=f"run `python -m models fetch {name}`")
    remedy = f"give the path of a local folder, or one of the names {', '.join(FETCHABLE)}; nothing is downloaded"
    raise ModelError(f"no model folder {name!r}", remedy=remedy)
