"""The Makefile: what it refuses, and that every variable of a target does something there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "Makefile").read_text().replace("\\\n", " ")
USES = {goal: words.replace("$(RUNS)", re.findall(r"^RUNS := (.*)", TEXT, re.M)[0]).split() for goal, words in
        re.findall(r"^USES\.([\w-]+) := (.*)", TEXT, re.M)}  # fmt: skip
RECIPES = {goal: body for goals, body in re.findall(r"^([a-z][a-z -]*):.*\n((?:\t.*\n)+)", TEXT, re.M) for goal in goals.split()}
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*words: str) -> tuple[int, str]:
    """What `make` says to these words without running a recipe."""
    # `make test` runs these: a make within a make announces its folder and inherits flags.
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES")}
    command = ["make", "-n", "-o", ".venv/.ready", *words]
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("goal", sorted(RECIPES))
def test_a_target_takes_what_its_recipe_reads(goal: str) -> None:
    flags = re.findall(r"^BENCH_FLAGS = (.*)", TEXT, re.M)[0]
    body = RECIPES[goal].replace("$(BENCH_FLAGS)", flags)
    read = set(re.findall(r"\$\(call (?:flag|need),([A-Z_]+)", body)) | set(re.findall(r"\$\((SUITE|RUN)\)", body))
    assert read - {"GPU", "VERSION"} == set(USES.get(goal, [])), goal


@needs_make
@pytest.mark.parametrize("goal", sorted(USES))
def test_every_variable_arrives_whole(goal: str) -> None:
    given = {name: f"{name.lower()} it's" for name in USES[goal] if name != "SUITE"}
    code, said = make(goal, *(f"{name}={value}" for name, value in given.items()))
    assert code == 0, said
    for value in given.values():
        assert value.replace("'", "'\\''") in said or value in said


@needs_make
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bench", "MODLE=x"], "unknown variable MODLE"),
        (["bench", "RUN=x"], "make bench does not take RUN=: it takes SUITE CONFIG DATA"),
        (["report", "SETTINGS=vanilla"], "make report does not take SETTINGS=: it takes RUN"),
        (["lint", "DATA=x"], "no variable of its own"),
        (["LIMIT=3"], "make help does not take LIMIT="),
        (["bench", "SUITE=ablation"], "unknown SUITE=ablation"),
        (["check"], "make check needs DATA="),
        (["caption"], "make caption needs DATA="),
        (["plan"], "make plan needs MODEL="),
        (["ask"], "make ask needs Q="),
    ],
)
def test_what_would_do_nothing_or_is_missing_is_refused(words: list[str], says: str) -> None:
    code, said = make(*words)
    assert code == 2 and says in said and said.count("\n") == 1


@needs_make
@pytest.mark.parametrize("words", [["setup", "GPU=1"], ["test", "ARGS=-k x"], ["check", "ARGS=--help"], ["setup", "bench", "LIMIT=3"]])
def test_what_goes_everywhere_goes_here_too(words: list[str]) -> None:
    assert make(*words)[0] == 0
