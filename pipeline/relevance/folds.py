"""The classifier on a judged collection, cross-validated: trained on the other folds' queries, weighed on queries held back from them.

Try: python -m pipeline relevance cranfield FOLDER --folds 5
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import torch

from pipeline.encoders import text_encoder
from pipeline.relevance import evaluate
from pipeline.relevance.classifier import RelevanceClassifier, read_adapter
from pipeline.relevance.cranfield import Judged
from pipeline.relevance.electra import Electra, merge
from pipeline.relevance.evaluate import Rankings, told
from pipeline.relevance.train import Recipe, mrr, train

DEV_DEPTH = 20  # of the rankings by which training stops: reading fifty passages a query would take as long as training


def cross_validate(
    judged: Judged,
    rankings: Rankings,
    recipe: Recipe,
    parts: int,
    pseudo: int,
    base: Path | None,
    keep: Path | None,
    tell: Callable[[str], None],
    adapter: Path | None = None,
) -> dict[str, object]:
    """nDCG@10 of each ranking re-ranked, over all queries, every one of them scored by a classifier that never saw it.

    Each fold goes on from a classifier that saw no judged query: made here from `pseudo` groups, or (at 0) an `adapter` made before.
    """
    texts = {document.id: told(document.title, document.text) for document in judged.documents if document.text}
    start = _pretrain(judged, recipe, pseudo, base, keep, tell) if pseudo else read_adapter(adapter)[0] if adapter else None
    parted = evaluate.folds(len(judged.queries), parts, recipe.seed)
    made: dict[str, dict[int, list[float]]] = {name: {} for name in rankings.by_name}
    for number, test in enumerate(parted, start=1):
        others = [i for i in range(len(judged.queries)) if i not in set(test)]
        dev = others[:: max(2, parts)]
        learn = [i for i in others if i not in set(dev)]
        network = _trained(rankings, learn, dev, texts, recipe, base, start, tell)
        for name, found in _logits(rankings, test, network).items():
            made[name] |= found
        done = parted[:number]
        if len(done) > 1:
            tell(f"fold {number}/{parts}: so far {_weighed(rankings, made, done, recipe.prior)}")
    return _weighed(rankings, made, parted, recipe.prior)


def _logits(rankings: Rankings, test: Sequence[int], network: RelevanceClassifier) -> dict[str, dict[int, list[float]]]:
    """ranking → query → logits; a passage that stands in several rankings of a query is read once."""
    pairs = list(dict.fromkeys((rankings.queries[i], text) for rows in rankings.by_name.values() for i in test for text in rows[i].texts))
    known = dict(zip(pairs, network.logits(pairs).tolist(), strict=True))
    return {
        name: {i: [known[rankings.queries[i], text] for text in rows[i].texts] for i in test} for name, rows in rankings.by_name.items()
    }


def _weighed(
    rankings: Rankings, made: dict[str, dict[int, list[float]]], parted: Sequence[Sequence[int]], prior: float
) -> dict[str, object]:
    """nDCG@10 of each ranking re-ranked. A fold's weight is chosen on the queries of the other folds, each with the logits of the
    classifier that never saw it: a fold's own few dozen held-back queries say too little about a weight."""
    out: dict[str, object] = {}
    chosen: dict[str, list[float]] = {}
    for name, rows in rankings.by_name.items():
        total = 0.0
        for test in parted:
            dev = [i for part in parted if part is not test for i in part]
            picked = ([rows[i] for i in dev], [made[name][i] for i in dev], [rankings.gains[i] for i in dev])
            weight = evaluate.best_weight(*picked, prior=prior)
            chosen.setdefault(name, []).append(weight)
            mine = ([rows[i] for i in test], [made[name][i] for i in test], [rankings.gains[i] for i in test])
            total += evaluate.blended_ndcg(*mine, weight, prior=prior) * len(test)
        out[f"nDCG@10 {name} re-ranked"] = round(total / sum(map(len, parted)), 4)
    before = {
        f"nDCG@10 {name} of these": round(_before(rankings, name, [i for part in parted for i in part]), 4) for name in rankings.by_name
    }
    return {**before, **out, "weights": chosen}


def _before(rankings: Rankings, name: str, which: Sequence[int]) -> float:
    rows = [rankings.by_name[name][i] for i in which]
    return evaluate.blended_ndcg(rows, [[0.0] * len(row.ids) for row in rows], [rankings.gains[i] for i in which], 0.0)


def _pretrain(
    judged: Judged, recipe: Recipe, pseudo: int, base: Path | None, keep: Path | None, tell: Callable[[str], None]
) -> dict[str, torch.Tensor]:
    with evaluate.indexed(judged, text_encoder(), keep) as collection:
        taught = evaluate.taught_groups(judged, collection, pseudo // 3, recipe.seed)
        groups = [*taught, *evaluate.pseudo_groups(judged, collection, pseudo - len(taught), recipe.seed)]
    Random(recipe.seed).shuffle(groups)
    tell(f"{len(groups)} groups without judged queries")
    held = max(1, len(groups) // 20)
    tools = RelevanceClassifier(base, max_tokens=recipe.max_tokens, dtype="float32")
    steps = min(recipe.steps, max(1, len(groups) // recipe.groups))
    first = replace(recipe, steps=steps, distil=recipe.distil or 0.8, prior=0.0)
    return train(groups[held:], first, base, evaluate=mrr(groups[:held], tools), tell=tell).adapter


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
    rows = [rankings.by_name["fused"][i].top(DEV_DEPTH) for i in dev]
    gains = [rankings.gains[i] for i in dev]

    def score(network: Electra) -> float:
        """Log-likelihood of the judged documents under the mixed scores: nDCG of a few dozen queries jumps too much to stop by."""
        tools.network = network
        with torch.autocast("cpu", torch.bfloat16):
            made = evaluate.scored(rows, [rankings.queries[i] for i in dev], lambda pairs: tools.logits(pairs).tolist())
        return evaluate.likelihood(rows, made, gains, recipe.prior)

    trained = train(evaluate.groups_of(rankings, learn, texts), recipe, base, start, score, tell)
    ready = RelevanceClassifier(base, max_tokens=recipe.max_tokens, dtype="float32")
    if start is not None:
        merge(ready.network, start)
    merge(ready.network, trained.adapter)
    ready.network.to(torch.bfloat16)
    return ready
