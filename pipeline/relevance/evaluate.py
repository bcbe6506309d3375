"""Rankings of a judged collection with and without the classifier: BM25, dense, fused, and each of them re-ranked.

The classifier's logits are blended with the first ranking's scores; the weight is chosen on development queries, and 0 (the first
ranking alone) is among the choices, so one that does not help is left out and the report says so.
Try: python -m pipeline relevance cranfield FOLDER
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from pipeline.build import Tools, build
from pipeline.collection import Collection
from pipeline.encoders import TextEncoder
from pipeline.passages import fuse
from pipeline.relevance.cranfield import Judged
from pipeline.relevance.data import Group
from pipeline.relevance.metrics import NDCG, mean

WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
Logits = Callable[[Sequence[tuple[str, str]]], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Ranking:
    """One query's documents, best first: ids, their best passages' texts, and scores."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    scores: tuple[float, ...]

    def top(self, k: int) -> Ranking:
        return Ranking(self.ids[:k], self.texts[:k], self.scores[:k])


@dataclass(frozen=True, slots=True)
class Rankings:
    """name (``bm25``, ``dense``, ``fused``) → one ranking a query."""

    queries: tuple[str, ...]
    gains: tuple[Mapping[str, float], ...]
    by_name: Mapping[str, tuple[Ranking, ...]]

    def ndcg(self, name: str, k: int = 10) -> float:
        return mean([NDCG(k)(ranking.ids, gains) for ranking, gains in zip(self.by_name[name], self.gains, strict=True)]) or 0.0


@contextmanager
def indexed(judged: Judged, encoder: TextEncoder, folder: Path | None = None) -> Iterator[Collection]:
    """The documents as a collection: in `folder`, where it is built once, or in a place that goes away."""
    with tempfile.TemporaryDirectory(prefix="judged-") as made:
        home = folder or Path(made)
        if not (home / "current").exists():
            build(home, judged.documents, Tools(encoder))
        yield Collection(home, encoder)


def first_stage(judged: Judged, encoder: TextEncoder, depth: int = 50, folder: Path | None = None) -> Rankings:
    """The three rankings of every query; `folder` keeps the collection between runs."""
    with indexed(judged, encoder, folder) as collection:
        by_name: dict[str, list[Ranking]] = {"bm25": [], "dense": [], "fused": []}
        for query, dense in zip(judged.queries, collection.dense(judged.queries, 200), strict=True):
            lists = {"bm25": collection.bm25(query, 200), "dense": dense}
            found = {name: _documents(collection, hits) for name, hits in lists.items()}
            ranked = fuse([list(found["bm25"])[:100], list(found["dense"])[:100]])
            both = {**found["dense"], **found["bm25"]}
            for name in lists:
                by_name[name].append(_ranking([(id_, hit[1], hit[0]) for id_, hit in list(found[name].items())[:depth]]))
            by_name["fused"].append(_ranking([(id_, both[id_][1], score) for id_, score in ranked[:depth]]))
    return Rankings(judged.queries, judged.gains, {name: tuple(rows) for name, rows in by_name.items()})


def _documents(collection: Collection, hits: Sequence[tuple[int, float]]) -> dict[str, tuple[float, str]]:
    """document → (score, text of its best chunk), best first."""
    out: dict[str, tuple[float, str]] = {}
    for chunk, score in hits:
        passage = collection.passage(chunk)
        out.setdefault(passage.document, (score, told(passage.title, passage.text)))
    return out


def told(title: str, text: str) -> str:
    """A passage as the classifier reads it: its title once, then its text."""
    return text if not title or text.startswith(title) else f"{title}. {text}"


def _ranking(rows: Sequence[tuple[str, str, float]]) -> Ranking:
    return Ranking(tuple(r[0] for r in rows), tuple(r[1] for r in rows), tuple(r[2] for r in rows))


def blend(ranking: Ranking, logits: Sequence[float], weight: float, prior: float = 0.0) -> list[str]:
    """Document ids by (1 − weight) · first score + weight · logit, both standardised within the query.

    `prior`: that of a classifier trained on top of the first scores (Recipe.prior): then only those are standardised, times `prior`, and
    the logits keep their size, in which such a classifier says how sure it is.
    """
    if not ranking.ids:
        return []
    made = np.asarray(logits, np.float64) if prior else _standard(logits)
    mixed = (1 - weight) * (prior or 1.0) * _standard(ranking.scores) + weight * made
    return [ranking.ids[i] for i in np.argsort(-mixed, kind="stable")]


