"""Writes the map in README.md: one line per module, in reading order, from the first line of its docstring.

python3 scripts/readme_map.py [--check]
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- map: begin -->", "<!-- map: end -->"
# What to read first in a room; the rest follows by name.
FIRST = {
    "models": "requests agents prompts drivers dispatch journal engines hf_engine openai_server planner server",
    "video": "source options strategies index survey pyav decord_reader store workers",
    "kg": "search agents replies knowledge graph dataset captions load",
    "pipeline": "flow agents collection",
    "bench": "settings episode config run predict score metrics stats report",
    "bench/world": "lexicon creatures graph questions render write",
    "bench/tiny": "samples oracle tokenizer architecture train evaluate",
}


def lines() -> list[str]:
    out = []
    for room, first in FIRST.items():
        folder = ROOT / room
        order = first.split()
        files = {path.stem: path for path in folder.glob("*.py") if path.stem not in ("__init__", "__main__")}
        names = [name for name in order if name in files] + sorted(set(files) - set(order))
        out.append(f"\n**{room}/** — {summary(folder / '__init__.py').removeprefix(room + '/').lstrip(' —')}\n")
        out += [f"- [`{room}/{name}.py`]({room}/{name}.py) {summary(files[name])}" for name in names]
        for inner in sorted(path for path in folder.iterdir() if (path / "__init__.py").exists() and f"{room}/{path.name}" not in FIRST):
            out.append(f"- `{room}/{inner.name}/` {summary(inner / '__init__.py')}")
            files = {path.stem: path for path in inner.glob("*.py") if path.stem not in ("__init__", "__main__")}
            out += [f"  - [`{path.name}`]({path.relative_to(ROOT)}) {summary(path)}" for _, path in sorted(files.items())]
    return out


def summary(path: Path) -> str:
    """The first sentence of the module's docstring, on one line."""
    text = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
    return " ".join(text.split())


def main() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    fresh = f"{head}{BEGIN}\n" + "\n".join(lines()).strip() + f"\n{END}{tail}"
    if "--check" in sys.argv:
        if fresh != text:
            sys.exit("the map in README.md is out of date: run python3 scripts/readme_map.py")
    else:
        readme.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
