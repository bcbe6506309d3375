"""The switches of models/switches.py, applied to this process (`apply`, first thing in every command) and to those that it starts.

Standard library only. Try: python -m models switches
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from models.switches import SWITCHES

GUARD = "UNTAMED_GUARD"  # the folder of bench/offline's audit hook, while `make test-offline` watches

# What a server of ours has no use for, so does not get.
KEY = "MODEL_API_KEY"  # the API key of servers that are not ours
WITHHELD = (
    KEY,
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HUGGINGFACE_TOKEN",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "WANDB_API_KEY",
    "PYTHONPATH",
)


def switches(given: Mapping[str, str]) -> dict[str, str]:
    """Every switch as it must stand in a process whose environment is `given`: preferences that are set stay, proxies' exceptions grow."""
    found = {}
    for name, value, _, _, kept in SWITCHES:
        if kept and given.get(name):
            value = given[name]
        elif name.lower() == "no_proxy":
            value = ",".join(dict.fromkeys([*value.split(","), *filter(None, given.get(name, "").split(","))]))
        found[name] = str(Path(value).absolute()) if value.startswith(".cache/") else value
    return found


def apply() -> None:
    """Sets every switch in this process. Call it before a library is imported; most read the environment once."""
    os.environ.update(switches(os.environ))


def server_key() -> str:
    """The API key for servers that are not ours, from $MODEL_API_KEY; empty without one."""
    return os.environ.get(KEY, "")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a process that we start: this one's, without secrets, with every switch set, then `extra`."""
    kept = {name: value for name, value in os.environ.items() if name not in WITHHELD}
    if GUARD in os.environ:
        kept["PYTHONPATH"] = os.environ[GUARD]
    return {**kept, **switches(os.environ), **(extra or {})}
