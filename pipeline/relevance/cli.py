"""`python -m pipeline relevance …`: pairs, training, evaluation, export, throughput.

python -m pipeline relevance train groups.jsonl --out adapter.safetensors
python -m pipeline relevance cranfield ../shared/cranfield --folds 5
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import torch

from models.errors import ConfigError
from pipeline.documents import Notes
from pipeline.encoders import cross_encoder, digest_of, text_encoder
from pipeline.files import sha256
from pipeline.index_cli import open_folder
from pipeline.relevance import cranfield, evaluate
from pipeline.relevance.classifier import RelevanceClassifier
from pipeline.relevance.data import Filter, from_log, read_groups, read_log, write_groups
from pipeline.relevance.electra import Electra
from pipeline.relevance.folds import cross_validate
from pipeline.relevance.metrics import MRR, mean
from pipeline.relevance.store import card_of, export_merged, save_adapter
from pipeline.relevance.train import Recipe, mrr, train


def add_parser(parent: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    top = parent.add_parser("relevance", help="the relevance classifier: train, evaluate, export")
    sub = top.add_subparsers(dest="action", required=True)
    pairs = sub.add_parser("pairs", help="training groups from a query log, filtered by a local NLI model")
    pairs.add_argument("log", type=Path, help='JSONL of {"query", "snippet"}')
    pairs.add_argument("collection", type=Path)
    pairs.add_argument("out", type=Path)
    pairs.add_argument("--nli", required=True, type=Path, help="a local cross-encoder folder; its entailment is used")
    pairs.add_argument("--positive", type=float, default=0.9)
    pairs.add_argument("--negative", type=float, default=0.3)
    pairs.add_argument("--ratio", type=int, default=4)
    pairs.set_defaults(run=_pairs)
    learn = sub.add_parser("train", help="an adapter from groups")
    learn.add_argument("groups", type=Path)
    learn.add_argument("--dev", type=Path, help="groups for early stopping (default: a tenth of the training groups)")
    learn.add_argument("--out", type=Path, required=True)
    _recipe_options(learn)
    learn.set_defaults(run=_train)
    test = sub.add_parser("eval", help="MRR over groups")
    test.add_argument("groups", type=Path)
    test.set_defaults(run=_eval)
    export = sub.add_parser("export", help="the merged network as an ELECTRA folder")
    export.add_argument("out", type=Path)
    export.set_defaults(run=_export)
    score = sub.add_parser("score", help="P(relevant) of passages")
    score.add_argument("query")
    score.add_argument("passages", nargs="+")
    score.set_defaults(run=_score)
    info = sub.add_parser("info", help="the adapter's card")
    info.set_defaults(run=_info)
    judged = sub.add_parser("cranfield", help="BM25, dense, fused; with --folds, each re-ranked by a classifier trained on the other folds")
    judged.add_argument("folder", type=Path)
    judged.add_argument("--keep", type=Path, help="a folder that keeps the collection between runs")
    judged.add_argument("--folds", type=int, default=0)
    judged.add_argument(
        "--pseudo",
        type=int,
        default=0,
        help="groups of the first training, made without judged queries; at 0 each fold goes on from --adapter",
    )
    judged.add_argument("--report", type=Path)
    _recipe_options(judged)
    judged.set_defaults(run=_cranfield)
    speed = sub.add_parser("bench", help="pairs a second against sentence-transformers' CrossEncoder on the same weights")
    speed.add_argument("folder", type=Path, help="Cranfield, for the pairs")
    speed.add_argument("--pairs", type=int, default=256)
    speed.set_defaults(run=_bench)
    for made in (learn, test, export, score, info, judged, speed):
        made.add_argument("--base", type=Path, help="an ELECTRA or BERT folder (default: the embedded all-MiniLM-L6-v2)")
        made.add_argument("--adapter", type=Path)


def _recipe_options(parser: argparse.ArgumentParser) -> None:
    for field in fields(Recipe):
        kind: type = str if field.name == "loss" else type(field.default)
        parser.add_argument(f"--{field.name.replace('_', '-')}", dest=f"recipe_{field.name}", type=kind, default=field.default)


def _recipe(args: argparse.Namespace) -> Recipe:
    recipe = Recipe(**{field.name: getattr(args, f"recipe_{field.name}") for field in fields(Recipe)})
    if recipe.loss not in ("listwise", "pointwise"):
        raise ConfigError(f"--loss {recipe.loss}", remedy="listwise or pointwise")
    return recipe


def _classifier(args: argparse.Namespace) -> RelevanceClassifier:
    return RelevanceClassifier(args.base, args.adapter)


def _pairs(args: argparse.Namespace) -> int:
    collection, notes = open_folder(args.collection), Notes()
    nli = cross_encoder(args.nli)

    def hard(query: str) -> list[str]:
        return [collection.passage(chunk).text for chunk, _ in collection.bm25(query, 20)]

    groups = from_log(read_log(args.log), hard, nli.entailment, Filter(args.positive, args.negative, args.ratio), notes)
    print(f"{write_groups(groups, args.out)} groups in {args.out}")
    print("\n".join(notes.lines()))
    return 0


def _train(args: argparse.Namespace) -> int:
    recipe, groups = _recipe(args), read_groups(args.groups)
    dev = read_groups(args.dev) if args.dev else groups[:: max(2, min(10, len(groups) // 2 or 2))]
    rest = groups if args.dev else [group for group in groups if group not in dev]
    if not rest:
        raise ConfigError(f"{len(groups)} groups are too few to hold some back", where=str(args.groups), remedy="give --dev")
    tools = RelevanceClassifier(args.base, max_tokens=recipe.max_tokens, dtype="float32")
    trained = train(rest, recipe, args.base, evaluate=mrr(dev, tools), tell=print)
    card = card_of(trained, recipe, digest_of(tools.base), {args.groups.name: sha256(args.groups)}, {"dev MRR": trained.score})
    size = save_adapter(args.out, trained.adapter, card)
    print(f"{args.out}: {size} bytes, development MRR {trained.score:.4f} at step {trained.step}")
    return 0


def _eval(args: argparse.Namespace) -> int:
    groups, classifier = read_groups(args.groups), _classifier(args)
    score: Callable[[Electra], float] = mrr(groups, classifier)
    first = mean([MRR()(range(len(g.positive) + len(g.negative)), {i: 1.0 for i in range(len(g.positive))}) for g in groups])
    print(json.dumps({"MRR": round(score(classifier.network.float()), 4), "groups": len(groups), "MRR as listed": first}))
    return 0


def _export(args: argparse.Namespace) -> int:
    export_merged(args.out, _classifier(args))
    print(f"{args.out}: config.json, model.safetensors, tokenizer")
    return 0


def _score(args: argparse.Namespace) -> int:
    for i, score in _classifier(args).rank(args.query, args.passages):
        print(f"{score:.4f}  {args.passages[i]}")
    return 0


def _info(args: argparse.Namespace) -> int:
    classifier = _classifier(args)
    print(json.dumps({"base": str(classifier.base.name), "sizes": str(classifier.network.sizes), "card": classifier.card}, indent=1))
    return 0


def _cranfield(args: argparse.Namespace) -> int:
    judged = cranfield.read(args.folder)
    rankings = evaluate.first_stage(judged, text_encoder(), folder=args.keep)
    result: dict[str, object] = {f"nDCG@10 {name}": round(rankings.ndcg(name), 4) for name in rankings.by_name}
    print(json.dumps(result), flush=True)
    if args.folds:
        recipe = _recipe(args)
        result |= cross_validate(
            judged, rankings, recipe, args.folds, args.pseudo, args.base, args.keep, lambda t: print(t, flush=True), args.adapter
        )
        print(json.dumps(result))
    if args.report:
        args.report.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0


def _bench(args: argparse.Namespace) -> int:
    judged = cranfield.read(args.folder)
    pairs = [(judged.queries[i % 225], judged.documents[i % 1400].text) for i in range(args.pairs)]
    classifier = _classifier(args)
    with tempfile.TemporaryDirectory(prefix="merged-") as made:
        export_merged(Path(made), classifier)
        other = cross_encoder(Path(made), classifier.max_tokens)
        other.predict(pairs[:32])
        classifier.logits(pairs[:32])
        times = []
        for run in (other.predict, classifier.logits, other.predict, classifier.logits):
            begun = time.perf_counter()
            run(pairs)
            times.append(time.perf_counter() - begun)
    theirs, ours = min(times[0::2]), min(times[1::2])
    rates = {"CrossEncoder.predict": round(len(pairs) / theirs, 1), "RelevanceClassifier": round(len(pairs) / ours, 1)}
    print(
        json.dumps(
            {"pairs a second": rates, "times": round(theirs / ours, 2), "threads": torch.get_num_threads(), "dtype": str(classifier.dtype)}
        )
    )
    return 0
