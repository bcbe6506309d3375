"""`python3 unbundle.pyz` or `python3 -m bench.sealed.unpacker`. Any Python 3 can read this file, and is told when it is too old."""

import os
import sys

if sys.version_info < (3, 8):  # noqa: UP036
    sys.exit("error: this Python is too old even to unpack: run it with python3.11")
if sys.getfilesystemencoding().lower() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
    # names in a bundle are UTF-8 on every disk, also where a locale is not: once more, in Python's own UTF-8 mode
    os.environ["PYTHONUTF8"] = "1"
    me = [sys.argv[0]] if sys.argv[0].endswith(".pyz") else ["-m", "bench.sealed.unpacker"]
    os.execv(sys.executable, [sys.executable, *me, *sys.argv[1:]])

from bench.sealed.unpacker.cli import main

sys.exit(main(sys.argv[1:]))
