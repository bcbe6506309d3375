"""What ``eval-tiny`` measures, part by part: one row a part, one flag a row, one JSON file for all, from which card and docs are made.

A part measures into plain figures and prints from them alone, so that a table made later from the JSON says the same.

    python -m bench eval-tiny --all --json evaluation.json && python -m bench train-tiny --card evaluation.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.tiny import architecture, calibration, endtoend, evaluate, regression, robustness, speed, targets
from bench.tiny.evaluate import Score, Speaker
from bench.tiny.options import WORLDS
from models.errors import ConfigError, DataError
from models.files import replace, writable

FORMAT: Final = 1


@dataclass(frozen=True)
class Subject:
    """The model under test, in memory and as a folder, and how it is tested."""

    speaker: Speaker
    folder: Path
    work: Path
    n: int
    seed: int
    threads: int
    tasks: Mapping[str, float]
    worlds: endtoend.Worlds
    told: list[str] = field(default_factory=list)  # what is printed once and kept nowhere

    @property
    def family(self) -> str:
        return self.speaker.family.name


@dataclass(frozen=True, slots=True)
class Part:
    """One flag: what it measures, and how its figures are shown."""

    title: str
    measure: Callable[[Subject], dict[str, Any]]
    table: Callable[[Mapping[str, Any]], str]


def _skills(subject: Subject) -> dict[str, Any]:
    result = evaluate.evaluate(subject.speaker, subject.n, subject.seed, subject.tasks)
    for task, bad in result.wrong.items():
        subject.told.extend(f"{task}: {prompt}\n    gold {gold!r}\n    said {said!r}" for prompt, gold, said in bad)
    return {
        "scores": {skill: {"right": score.right, "total": score.total} for skill, score in result.scores.items()},
        "confused": [[gold, said, n] for (gold, said), n in sorted(result.confused.items())],
    }


def _skill_table(facts: Mapping[str, Any]) -> str:
    lines = ["| skill | right | target |", "|---|---|---|"]
    for skill, cell in facts["scores"].items():
        score = Score(cell["right"], cell["total"])
        wanted = targets.verdict(targets.SKILLS.get(skill), score.value if score.total else None)
        lines.append(f"| {skill} | {score if score.total else 'no sample'} | {wanted} |")
    wrong = [f"{gold} → {said} {n} ×" for gold, said, n in facts["confused"] if gold != said]
    shown = sum(n for *_, n in facts["confused"])
    return "\n".join([*lines, "", f"Motions taken for others, of {shown} shown: {'; '.join(wrong) or 'none'}."])


PARTS: Final[Mapping[str, Part]] = {
    "skills": Part("Skills on unseen worlds", _skills, _skill_table),
    "end-to-end": Part(
        "End to end",
        lambda s: endtoend.measure(s.folder, s.worlds, s.work / "worlds"), endtoend.table,
    ),
    "robustness": Part(
        "Robustness of the perceiver",
        lambda s: robustness.measure(s.speaker, s.n, s.seed), robustness.table,
    ),
    "calibration": Part(
        "Calibration",
        lambda s: calibration.measure(s.folder, s.n, s.seed, threads=s.threads), calibration.table,
    ),
    "speed": Part(
        "Speed",
        lambda s: speed.measure(s.folder, s.work / "speed", s.seed, s.threads), speed.table,
    ),
}  # fmt: skip


def check(arguments: argparse.Namespace) -> None:
    """Raises ConfigError for options that do not fit and files that cannot be written, before a model is loaded."""
    worlds_of(arguments)
    if arguments.n < 1:
        raise ConfigError(f"--n {arguments.n}", remedy="measure at least one sample")
    if arguments.svg is not None and "calibration" not in arguments.parts:
        raise ConfigError("--svg draws the calibration", remedy="add --calibration or --all")
    for path in filter(None, (arguments.json, arguments.svg, arguments.out, arguments.expected)):
        writable(path)


def worlds_of(arguments: argparse.Namespace) -> endtoend.Worlds:
    """The worlds that the options ask for. Raises ConfigError."""
    try:
        seeds = [int(text) for text in arguments.worlds.split(",") if text.strip()]
    except ValueError:
        raise ConfigError(f"--worlds {arguments.worlds!r} is no list of whole numbers", remedy="for example --worlds 11,12,13") from None
    return endtoend.Worlds.asking(arguments.questions, seeds or [arguments.seed + i for i in range(WORLDS)])


def run(arguments: argparse.Namespace, speaker: Speaker, folder: Path | None, tasks: Mapping[str, float]) -> dict[str, Any]:
    """Measures the parts asked for, prints their tables as they come, writes the files asked for; all figures.

    Args:
        folder: of the model; None for one that exists in memory alone, which is exported aside for the parts that need a folder.
    """
    wanted = [name for name in PARTS if name in (arguments.parts or ["skills"])]
    worlds = worlds_of(arguments)
    with _folder(arguments.work) as work:
        where = folder or _exported(speaker, work / "model")
        if arguments.expected is not None:
            facts = regression.write(where, arguments.expected, work / "regression")
            print(f"{endtoend.table(facts)}\n\nwritten to {arguments.expected}")
            return facts
        subject = Subject(speaker, where, work, arguments.n, arguments.seed, arguments.threads, tasks, worlds)
        facts = {"format": FORMAT, "model": about(subject), "parts": {}}
        if arguments.keep and arguments.json is not None and arguments.json.exists():
            before = read(arguments.json)
            facts["parts"] |= before["parts"] if before["model"]["weights"] == facts["model"]["weights"] else {}
        texts = []
        for name in wanted:
            facts["parts"][name] = {"seed": subject.seed, "n": subject.n, "figures": PARTS[name].measure(subject)}
            texts.append(shown(name, facts["parts"][name]))
            print(texts[-1] + "\n", flush=True)
    for line in subject.told:
        print(line)
    if arguments.out is not None:
        replace(arguments.out, "\n\n".join([*texts, *subject.told]) + "\n")
    if arguments.json is not None:
        replace(arguments.json, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    if arguments.svg is not None:
        replace(arguments.svg, calibration.diagram(facts["parts"]["calibration"]["figures"]))
    return facts


def shown(name: str, part: Mapping[str, Any], heading: str = "") -> str:
    """Title and table of one part's figures, as text and as Markdown."""
    drawn = "" if name in ("end-to-end", "speed") else f" ({part['n']} samples each, seed {part['seed']})"
    return f"{heading}{PARTS[name].title}{drawn}\n\n{PARTS[name].table(part['figures'])}"


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="eval-tiny-") as name:
        yield Path(name)


