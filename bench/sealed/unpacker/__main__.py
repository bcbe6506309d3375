"""`python3 unbundle.pyz` or `python3 -m bench.sealed.unpacker`. Any Python 3 can read this file, and is told when it is too old."""

import sys

if sys.version_info < (3, 8):  # noqa: UP036
    sys.exit("error: this Python is too old even to unpack: run it with python3.11")

from bench.sealed.unpacker.cli import main

sys.exit(main(sys.argv[1:]))
