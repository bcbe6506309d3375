"""Writes a bundle of one folder's files, as the command does with its errors: python write_target.py OUT DATA"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench import __main__ as command
from bench.sealed.items import Component, Item
from bench.sealed.pack import Contents, write


def run(out: Path, data: Path) -> int:
    root = Path(__file__).parents[3]
    project = Component("project", "untamed", "0", "Apache-2.0", "LICENSE", "the project", {"commit": "01234567"})
    sources = sorted((root / "bench/sealed/unpacker").glob("*.py"))
    items = [Item(one.relative_to(root).as_posix(), one.read_bytes(), project.id) for one in sources]
    items += [Item(f"carried/data/x/{one.name}", one, "data:x") for one in sorted(data.iterdir())]
    data_set = Component("data", "x", "", "MIT", "LICENSE", "data set")
    target = {"kind": "cpu", "python": "3.11", "system": "Linux", "machine": "x86_64", "glibc": "2.17", "cpu": [], "cuda": "", "driver": ""}
    write(Contents(tuple(items), (data_set,), project, {**target, "install_bytes": 0}, (("", ".venv"),), (), {}, 0), out, 10**9)
    return 0


if __name__ == "__main__":
    row = command.Command("writes", lambda parser: None, lambda given: run(Path(sys.argv[1]), Path(sys.argv[2])))
    command.COMMANDS = {"write": row}
    sys.exit(command.main(["write"]))
