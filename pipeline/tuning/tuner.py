"""The tuning loop: try the template forwards, show what went right and wrong to a writer, score its rewritings, keep the best.

Deterministic given seed, data and model replies: all calls are journalled, so the same command after a kill goes on where it was.
Knows no file layout. Try: python -m pipeline tune detect --data labelled.jsonl --model FOLDER
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from models.agents import Agent, Call, Episode, ask
from models.drivers import run
from models.engines import Engine
from models.errors import RunError
from models.journal import Journal
from models.prompts import Prompt, load_prompt
from pipeline.agents import Agents
from pipeline.tuning.rows import RIGHT, STAGES, Labelled
from pipeline.tuning.templates import Refused, Template

WRITER = Path(__file__).parent / "writer.yaml"
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to tune.

    Attributes:
        rounds: of forward pass, rewriting, scoring. candidates: rewritings in a round. shown: samples of each kind shown to the writer.
        validation, test: shares of the samples to choose by, and to report on, never seen before (0: none).
        patience: rounds without a better template before the loop ends. temperature: of the writer.
    """

    rounds: int = 3
    candidates: int = 4
    shown: int = 4
    validation: float = 0.4
    test: float = 0.2
    patience: int = 2
    temperature: float = 0.8
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Split:
    train: tuple[Labelled, ...]
    validation: tuple[Labelled, ...]
    test: tuple[Labelled, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """A template that was scored on the validation samples. `failed` counts calls that were lost; they score 0."""

    prompt: Prompt
    score: float
    round: int
    parent: int
    failed: int = 0


@dataclass
class Tuned:
    """All templates tried, the first being the parent of all; `best` is an index; test scores are of the first and of the best."""

    tried: list[Tried]
    best: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    test_before: float | None = None
    test_after: float | None = None


def split(rows: Sequence[Labelled], plan: Plan) -> Split:
    """Seeded, each kind of label spread evenly over the parts. Every part that is asked for has a sample at least."""
    kinds: dict[str, list[Labelled]] = {}
    for row in rows:
        kinds.setdefault(json.dumps(row.label) if isinstance(row.label, bool) else "", []).append(row)
    rng = Random(plan.seed)
    order: list[tuple[float, Labelled]] = []
    for found in kinds.values():
        rng.shuffle(found)
        order += [((i + rng.random()) / len(found), row) for i, row in enumerate(found)]
    dealt = [row for _, row in sorted(order, key=lambda pair: pair[0])]
    count = len(dealt)
    test = max(1, round(plan.test * count)) if plan.test and count >= 10 else 0
    validation = max(1, round(plan.validation * count))
    validation = min(validation, count - test - 1)
    return Split(tuple(dealt[test + validation :]), tuple(dealt[test : test + validation]), tuple(dealt[:test]))


def tune(
    stage: str, agents: Agents, parts: Split, plan: Plan, backends: Mapping[str, Engine], journal: Journal, tell: Tell = lambda line: None
) -> Tuned:
    """The best template for `stage`. `backends` has a role ``writer`` beside the stage's own. Raises RunError when nothing is answered."""
    work = _Work(stage, agents, plan, backends, journal)
    first = agents.rows[stage].prompt
    score, lost = work.score(first, parts.validation, "v0")
    if lost == len(parts.validation):
        raise RunError(
            f"all {lost} calls of {stage} failed ({work.last_failure})",
            where=str(journal.path),
            remedy="see the journal: python -m models journal",
        )
    out = Tuned([Tried(first, score, 0, -1, lost)])
    tell(f"the template as it is: {score:.4f} on {len(parts.validation)} samples")
    stale = 0
    for number in range(1, plan.rounds + 1):
        if out.tried[out.best].score >= 1.0 or stale >= plan.patience:
            break
        before = out.tried[out.best].score
        for prompt in work.rewritings(out, parts.train, number):
            score, lost = work.score(prompt, parts.validation, f"v{len(out.tried)}")
            out.tried.append(Tried(prompt, score, number, out.best, lost))
            tell(f"round {number}: {score:.4f}{f', {lost} calls failed' if lost else ''}")
        best = max(range(len(out.tried)), key=lambda i: (out.tried[i].score, -i))
        out.best = best if out.tried[best].score > out.tried[out.best].score else out.best
        stale = 0 if out.tried[out.best].score > before else stale + 1
    if parts.test:
        out.test_before = work.score(first, parts.test, "t0")[0]
        out.test_after = work.score(out.tried[out.best].prompt, parts.test, f"t{out.best}")[0]
    return out


@dataclass(frozen=True)
class _Forward:
    row: Labelled
    reply: str
    score: float


class _Work:
    """What the loop does with models; a journal answers what was asked before."""

    def __init__(self, stage: str, agents: Agents, plan: Plan, backends: Mapping[str, Engine], journal: Journal) -> None:
        self.stage, self.agents, self.plan, self.backends, self.journal = stage, agents, plan, backends, journal
        self.last_failure = ""
        self.writer = Agent("write", "writer", load_prompt(WRITER))

    def score(self, prompt: Prompt, rows: Sequence[Labelled], label: str) -> tuple[float, int]:
        """(mean score, calls that failed); a failed call scores 0."""
        made = self.forward(prompt, rows, label)
        return sum(one.score for one in made if one is not None) / len(rows), sum(one is None for one in made)

    def forward(self, prompt: Prompt, rows: Sequence[Labelled], label: str) -> list[_Forward | None]:
        """Every row's reply and score; None where the call failed."""
        row = self.agents.rows[self.stage]
        agents = replace(self.agents, rows={**self.agents.rows, self.stage: replace(row, prompt=prompt)})
        kind = STAGES[self.stage]
        lives = ((f"{label}|{i}", _one(kind.call(agents, one), one, kind.score)) for i, one in enumerate(rows))
        done = run(lives, self.backends, self.journal)
        lost = [one.failure for one in done.values() if one.failure is not None]
        if lost:
            self.last_failure = f"{lost[-1].reason}: {lost[-1].detail[:200]}"
        return [done[f"{label}|{i}"].value for i in range(len(rows))]

    def rewritings(self, out: Tuned, train: Sequence[Labelled], number: int) -> list[Prompt]:
        """New templates of one round, each from other samples; refused ones are counted."""
        best = out.tried[out.best]
        known = {tried.prompt.body for tried in out.tried}
        made = [one for one in self.forward(best.prompt, train, f"f{number}") if one is not None]
        right = [one for one in made if one.score >= RIGHT]
        wrong = [one for one in made if one.score < RIGHT] or sorted(right, key=lambda one: one.score)[: self.plan.shown]
        template, lives = Template.of(best.prompt), []
        for i in range(self.plan.candidates):
            rng = Random(f"{self.plan.seed} {number} {i}")
            lives.append((f"w{number}|{i}", self._write(template, best.score, _draw(rng, right, self.plan.shown),
                                                        _draw(rng, wrong, self.plan.shown), i)))  # fmt: skip
        prompts: list[Prompt] = []
        for outcome in run(lives, self.backends, self.journal).values():
            if outcome.failure is not None or outcome.value is None:
                out.refused[f"the writer's call failed ({outcome.failure.reason if outcome.failure else 'nothing'})"] += 1
                continue
            try:
                prompt = template.read(outcome.value)
            except Refused as error:
                out.refused[str(error)] += 1
            except ValueError:
                out.refused["no valid prompt"] += 1
            else:
                if prompt.body in known:
                    out.refused["tried before"] += 1
                else:
                    known.add(prompt.body)
                    prompts.append(prompt)
        return prompts

    def _write(self, template: Template, score: float, right: Sequence[_Forward], wrong: Sequence[_Forward], i: int) -> Episode[str]:
        fields = {
            "stage": self.stage,
            "template": template.text,
            "legend": template.told,
            "right": self._shown(right),
            "wrong": self._shown(wrong),
            "score": f"{score:.2f}",
        }
        call: Call[str] = self.writer.call(fields, str, about=i)
        warm = call.request.with_decoding(temperature=self.plan.temperature, seed=self.plan.seed * 1000 + i)
        (reply,) = yield from ask([replace(call, request=warm)])
        return reply

    def _shown(self, samples: Sequence[_Forward]) -> str:
        """Samples as the writer reads them: fenced, since texts of users and sources stand in them."""
        rows = []
        for one in samples:
            given = json.dumps(dict(one.row.given), ensure_ascii=False)[:1500]
            told = f"input: {given}\nreply: {one.reply[:500]}\nright: {json.dumps(one.row.label, ensure_ascii=False)[:500]}"
            rows.append(self.agents.style.fence("sample", told))
        return "\n".join(rows) or "(none)"


def _one(call: Call[object], row: Labelled, score: Callable[[object, object], float]) -> Episode[_Forward]:
    (reply,) = yield from ask([call])
    return _Forward(row, str(reply), score(reply, row.label))


def _draw(rng: Random, samples: Sequence[_Forward], count: int) -> list[_Forward]:
    return rng.sample(list(samples), min(count, len(samples)))
