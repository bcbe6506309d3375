"""The figures that the shipped checkpoint has to keep on one small fixed world: measured by a command, held by a test.

tests/bench/embedded.json is the one place where they stand. Who ships another checkpoint makes it anew; nothing in it is typed by hand.

    python -m bench eval-tiny --expected tests/bench/embedded.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.tiny.endtoend import PATHS, Worlds, interval_of, measure
from bench.tiny.evaluate import Score
from models.errors import DataError
from models.files import replace, sha256

WORLD: Final = Worlds((41,), 4)  # about 45 questions, half a minute on two cores
COMMAND: Final = "python -m bench eval-tiny --expected tests/bench/embedded.json"


def weights_digest(folder: Path) -> str:
    """sha256 of the model folder's weights: what ties figures to the checkpoint that gave them."""
    return sha256(folder / "model.safetensors")


def write(model: Path, out: Path, work: Path) -> dict[str, Any]:
    """Measures and writes the file; returns what it holds."""
    facts = {"made by": COMMAND, "weights": weights_digest(model), **measure(model, WORLD, work)}
    replace(out, json.dumps(facts, indent=1) + "\n")
    return facts


def read(path: Path) -> dict[str, Any]:
    """The file's content. Raises DataError."""
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        facts["weights"], facts["settings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"holds no expected figures: {error!r}", where=str(path), remedy=COMMAND) from None
    return facts


def outside(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """What lies outside of the 95 % interval of what was expected, in words; empty when all is as it was.

    Another machine's bfloat16 rounds otherwise and may turn a reply or two, hence intervals and no equality. Wilson's for means too: a
    bootstrap of nothing but ones has no width, and no values of [0, 1] vary more than zeros and ones of the same mean.
    """
    faults = []
    for setting, cells in expected["settings"].items():
        for name in ("acc", *PATHS):
            before, now = cells[name], found["settings"][setting][name]
            if before is None or now is None:
                if before != now:
                    faults.append(f"{setting}: {name} is measured {'no more' if now is None else 'only now'}")
                continue
            value, measured = interval_of(before)[0], interval_of(now)[0]
            low, high = _around(before).interval
            if not low <= measured <= high:
                faults.append(f"{setting}: {name} is {measured:.3f}, outside of [{low:.3f}, {high:.3f}] around {value:.3f}")
        if found["settings"][setting]["failed"] != cells["failed"]:
            faults.append(f"{setting}: samples failed: {found['settings'][setting]['failed']}")
    return faults


def _around(cell: Mapping[str, Any]) -> Score:
    return Score(cell["right"], cell["total"]) if "right" in cell else Score(round(cell["mean"] * cell["n"]), cell["n"])
