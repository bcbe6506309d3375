"""SUITE=relevance: BM25, dense, fused, and each re-ranked, on a judged collection in Cranfield's files; cross-validated on request.

Shipped weights are tested on all queries (they never saw one). With --folds the classifier is trained on the other folds' queries.
Try: python -m bench relevance --data ../shared/cranfield
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.cuem import relevance as sample
from bench.environment import environment
from bench.folder import RunFolder, find_or_make
from bench.records import digest
from bench.report import NONE, grid, number
from models.errors import ConfigError
from models.progress import console
from pipeline.encoders import text_encoder
from pipeline.files import sha256
from pipeline.relevance import cranfield, evaluate
from pipeline.relevance.evaluate import Rankings
from pipeline.relevance.metrics import MRR, NDCG, mean

if TYPE_CHECKING:
    from pipeline.relevance.classifier import RelevanceClassifier

FILES = ("cran.all.1400.gz", "cran.qry", "cranqrel")
TARGETS = {"fused": 0.54}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=Path("../shared/cranfield"),
                        help="Cranfield's three files, or a CUE-M question set as data/cuem-7 [../shared/cranfield]")  # fmt: skip
    parser.add_argument("--adapter", type=Path, help="of the classifier (default: the shipped one on a sample world, else none)")
    parser.add_argument("--keep", type=Path, help="keeps the collection between runs [.cache/cranfield]")
    parser.add_argument("--limit", type=int, help="the first N queries")
    parser.add_argument("--seed", type=int, default=0, help="of the halves on which the blend's weight is chosen [0]")
    parser.add_argument("--runs", default="runs", help="where run folders are made [runs]")
    parser.add_argument("--name", default="", help="a label for the report")


def run(arguments: argparse.Namespace) -> int:
    if arguments.limit is not None and arguments.limit < 1:
        raise ConfigError(f"--limit {arguments.limit}", remedy="give 1 or more")
    source: Path = arguments.data
    world = sample.is_set(source)  # CUE-M's question set in place of Cranfield's files
    judged, encoder = sample.read_judged(source) if world else cranfield.read(source), text_encoder()
    keep = arguments.keep or Path(".cache") / (source.name if world else "cranfield")
    adapter = arguments.adapter or (sample.SHIPPED if world else None)
    from pipeline.relevance.classifier import RelevanceClassifier  # torch: not for --help

    classifier = RelevanceClassifier(adapter=adapter) if adapter else None
    data = digest("\n".join(sha256(path) for path in (sample.files(source) if world else [source / name for name in FILES])))
    asked = min(len(judged.queries), arguments.limit or len(judged.queries))
    models = {"encoder": encoder.nature.name, "classifier": str(adapter or "")}
    manifest: dict[str, Any] = {
        "suite": "relevance",
        "config": {"name": arguments.name, "tags": [], "seed": arguments.seed, "limit": arguments.limit, "keep": str(keep)},
        "rows": [{"label": name, "setting": name, "changes": {}, "questions": asked} for name in ("bm25", "dense", "fused")],
        "data": {
            "name": source.name if world else "Cranfield",
            "folder": str(source),
            "digest": data,
            "tasks": [],
            "questions": len(judged.queries),
            "asked": asked,
        },
        "models": models,
        "prompts": {},
        "predicting": {
            "data": data,
            "encoder": encoder.nature.digest,
            "classifier": classifier.digest if classifier else "",
            "asked": asked,
            "seed": arguments.seed,
        },
    }
    folder, known = find_or_make(Path(arguments.runs), "relevance", "minilm", manifest)
    if not known or not (folder.path / "rankings.json").exists():
        folder.started(environment())
        rankings = evaluate.first_stage(judged, encoder, folder=keep)
        folder.write("rankings.json", json.dumps(_measured(rankings, classifier, asked, arguments.seed), indent=0))
    report(folder)
    return 0


def _measured(rankings: Rankings, classifier: RelevanceClassifier | None, asked: int, seed: int) -> dict[str, Any]:
    """Per ranking and query: nDCG@10 and MRR, before and after; the blend's weight for one half of the queries is chosen on the other."""
    out: dict[str, Any] = {}
    halves = evaluate.folds(asked, 2, seed) if asked > 1 else [[0], [0]]
    for name, every in rankings.by_name.items():
        rows, gains = every[:asked], rankings.gains[:asked]
        one: dict[str, Any] = {
            "ndcg": [NDCG(10)(r.ids, g) for r, g in zip(rows, gains, strict=True)],
            "mrr": [MRR()(r.ids, g) for r, g in zip(rows, gains, strict=True)],
        }
        if classifier is not None:
            made = evaluate.scored(rows, rankings.queries[:asked], lambda pairs: classifier.logits(pairs).tolist())
            alone = [NDCG(10)(evaluate.blend(r, m, 1.0), g) for r, m, g in zip(rows, made, gains, strict=True)]
            blended: list[float | None] = [None] * asked
            weights = []
            for test, dev in ((halves[0], halves[1]), (halves[1], halves[0])):
                weight = evaluate.best_weight([rows[i] for i in dev], [made[i] for i in dev], [gains[i] for i in dev])
                weights.append(weight)
                for i in test:
                    blended[i] = NDCG(10)(evaluate.blend(rows[i], made[i], weight), gains[i])
            one |= {"alone": alone, "blended": blended, "weights": weights}
        out[name] = one
    return out


def report(folder: RunFolder, judge: str | None = None) -> dict[str, Any]:
    """Writes summary.json and report.md and prints the table. No judge takes part."""
    manifest = folder.manifest()
    found: dict[str, Any] = json.loads((folder.path / "rankings.json").read_text(encoding="utf-8"))
    rows = {
        name: {key: mean(one[key]) if key in one else None for key in ("ndcg", "mrr", "blended", "alone")} | {"weights": one.get("weights")}
        for name, one in found.items()
    }
    summary = {
        "run": {**{k: manifest["config"][k] for k in ("name", "tags", "seed", "limit")}, "suite": "relevance"},
        "data": manifest["data"],
        "models": manifest["models"],
        "rows": rows,
        "targets": TARGETS,
        "environments": folder.environments(),
    }
    lines = [
        [
            name,
            number(row["ndcg"], 4),
            number(row["mrr"], 4),
            number(row["blended"], 4),
            number(row["alone"], 4),
            ", ".join(map(str, row["weights"])) if row["weights"] else NONE,
        ]
        for name, row in rows.items()
    ]
    head = ["", "nDCG@10", "MRR", "re-ranked nDCG@10", "classifier alone", "weights"]
    data = manifest["data"]
    lead = f"{data['asked']} of {data['questions']} queries of {data['folder']} ({data['digest'][:16]}); gains 4 to 1 for grades 1 to 4."
    note = (
        "Re-ranked: first score and logit, both standardised, blended; the weight for each half of the queries is chosen on the other half."
    )
    said = "" if manifest["models"]["classifier"] else "No adapter is shipped or given: nothing was re-ranked."
    text = "\n\n".join(filter(None, ["# Relevance", lead, grid(head, lines), note, said])) + "\n"
    folder.write("summary.json", json.dumps(summary, indent=1))
    folder.write("report.md", text)
    print(text)
    console().print(f"report: {folder.path / 'report.md'}", highlight=False, soft_wrap=True)
    return summary
