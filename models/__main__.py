"""`python -m models COMMAND`: check, fetch, chat, ping, journal, plan, serve, profile, list, switches. Each command is a module of its own.

Mistakes that the reader can mend end with one message and exit code 2.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from models import environment
from models.errors import ConfigError, UserError
from models.readers import nobody_reads

# command → (module with HELP, add_arguments, run)
COMMANDS = {
    "check": "models.check_cli",
    "fetch": "models.fetch",
    "chat": "models.chat_cli",
    "ping": "models.ping_cli",
    "journal": "models.journal_cli",
    "plan": "models.plan_cli",
    "serve": "models.serve_cli",
    "profile": "models.profile_cli",
    "list": "models.list_cli",
    "switches": "models.switches_cli",
}


def main(argv: Sequence[str]) -> int:
    """Exit code: 0, 1 for a check that failed, 2 for a mistake of the user, 130 after Ctrl-C."""
    try:
        if not argv or argv[0] in ("-h", "--help", "help"):
            print("usage: python -m models COMMAND …   (COMMAND --help tells more)\n")
            for name, place in COMMANDS.items():
                print(f"  {name:<9} {importlib.import_module(place).HELP}", flush=True)
            return 0
        if argv[0] not in COMMANDS:
            raise ConfigError(f"unknown command {argv[0]!r}", remedy=f"one of: {', '.join(COMMANDS)}")
        module = importlib.import_module(COMMANDS[argv[0]])
        parser = argparse.ArgumentParser(prog=f"python -m models {argv[0]}", description=module.HELP)
        module.add_arguments(parser)
        code = int(module.run(parser.parse_args(argv[1:])))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `… | head`
        nobody_reads()
        return 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    environment.apply()
    sys.exit(main(sys.argv[1:]))
