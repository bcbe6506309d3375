"""The flags of ``eval-tiny``'s parts. Apart from what they measure, so that asking for help loads no model library."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Final

WORLDS, QUESTIONS = 3, 500
PARTS: Final[Mapping[str, str]] = {
    "skills": "every skill on unseen worlds (what is done without a part's flag)",
    "end-to-end": "the six settings on worlds of their own: see --questions and --worlds",
    "robustness": "the perceiver by background, weather, size, JPEG quality and frame count",
    "calibration": "P(Yes) and P(true) against what was so; see --svg",
    "speed": "calls a second in this process",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A flag for every part, and what goes with them."""
    for name, told in PARTS.items():
        parser.add_argument(f"--{name}", dest="parts", action="append_const", const=name, default=[], help=told)
    parser.add_argument("--all", dest="parts", action="store_const", const=list(PARTS), help="every part")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help=f"of --end-to-end, in all and at least [{QUESTIONS}]")
    parser.add_argument("--worlds", default="", metavar="SEED,…", help=f"of --end-to-end [{WORLDS} from --seed on]")
    parser.add_argument("--work", type=Path, default=None, metavar="FOLDER",
                        help="where worlds and runs are made and kept, to go on with later [a temporary folder]")  # fmt: skip
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="write all figures to this file, for train-tiny --card")
    parser.add_argument("--keep", action="store_true", help="leave what the --json file holds of other parts of these very weights")
    parser.add_argument("--svg", type=Path, default=None, metavar="FILE", help="draw the reliability diagram of --calibration")
    parser.add_argument("--expected", type=Path, default=None, metavar="FILE",
                        help="only measure and write what tests/bench/test_embedded.py holds the checkpoint to")  # fmt: skip
