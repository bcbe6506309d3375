"""The smoke training of CI: a fresh model, a few steps on text alone, then its tasks against chance.

Counted in steps, not in minutes: a busy machine takes longer and learns the same. Says nothing of how good a trained model is.

    python -m bench train-tiny --smoke
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.tiny import architecture, evaluate, stages
from bench.tiny.evaluate import Score
from bench.tiny.train import Plan, averaged
from bench.tiny.train import run as train

MIX: Final[Mapping[str, float]] = {"copy": 1.0, "equal": 1.0, "say": 1.0, "compare": 1.0, "topic": 1.0}
# skill → what guessing gets: one of two verdicts (the commoner one, where verdicts are counted apart), of eight names, of 82 words
CHANCE: Final[Mapping[str, float]] = {"caption_judge": 0.5, "topic": 0.125, "copy": 0.0, "equal": 0.5, "say": 1 / 82}
STEPS, SAMPLES, NEEDED = 64, 100, 3


def smoke(cache: Path, family_name: str = "qwen2.5-vl", seed: int = 9, procs: int = 2, steps: int = STEPS) -> dict[str, Score]:
    """Trains `steps` steps from nothing in a folder of its own under `cache`; the skills' scores on unseen worlds."""
    family = architecture.family_named(family_name)
    folder = cache / "smoke" / family.name
    shutil.rmtree(folder, ignore_errors=True)
    stages.fresh(folder, family, seed)
    plan = Plan(
        folder, cache / "smoke", family.name, seed, steps=steps, procs=procs, mix=MIX, shards=1, average=0.95,
        compiled=False,  # compiling takes longer than these steps, and a C++ compiler
    )  # fmt: skip
    train(plan)
    model, encoder, _ = averaged(plan.out, family, folder)
    speaker = evaluate.Speaker(model, encoder, family)
    agents = evaluate.evaluate(speaker, SAMPLES, wanted={"compare": 1.0, "topic": 1.0}).scores
    return {**agents, **evaluate.primers(speaker, SAMPLES, ("copy", "equal", "say"))}


def chance(skill: str, scores: Mapping[str, Score]) -> float:
    """What a constant reply, or a guess, would get."""
    verdicts = [score.total / scores[skill].total for name, score in scores.items() if name.startswith(f"{skill}/")]
    return max([CHANCE[skill], *verdicts])


def beaten(scores: Mapping[str, Score]) -> list[str]:
    """The skills whose whole interval lies above chance."""
    return [skill for skill in CHANCE if scores[skill].interval[0] > chance(skill, scores)]


def run(cache: Path, family_name: str, seed: int, procs: int, steps: int = STEPS) -> int:
    """Says how it went; 0 when `NEEDED` skills beat chance."""
    scores = smoke(cache, family_name, seed, procs, steps)
    print("\n".join(f"{skill:16} {scores[skill]}  chance {chance(skill, scores):.3f}" for skill in CHANCE))
    above = beaten(scores)
    print(f"above chance: {', '.join(above) or 'none'}; {NEEDED} are needed")
    return 0 if len(above) >= NEEDED else 1
