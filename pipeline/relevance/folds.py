"""The classifier on a judged collection, cross-validated: trained on the other folds' queries, weighed on queries held back from them.

Try: python -m pipeline relevance cranfield FOLDER --folds 5
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from pipeline.build import Tools, build
from pipeline.collection import Collection
from pipeline.encoders import text_encoder
from pipeline.relevance import evaluate
from pipeline.relevance.classifier import RelevanceClassifier
from pipeline.relevance.cranfield import Judged
from pipeline.relevance.electra import Electra, merge
from pipeline.relevance.evaluate import Rankings, told
from pipeline.relevance.train import Recipe, mrr, train


def cross_validate(
    judged: Judged,
    rankings: Rankings,
    recipe: Recipe,
    parts: int,
    pseudo: int,
    base: Path | None,
    keep: Path | None,
    tell: Callable[[str], None],
) -> dict[str, object]:
    """nDCG@10 of each ranking re-ranked, over all queries, every one of them scored by a classifier that never saw it.

    `pseudo` groups of inverse cloze come first, without judged queries; each fold goes on from there.
    """
    texts = {document.id: told(document.title, document.text) for document in judged.documents if document.text}
    start = _pretrain(judged, recipe, pseudo, base, keep, tell) if pseudo else None
    got: dict[str, list[float]] = {name: [] for name in rankings.by_name}
    weights: dict[str, list[float]] = {name: [] for name in rankings.by_name}
    for number, test in enumerate(evaluate.folds(len(judged.queries), parts, recipe.seed)):
        others = [i for i in range(len(judged.queries)) if i not in set(test)]
        dev = others[:: max(2, parts)]
        learn = [i for i in others if i not in set(dev)]
        network = _trained(rankings, learn, dev, texts, recipe, base, start, tell)
        for name, rows in rankings.by_name.items():
            weight, value = _reranked(network, rows, rankings, dev, test)
            weights[name].append(weight)
            got[name].append(value * len(test))
        so_far = {
            name: round(sum(v) / sum(len(t) for t in evaluate.folds(len(judged.queries), parts, recipe.seed)[: number + 1]), 4)
            for name, v in got.items()
        }
        tell(f"fold {number + 1}/{parts}: weights {[w[-1] for w in weights.values()]}, so far {so_far}")
    return {
        **{f"nDCG@10 {name} re-ranked": round(sum(values) / len(judged.queries), 4) for name, values in got.items()},
        "weights": weights,
    }


def _pretrain(
    judged: Judged, recipe: Recipe, pseudo: int, base: Path | None, keep: Path | None, tell: Callable[[str], None]
) -> dict[str, torch.Tensor]:
    encoder = text_encoder()
    with tempfile.TemporaryDirectory(prefix="judged-") as made:
        home = keep or Path(made)
        if not (home / "current").exists():
            build(home, judged.documents, Tools(encoder))
        groups = evaluate.pseudo_groups(judged, Collection(home, encoder), pseudo, recipe.seed)
    tell(f"{len(groups)} groups without judged queries")
    held = max(1, len(groups) // 20)
    tools = RelevanceClassifier(base, max_tokens=recipe.max_tokens, dtype="float32")
    steps = min(recipe.steps, max(1, len(groups) // recipe.groups))
    return train(groups[held:], replace(recipe, steps=steps), base, evaluate=mrr(groups[:held], tools), tell=tell).adapter


def _trained(
    rankings: Rankings,
    learn: Sequence[int],
    dev: Sequence[int],
    texts: dict[str, str],
    recipe: Recipe,
    base: Path | None,
    start: dict[str, torch.Tensor] | None,
    tell: Callable[[str], None],
) -> RelevanceClassifier:
    tools = RelevanceClassifier(base, max_tokens=recipe.max_tokens, dtype="bfloat16")
    rows = [rankings.by_name["fused"][i] for i in dev]
    gains = [rankings.gains[i] for i in dev]

    def score(network: Electra) -> float:
        tools.network = network
        with torch.autocast("cpu", torch.bfloat16):
            made = evaluate.scored(rows, [rankings.queries[i] for i in dev], lambda pairs: tools.logits(pairs).tolist())
        return max(evaluate.blended_ndcg(rows, made, gains, weight) for weight in evaluate.WEIGHTS)

    trained = train(evaluate.groups_of(rankings, learn, texts), recipe, base, start, score, tell)
    ready = RelevanceClassifier(base, max_tokens=recipe.max_tokens, dtype="float32")
    if start is not None:
        merge(ready.network, start)
    merge(ready.network, trained.adapter)
    ready.network.to(torch.bfloat16)
    return ready


def _reranked(
    classifier: RelevanceClassifier, rows: Sequence[evaluate.Ranking], rankings: Rankings, dev: Sequence[int], test: Sequence[int]
) -> tuple[float, float]:
    """(the weight that dev prefers, nDCG@10 of the test queries under it)."""
    made = {
        i: made
        for part in (dev, test)
        for i, made in zip(
            part,
            evaluate.scored([rows[i] for i in part], [rankings.queries[i] for i in part], lambda pairs: classifier.logits(pairs).tolist()),
            strict=True,
        )
    }
    gains = rankings.gains
    weight = evaluate.best_weight([rows[i] for i in dev], [made[i] for i in dev], [gains[i] for i in dev])
    return weight, evaluate.blended_ndcg([rows[i] for i in test], [made[i] for i in test], [gains[i] for i in test], weight)
