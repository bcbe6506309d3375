"""Every command that a docstring, a document or the Makefile names exists, down to its options; modules that are run exist too."""

import contextlib
import importlib
import io
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("models", "video", "kg", "pipeline", "bench")
WRITTEN = re.compile(rf"python[\d.]* -m ((?:{'|'.join(ROOMS)})(?:\.\w+)*)((?: (?!python)[^\s`#|&;…]+)*)")
WORD = re.compile(r"[a-z][a-z0-9-]*")


def texts() -> Iterator[tuple[str, str]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", ROOT / "Makefile", *sorted((ROOT / "docs").glob("*.md"))]:
        yield path.name, path.read_text(encoding="utf-8")


def written() -> list[tuple[str, str, tuple[str, ...]]]:
    """(where, module, words after it); a line that ends in a backslash goes on in the next."""
    found = []
    for where, text in texts():
        for match in WRITTEN.finditer(re.sub(r" *\\\n\s*", " ", text)):
            found.append((where, match[1], tuple(match[2].split())))
    return found


@cache
def help_of(room: str, command: tuple[str, ...]) -> str | None:
    """What `--help` says; None when there is no such command."""
    out, errors = io.StringIO(), io.StringIO()
    main = importlib.import_module(f"{room}.__main__").main
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            code = main([*command, "--help"])
        except SystemExit as ended:
            code = ended.code
    return out.getvalue() if code in (0, None) else None


@cache
def commands(room: str, before: tuple[str, ...] = ()) -> frozenset[str]:
    """Names of the (sub)commands that a help text lists."""
    said = help_of(room, before) or ""
    listed = re.findall(r"\{([a-z0-9,-]+)\}", said) if "positional arguments" in said else []
    rows = re.findall(r"^ {2,4}([a-z][a-z-]*)  ", said, re.M) + re.findall(r"^ {4}([a-z][a-z-]*)$", said, re.M)
    others = re.findall(rf"python -m {room} ([a-z]+)", said)
    return frozenset(word for group in (",".join(listed).split(","), rows, others) for word in group if word)


@pytest.mark.parametrize("room", ROOMS)
def test_commands_that_are_written_somewhere_exist(room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [f"python -m {room}"])
    wrong = []
    for where, module, words in written():
        if module != room or not words:
            continue
        command: tuple[str, ...] = ()
        while len(command) < min(3, len(words)) and WORD.fullmatch(words[len(command)]) and commands(room, command):
            word = words[len(command)]
            if word not in commands(room, command):
                if not command and room != "video":
                    wrong.append(f"{where}: python -m {room} {word}: there is no such command")
                break
            command = (*command, word)
        said = help_of(room, command)
        if said is None:
            wrong.append(f"{where}: python -m {' '.join((room, *command))} --help fails")
            continue
        options = {word.split("=")[0].rstrip(".,:)\"'") for word in words if word.startswith("--")}
        missing = sorted(option for option in options if option not in ("--help", "--") and not re.search(rf"{option}\b", said))
        wrong += [f"{where}: python -m {' '.join((room, *command))} knows no {option}" for option in missing]
    assert not wrong, "\n".join(wrong)


def test_modules_that_are_run_exist() -> None:
    wrong = [f"{where}: python -m {module}" for where, module, _ in written() if "." in module and not runs(module)]
    assert not wrong, "\n".join(wrong)


def runs(module: str) -> bool:
    path = ROOT / module.replace(".", "/")
    main = path / "__main__.py"
    one = main if main.is_file() else path.with_suffix(".py")
    return one.is_file() and (one == main or "__main__" in one.read_text(encoding="utf-8"))


def test_the_check_itself_finds_a_command_that_is_not_there() -> None:
    assert help_of("bench", ("cuem-world",)) is None
    assert "run" in commands("bench") and "build" in commands("pipeline", ("index",)) and "check" in commands("kg")
    assert "--limit" in (help_of("bench", ("run",)) or "")
