"""``python -m bench ask``: `python -m pipeline ask`, with the embedded model and the sample world where no other is named.

Try: python -m bench ask "Where does it live?" --image data/cuem-7/pictures/q0004.png --trace
"""

from __future__ import annotations

import argparse
import sys

from bench.config import EMBEDDED_MODEL
from bench.cuem.sample import HOME, SETTINGS, sample_world
from pipeline import ask_cli

OVER = ("--collection", "--config", "--products", "--places", "--graph", "--app")  # any of these: the user's own sources


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All options of ``python -m pipeline ask``."""
    ask_cli.add_options(parser, needs_model=False)


def run(arguments: argparse.Namespace) -> int:
    """One question; what it is asked over and of whom is said on standard error where it was not given."""
    own = any(getattr(arguments, name.removeprefix("--")) for name in OVER)
    if arguments.model is None:
        arguments.model = EMBEDDED_MODEL
        arguments.prompts = arguments.prompts or "compact"
        _say(f"model: {EMBEDDED_MODEL} (embedded; it knows the sample world's few words and drawn creatures, nothing else)")
    if not own:
        if sample_world(HOME, tell=lambda text: _say(f"sample world: {text}")):
            _say(f"sample world: {HOME}; pictures to ask about lie in {HOME / 'pictures'}, questions in {HOME / 'questions.jsonl'}")
        arguments.config = HOME / SETTINGS
        _say(f"asked over: {HOME} (the sample world; --collection or --config for your own)")
    return ask_cli.answer_question(arguments)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
