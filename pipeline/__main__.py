"""`python -m pipeline …`: collections, the relevance classifier, the safety filter, prompt tuning, and asking.

Try: python -m pipeline --help
"""

from __future__ import annotations

import argparse
import sys

from models import environment
from models.errors import UserError
from pipeline import ask_cli, index_cli
from pipeline.relevance import cli as relevance_cli
from pipeline.safety import cli as safety_cli
from pipeline.tuning import cli as tuning_cli


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 with one message when the user can mend it."""
    parser = argparse.ArgumentParser(prog="python -m pipeline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for module in (index_cli, relevance_cli, safety_cli, tuning_cli, ask_cli):
        module.add_parser(commands)
    args = parser.parse_args(arguments)
    try:
        code: int = args.run(args)
        return code
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0


if __name__ == "__main__":
    environment.apply()
    raise SystemExit(main())
