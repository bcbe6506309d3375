"""The room's command line: `python -m kg COMMAND …`. A command is a row of the table; its module is imported when it is asked for.

Exit codes: 0 done; 1 `check` found errors in the data; 2 a mistake that the reader can mend, told in one message.
"""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from collections.abc import Sequence

from models import environment
from models.errors import UserError
from models.readers import nobody_reads

_AsWritten = argparse.RawDescriptionHelpFormatter

COMMANDS = {
    "check": ("kg.cli_check", "list everything that is wrong or odd in a data set"),
    "show": ("kg.cli_show", "print an entity and what lies around it"),
    "convert": ("kg.cli_convert", "turn a data set into the other layout"),
    "compile": ("kg.cli_compile", "write a data set as one mapped file that loads at once"),
    "measure": ("kg.cli_measure", "make a large graph, compile it and time its loading"),
    "caption": ("kg.caption_cli", "let a model describe every clip once (offline captions)"),
}


def main(argv: Sequence[str]) -> int:
    """Run one command; its module has `add_arguments(parser)` and `run(args) -> exit code`."""
    if not argv or argv[0] in ("-h", "--help") or argv[0] not in COMMANDS:
        lines = [f"  {name:9}{text}" for name, (_, text) in COMMANDS.items()]
        known = not argv or argv[0] in ("-h", "--help")
        head = "" if known else f"error: unknown command {argv[0]!r}\n"
        out = sys.stdout if known and argv else sys.stderr
        print(f"{head}usage: python -m kg COMMAND …   (COMMAND --help says more)\n" + "\n".join(lines), file=out)
        return 0 if known and argv else 2
    try:
        module = importlib.import_module(COMMANDS[argv[0]][0])
        parser = argparse.ArgumentParser(
            prog=f"python -m kg {argv[0]}", description=module.__doc__, formatter_class=_AsWritten, allow_abbrev=False
        )
        module.add_arguments(parser)
        code = int(module.run(parser.parse_args(list(argv[1:]))))
        sys.stdout.flush()  # here, where a reader that has left can still be told from a fault
        return code
    except UserError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `… | head`
        nobody_reads()
        return 0
    except OSError as e:
        if e.filename is None:
            raise
        print(f"error: {e.filename}: {e.strerror} — give a place that can be read and written", file=sys.stderr)
        return 2
    except Exception as e:
        if all(base.__module__ != "video.errors" for base in type(e).__mro__):  # a bug; VideoError is not imported for this
            raise
        print(f"error: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = "what came back is kept. Go on with" if argv[0] == "caption" else "nothing half-done is left. From the start"
        print(f"\nstopped; {kept}: python -m kg {shlex.join(argv)}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    environment.apply()
    raise SystemExit(main(sys.argv[1:]))