def _standard(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    array = np.asarray(values, np.float64)
    spread = array.std()
    made: np.ndarray[tuple[int], np.dtype[np.float64]] = (array - array.mean()) / (spread if spread > 0 else 1.0)
    return made


def scored(rankings: Sequence[Ranking], queries: Sequence[str], logits: Logits) -> list[list[float]]:
    """The classifier's logits for every ranking, in one call."""
    pairs = [(query, text) for query, ranking in zip(queries, rankings, strict=True) for text in ranking.texts]
    flat, out, at = list(logits(pairs)), [], 0
    for ranking in rankings:
        out.append(flat[at : at + len(ranking.ids)])
        at += len(ranking.ids)
    return out


def best_weight(
    rankings: Sequence[Ranking], made: Sequence[Sequence[float]], gains: Sequence[Mapping[str, float]], k: int = 10, prior: float = 0.0
) -> float:
    """The weight with the best nDCG on these queries; the smaller one of equals."""
    return max(WEIGHTS, key=lambda w: (round(blended_ndcg(rankings, made, gains, w, k, prior), 6), -w))


def blended_ndcg(
    rankings: Sequence[Ranking],
    made: Sequence[Sequence[float]],
    gains: Sequence[Mapping[str, float]],
    weight: float,
    k: int = 10,
    prior: float = 0.0,
) -> float:
    values = [NDCG(k)(blend(r, m, weight, prior), g) for r, m, g in zip(rankings, made, gains, strict=True)]
    return mean(values) or 0.0


def likelihood(rankings: Sequence[Ranking], made: Sequence[Sequence[float]], gains: Sequence[Mapping[str, float]], prior: float) -> float:
    """Mean over queries of Σ gain · log softmax of the mixed scores, gains summing to 1: the listwise loss with its sign turned."""
    values: list[float] = []
    for ranking, logits, wanted in zip(rankings, made, gains, strict=True):
        weights = np.array([wanted.get(id_, 0.0) for id_ in ranking.ids])
        if weights.sum() > 0:
            mixed = np.asarray(logits, np.float64) + prior * _standard(ranking.scores)
            mixed = mixed - mixed.max()
            values.append(float(weights @ (mixed - np.log(np.exp(mixed).sum())) / weights.sum()))
    return mean(values) or 0.0


def folds(count: int, parts: int, seed: int) -> list[list[int]]:
    """Numbers 0 … count − 1 in `parts` shuffled parts."""
    order = list(range(count))
    Random(seed).shuffle(order)
    return [sorted(order[i::parts]) for i in range(parts)]


def groups_of(rankings: Rankings, which: Sequence[int], texts: Mapping[str, str], depth: int = 50) -> list[Group]:
    """Training groups of judged queries: every judged document is a positive with its gain, the fused ranking's others are negatives in
    its order, and its standardised scores are the prior; a judged document that it lacks has the lowest."""
    out = []
    for i in which:
        gains, ranking = rankings.gains[i], rankings.by_name["fused"][i]
        known = dict(zip(ranking.ids, ranking.texts, strict=True))
        scores = dict(zip(ranking.ids, _standard(ranking.scores).tolist(), strict=True))
        positives = [(id_, gain) for id_, gain in sorted(gains.items()) if id_ in texts]
        negatives = [id_ for id_ in ranking.ids[:depth] if id_ not in gains]
        if positives and negatives:
            lowest = min(scores.values())
            prior = tuple(scores.get(id_, lowest) for id_ in (*(id_ for id_, _ in positives), *negatives))
            positive = tuple(known.get(id_, texts[id_]) for id_, _ in positives)
            others = tuple(known[id_] for id_ in negatives)
            out.append(Group(rankings.queries[i], positive, others, tuple(gain for _, gain in positives), prior=prior))
    return out


SHARPNESS = 2.0  # of the teacher's softmax over standardised scores


def taught_groups(judged: Judged, collection: Collection, count: int, seed: int, depth: int = 20) -> list[Group]:
    """Groups without any judged query that teach what the first ranking knows: a document's title is the query, the fused ranking of the
    other documents is the teacher. Titles' own abstracts are left out: that pair is learned at once and teaches to match words."""
    documents = [d for d in judged.documents if d.text and len(d.title.split()) >= 4]
    drawn = Random(seed).sample(documents, min(count, len(documents)))
    out = []
    for document, found in zip(drawn, collection.search([d.title for d in drawn], depth + 1), strict=True):
        others = [p for p in found if p.document != document.id][:depth]
        if len(others) > 1:
            texts = tuple(told(p.title, p.text) for p in others)
            teacher = tuple((SHARPNESS * _standard([p.score for p in others])).tolist())
            out.append(Group(document.title, texts[:1], texts[1:], teacher=teacher))
    return out


def pseudo_groups(judged: Judged, collection: Collection, count: int, seed: int, negatives: int = 12) -> list[Group]:
    """Groups without any judged query: a sentence is taken out of an abstract and asked for (inverse cloze); the documents that BM25 and
    the encoder find for it are the negatives. Pairs made from titles are learned at once and teach little; these are harder."""
    rng = Random(seed)
    documents = [d for d in judged.documents if d.text.count(" . ") >= 3]
    drawn: list[tuple[str, str, str]] = []
    for document in rng.choices(documents, k=count):
        sentences = [s.strip() for s in document.text.split(" . ") if len(s.split()) >= 8]
        if len(sentences) < 3:
            continue
        query = rng.choice(sentences[1:])
        rest = " . ".join(s for s in sentences if s != query)
        drawn.append((document.id, " ".join(query.split()[:24]), rest))
    out = []
    for (id_, query, rest), found in zip(drawn, collection.search([query for _, query, _ in drawn], negatives + 1), strict=True):
        others = tuple(told(p.title, p.text) for p in found if p.document != id_)[:negatives]
        if others:
            out.append(Group(query, (rest,), others))
    return out