def _exported(speaker: Speaker, folder: Path) -> Path:
    architecture.export(speaker.model, speaker.encoder.tokenizer, speaker.family, folder, "exported to be evaluated\n")
    return folder


def about(subject: Subject) -> dict[str, Any]:
    """What was measured: family, digest of the weights, bytes of the folder, parameters, vocabulary."""
    model = subject.speaker.model
    return {
        "family": subject.family,
        "weights": regression.weights_digest(subject.folder),
        "bytes": sum(file.stat().st_size for file in subject.folder.iterdir() if file.is_file()),
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": subject.speaker.encoder.tokenizer.get_vocab_size(),
    }


def read(path: Path) -> dict[str, Any]:
    """What ``--json`` wrote. Raises DataError."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        known = facts["format"] == FORMAT and set(facts["parts"]) <= set(PARTS)
        if known:
            facts["model"]["family"], facts["model"]["weights"]
            for name, part in facts["parts"].items():
                shown(name, part)  # whoever reads it will print it
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise DataError(f"cannot be read as an evaluation: {error!r}", where=str(path), remedy=_REMEDY) from None
    if not known:
        raise DataError("is an evaluation of another version", where=str(path), remedy=_REMEDY)
    return dict(facts)


_REMEDY: Final = "make it with python -m bench eval-tiny --all --json FILE"
