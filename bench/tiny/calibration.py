"""Whether the model's P(Yes) and P(true) mean what they say: reliability by tenths, expected calibration error, Brier score.

ECE is that of Guo et al. (2017), equation 3, on the probability of the one word (not of the likelier one), in ten equal bins; Brier (1950)
is the mean squared distance from 0 or 1. The probabilities are those that agents are given: first-token probabilities of the two
words (`Decoding.probe`), normalised to each other, as pipeline/replies.py reads them.

    python -m bench eval-tiny --calibration --svg reliability.svg
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.figures import COLOURS, svg
from bench.tiny import tasks
from bench.tiny.evaluate import Score
from models.errors import CallFailed
from models.hf_engine import TransformersEngine
from models.requests import Completion

BINS: Final = 10


@dataclass(frozen=True, slots=True)
class Agent:
    """Which samples ask it (`task` of bench/tiny/tasks.py), its name there, and its two words, the affirmative one first."""

    task: str
    name: str
    words: tuple[str, str]


AGENTS: Final = (
    Agent("search", "validator", ("Yes", "No")),
    Agent("judge", "judge", ("Yes", "No")),
    Agent("compare", "caption_judge", ("Yes", "No")),
    Agent("need", "need", ("true", "false")),
    Agent("safe", "safe", ("true", "false")),
)


def measure(model: Path, n: int, seed: int, agents: Sequence[Agent] = AGENTS, threads: int = 0) -> dict[str, Any]:
    """agent → ``n``, ``ece``, ``brier``, ``elsewhere`` (mean probability of neither word), ``bins``; calls that failed apart."""
    engine = TransformersEngine(model, device="cpu", threads=threads)
    return {agent.name: _agent(engine, agent, n, Random(f"calibration/{seed}/{agent.name}")) for agent in agents}


def _agent(engine: TransformersEngine, agent: Agent, n: int, rng: Random) -> dict[str, Any]:
    source = (s for s in tasks.source(agent.task, rng.getrandbits(40), "test") if s.task == agent.name)
    samples = list(islice(source, n))
    requests = [s.request.with_decoding(max_tokens=1, probe=agent.words) for s in samples]
    replies: dict[int, Completion | CallFailed] = dict(engine.complete_batch(requests))
    pairs, elsewhere = [], []
    for i, sample in enumerate(samples):
        reply = replies[i]
        if isinstance(reply, CallFailed):
            continue
        yes, no = (p for _, p in reply.probs)
        elsewhere.append(1 - yes - no)
        if yes + no > 0:
            pairs.append((yes / (yes + no), sample.reply == agent.words[0]))
    return {
        "word": agent.words[0],
        **reliability(pairs),
        "elsewhere": sum(elsewhere) / len(elsewhere) if elsewhere else None,
        "failed": n - len(pairs),
    }


def reliability(pairs: Sequence[tuple[float, bool]]) -> dict[str, Any]:
    """``n``, ``ece``, ``brier`` and ``bins`` of (probability, whether it was so); None where there is nothing to average."""
    held: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for p, so in pairs:
        held[min(BINS - 1, int(p * BINS))].append((p, so))
    n = len(pairs)
    bins = [
        {
            "low": k / BINS,
            "high": (k + 1) / BINS,
            "n": len(own),
            "mean": sum(p for p, _ in own) / len(own),
            "right": sum(so for _, so in own),
        }
        for k, own in enumerate(held)
        if own
    ]
    return {
        "n": n,
        "ece": sum(abs(b["right"] - b["mean"] * b["n"]) for b in bins) / n if n else None,
        "brier": sum((p - so) ** 2 for p, so in pairs) / n if n else None,
        "bins": bins,
    }


def table(facts: Mapping[str, Any]) -> str:
    """Markdown: a row of figures for every agent, then its reliability by tenths."""
    lines = ["| agent | word | samples | ECE | Brier | probability of neither word |", "|---|---|---|---|---|---|"]
    for name, one in facts.items():
        shown = [f"{one[key]:.3f}" if one[key] is not None else "–" for key in ("ece", "brier", "elsewhere")]
        lines.append(f"| {name} | {one['word']} | {one['n']} | {' | '.join(shown)} |")
    lines += ["", "| agent | P from, to | samples | mean P | was so (95 %) |", "|---|---|---|---|---|"]
    for name, one in facts.items():
        for b in one["bins"]:
            lines.append(f"| {name} | {b['low']:.1f}, {b['high']:.1f} | {b['n']} | {b['mean']:.3f} | {Score(b['right'], b['n'])} |")
    return "\n".join(lines)


def diagram(facts: Mapping[str, Any]) -> str:
    """The reliability diagram as SVG: what was said against what was so, dots as large as their bins are full."""

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1, zorder=1)
        for k, (name, one) in enumerate(facts.items()):
            bins, colour = one["bins"], COLOURS[k % len(COLOURS)]
            x, y = [b["mean"] for b in bins], [b["right"] / b["n"] for b in bins]
            label = f"{name} ({one['word']}), ECE {one['ece']:.3f}" if one["ece"] is not None else f"{name}: nothing to show"
            axes.plot(x, y, "-", color=colour, linewidth=1, label=label)
            axes.scatter(x, y, [10 + 120 * b["n"] / one["n"] for b in bins], color=colour, alpha=0.7, zorder=3)
        axes.set(xlabel="P(word), mean of a tenth", ylabel="how often it was so", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")

    return svg(paint, (5.2, 5.4))
