"""Training of the relevance classifier: listwise or pairwise over groups, LoRA or whole, early stopping, seeded.

Knows no data set. Try: python -m pipeline relevance train --help
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

import torch
from torch.nn import functional as F

from models.errors import ConfigError
from pipeline.relevance.classifier import RelevanceClassifier, batches
from pipeline.relevance.data import Drawn, Group
from pipeline.relevance.electra import Electra, adapter_of, add_lora, load, merge
from pipeline.relevance.metrics import MRR, mean


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that a training depends on besides its groups.

    Attributes:
        rank: of the LoRA factors; 32 keeps the adapter below 3 MB. from_layer: the first layer that is changed.
        groups: queries in a step. negatives: texts below the positive in each. loss: "listwise" (softmax over the group) or "pointwise"
            (CUE-M's classifier: each pair for itself). distil: weight of the teacher's softmax where groups have one.
        hard: how many times more negatives are drawn than kept. prior: weight of the first ranking's standardised scores, to which the
            logits are added before the listwise softmax: what is learned is what the first ranking gets wrong. 0 leaves them out.
        steps, minutes: whichever ends first. patience: evaluations without a better MRR; every: steps between them.
    """

    seed: int = 0
    rank: int = 32
    alpha: float = 32.0
    from_layer: int = 0
    rate: float = 3e-4
    warmup: int = 20
    groups: int = 8
    negatives: int = 4
    loss: Literal["listwise", "pointwise"] = "listwise"
    distil: float = 0.0
    hard: float = 1.0
    prior: float = 0.0
    dropout: float = 0.1
    max_tokens: int = 192
    budget: int = 8192
    steps: int = 400
    minutes: float = 60.0
    every: int = 50
    patience: int = 4

    def __post_init__(self) -> None:
        for name in ("rank", "groups", "negatives", "steps", "every", "patience"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}", remedy="give 1 or more")


@dataclass
class Trained:
    """The adapter with the best score on the development groups, and how it came about."""

    adapter: dict[str, torch.Tensor]
    score: float
    step: int
    seconds: float
    log: list[str] = field(default_factory=list)


def train(
    groups: Sequence[Group],
    recipe: Recipe,
    base: Path | None = None,
    start: dict[str, torch.Tensor] | None = None,
    evaluate: Callable[[Electra], float] | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Trained:
    """Train an adapter on `groups`.

    Args:
        start: an adapter to go on from; it is merged first and must be given again when the new one is used (see `stack`).
        evaluate: network → the score that early stopping follows (higher is better); None keeps the last step.
    """
    torch.manual_seed(recipe.seed)
    rng = Random(recipe.seed)
    tools = RelevanceClassifier(base, max_tokens=recipe.max_tokens, dtype="float32")
    network = load(tools.base, recipe.seed)
    if start is not None:
        merge(network, start)
    network.dropout = recipe.dropout
    parameters = add_lora(network, recipe.rank, recipe.alpha, recipe.from_layer)
    optimizer = torch.optim.AdamW(parameters, lr=recipe.rate, weight_decay=0.01)
    begun, best = time.monotonic(), Trained(adapter_of(network), evaluate(network) if evaluate else 0.0, 0, 0.0)
    order: list[Group] = []
    stale, total, seen = 0, 0.0, 0
    for step in range(1, recipe.steps + 1):
        order = order if len(order) >= recipe.groups else order + rng.sample(list(groups), len(groups))
        drawn, order = order[: recipe.groups], order[recipe.groups :]
        for group in optimizer.param_groups:
            fall = max(0.0, 1.0 - step / recipe.steps)
            group["lr"] = recipe.rate * min(1.0, step / recipe.warmup) * (0.1 + 0.9 * fall)
        total += _step(network.train(), tools, drawn, recipe, rng)
        seen += 1
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        over = time.monotonic() - begun > 60 * recipe.minutes
        if step % recipe.every == 0 or step == recipe.steps or over:
            score = evaluate(network.eval()) if evaluate else float(step)
            line = f"step {step}: loss {total / seen:.4f}, score {score:.4f}, {time.monotonic() - begun:.0f} s"
            best.log.append(line)
            tell(line)
            stale, total, seen = stale + 1, 0.0, 0
            if score > best.score:
                best = Trained(copy.deepcopy(adapter_of(network)), score, step, time.monotonic() - begun, best.log)
                stale = 0
            if stale >= recipe.patience or over:
                break
    best.seconds = time.monotonic() - begun
    return best


def _step(network: Electra, tools: RelevanceClassifier, drawn: Sequence[Group], recipe: Recipe, rng: Random) -> float:
    """One forward and backward pass over a few groups; gradients are left in the parameters."""
    rows = [group.draw(rng, recipe.negatives, recipe.hard) for group in drawn]
    pairs = [(group.query, text) for group, row in zip(drawn, rows, strict=True) for text in row.texts]
    logits = torch.zeros(len(pairs))
    with torch.autocast("cpu", torch.bfloat16):
        for batch in batches(tools.tokenizer, pairs, recipe.budget):
            logits = logits.index_put((torch.tensor(batch.rows),), network(batch.ids, batch.types, batch.lengths).float())
    losses, at = [], 0
    for row in rows:
        losses.append(_loss(logits[at : at + len(row.texts)], row, recipe))
        at += len(row.texts)
    loss = torch.stack(losses).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.detach())


def _loss(logits: torch.Tensor, row: Drawn, recipe: Recipe) -> torch.Tensor:
    gains = torch.tensor(row.gains)
    if recipe.loss == "pointwise":
        loss = F.binary_cross_entropy_with_logits(logits, (gains > 0).float())
    else:
        mixed = logits + recipe.prior * torch.tensor(row.prior) if recipe.prior and row.prior else logits
        loss = -(gains / gains.sum() * F.log_softmax(mixed, 0)).sum()
    if recipe.distil and row.teacher:
        taught = F.softmax(torch.tensor(row.teacher), 0)
        loss = (1 - recipe.distil) * loss - recipe.distil * (taught * F.log_softmax(logits, 0)).sum()
    return loss


def mrr(groups: Sequence[Group], tools: RelevanceClassifier) -> Callable[[Electra], float]:
    """The score that early stopping follows: MRR of the positives among each development group's texts."""
    pairs = [(group.query, text) for group in groups for text in (*group.positive, *group.negative)]
    ready = list(batches(tools.tokenizer, pairs, tools.budget))

    def evaluate(network: Electra) -> float:
        logits = torch.zeros(len(pairs))
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            for batch in ready:
                logits[batch.rows] = network(batch.ids, batch.types, batch.lengths).float()
        values, at = [], 0
        for group in groups:
            count = len(group.positive) + len(group.negative)
            ranked = sorted(range(count), key=lambda i: -float(logits[at + i]))
            values.append(MRR()(ranked, dict.fromkeys(range(len(group.positive)), 1.0)))
            at += count
        return mean(values) or 0.0

    return evaluate
