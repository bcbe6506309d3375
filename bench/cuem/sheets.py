"""The CUE-M suite's report: win rate, nearness to the reference, what each stage adds, stages and their times, the critical path.

Knows the run folder only; BERTScore is computed once and kept in it. Try: python -m bench report RUN
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from bench.cuem.entities import kept
from bench.cuem.prefer import bare
from bench.cuem.texts import bert_score, entity_recall, rouge_l
from bench.cuem.wins import BARE, Win, load, standard_error, swayed
from bench.folder import RunFolder
from bench.records import Record, Score, digest
from bench.report import NONE, number
from bench.stats import paired
from bench.suites.sheet import Grid, Measure, Sheet, judged
from bench.suites.sheet import report as write_report
from models.errors import ModelError
from models.journal import Journal
from pipeline.encoders import SentenceEncoder, text_encoder
from pipeline.settings import CHAT

CRITICAL: Final = 4  # model calls that may stand in a row: describe, refine, the batch of choices, answer
# What a stage adds: the row with it, the row without it.
GAINS: Final[Sequence[tuple[str, str, str]]] = (
    ("image search", "image-search", BARE),
    ("enriched retrieval, relevance", "enriched", "image-search"),
    ("query generator, applications", "no-refiner", "enriched"),
    ("intention refiner", "full", "no-refiner"),
    ("relevance classifier", "full", "no-relevance"),
    ("everything", "full", BARE),
)


def report(folder: RunFolder, judge: str | None = None) -> dict[str, Any]:
    """summary.json, report.md and the terminal's table."""
    return write_report(folder, sheet(folder), judge)


def sheet(folder: RunFolder) -> Sheet:
    """The suite's measures over what stands in the folder."""
    who, wins = load(folder)
    near, encoder = bert_scores(folder)
    ner, names = kept(folder)
    seed = int(folder.manifest()["config"]["seed"])

    def win(record: Record, score: Score | None) -> float | None:
        if record.row == BARE:
            return 0.5 if record.ok else None
        found = wins.get(record.key)
        return found.value if found else None

    def named(record: Record, score: Score | None) -> float | None:
        return entity_recall(names.get(digest(record.gold_answer), ()), record.answer) if record.ok else None

    measures = [
        Measure("win", "win rate", win, f"against the bare model (itself 0.5), in both orders, compared by {who.get('label', 'nobody')}"),
        Measure("correct", "correct", judged, "all that the reference names; refused what must be; not found where nothing is"),
        Measure("rouge", "ROUGE-L", _rouge, "F1 of the longest common subsequence of words, without citations"),
        Measure("bert", "BERTScore", lambda r, s: near.get(r.key), f"F1 of matched token vectors ({encoder}), not rescaled, no idf"),
        Measure("entities", "entity recall", _entities, "share of the reference's names that the answer holds; without names no value"),
        Measure("evidence", "evidence", evidence, "a document with the answer was among those that the model was given"),
    ]
    if ner:
        note = f"share of the reference's entities, found by spaCy ({ner}), that the answer holds; numbers and dates left out"
        measures.insert(5, Measure("ner", "named entities", named, note))

    def more(rows: Mapping[str, Sequence[Record]], scores: Mapping[str, Score], tasks: Sequence[str]) -> Sequence[Grid]:
        return [errors(rows, wins, seed), gains(rows, wins, scores, seed), orders(rows, wins), path(folder, rows), stages(folder)]

    return Sheet("CUE-M, six rows", measures, ("cuem",), more)


def _rouge(record: Record, score: Score | None) -> float | None:
    return rouge_l(record.gold_answer, bare(record.answer)) if record.ok else None


def _entities(record: Record, score: Score | None) -> float | None:
    return entity_recall(record.facts.get("names", ()), record.answer) if record.ok else None


def evidence(record: Record, score: Score | None) -> float | None:
    """Share of the needed documents of which one was given; None where none is needed, none was searched, or the question was blocked."""
    wanted = [group for group in record.facts.get("documents", ()) if group]
    if not record.ok or not wanted or record.row == BARE or record.facts.get("blocked"):
        return None
    given = set(record.names[: int(record.facts.get("given", 0))])
    return sum(bool(given & set(group)) for group in wanted) / len(wanted)


def bert_scores(folder: RunFolder) -> tuple[dict[str, float], str]:
    """Record key → BERTScore, and the encoder's name; from the folder where the same encoder has scored the same texts before."""
    try:
        encoder = text_encoder()
        if not isinstance(encoder, SentenceEncoder):
            return {}, "none"
        nature = encoder.nature
    except ModelError:
        return {}, "no local encoder is installed"
    name = "bert.json"
    kept: dict[str, Any] = {}
    if (folder.path / name).exists():
        kept = json.loads((folder.path / name).read_text(encoding="utf-8"))
        kept = kept["scores"] if kept.get("encoder") == nature.digest else {}
    records = {key: r for key, r in folder.records().items() if r.ok and r.gold_answer.strip()}
    pairs = {key: digest(f"{r.gold_answer}\0{bare(r.answer)}") for key, r in records.items()}
    todo = {pairs[key]: (r.gold_answer, bare(r.answer)) for key, r in records.items() if pairs[key] not in kept}
    texts = sorted({text for pair in todo.values() for text in pair})
    vectors = dict(zip(texts, encoder.token_vectors(texts), strict=True))
    for key, (gold, said) in todo.items():
        kept[key] = bert_score(vectors[gold], vectors[said])
    if todo:
        folder.write(name, json.dumps({"encoder": nature.digest, "scores": kept}))
    return {key: kept[pair] for key, pair in pairs.items() if kept.get(pair) is not None}, nature.name


def _wins_of(records: Sequence[Record], wins: Mapping[str, Win]) -> dict[str, float]:
    if records and records[0].row == BARE:
        return {r.uid: 0.5 for r in records if r.ok}
    return {r.uid: value for r in records if r.key in wins and (value := wins[r.key].value) is not None}


def errors(rows: Mapping[str, Sequence[Record]], wins: Mapping[str, Win], seed: int) -> Grid:
    """The paper's form: win rate (standard error)."""
    lines = []
    for row, records in rows.items():
        values = list(_wins_of(records, wins).values())
        mean = float(np.mean(values)) if values else None
        error = None if row == BARE else standard_error(values, seed)
        lines.append([row, number(mean) if mean is not None else NONE, f"({error:.3f})" if error is not None else "(-)", str(len(values))])
    note = "Standard error: of the mean over 1,000 random subsamples of 100 questions."
    return Grid("Win rate as the paper prints it", ["row", "win rate", "standard error", "questions"], lines, note)


def gains(rows: Mapping[str, Sequence[Record]], wins: Mapping[str, Win], scores: Mapping[str, Score], seed: int) -> Grid:
    """What each stage adds, on the questions that both rows have, with its 95 % interval."""
    lines = []
    for name, with_, without in GAINS:
        if with_ not in rows or without not in rows:
            continue
        cells = [name, f"{with_} − {without}"]
        for values in (
            [_wins_of(rows[row], wins) for row in (with_, without)],
            [_correct(rows[row], scores) for row in (with_, without)],
        ):
            test = paired(*values, seed=seed)
            gap = test.difference
            cells.append(f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]" if gap.mean is not None else NONE)
        lines.append(cells)
    return Grid("What each stage adds", ["stage", "rows", "win rate", "correct"], lines, "Paired by question; 95 % bootstrap intervals.")


def _correct(records: Sequence[Record], scores: Mapping[str, Score]) -> dict[str, float]:
    found = {r.uid: judged(r, scores.get(r.key)) for r in records}
    return {uid: value for uid, value in found.items() if value is not None}


def orders(rows: Mapping[str, Sequence[Record]], wins: Mapping[str, Win]) -> Grid:
    """Whether the judge was led by the order of the answers."""
    lines = []
    for row, records in rows.items():
        found = swayed([wins[r.key] for r in records if r.key in wins])
        if row != BARE:
            lines.append([row, *(str(found.get(kind, 0)) for kind in ("agreed", "swayed", "unclear", "not asked"))])
    head = ["row", "same verdict both ways", "changed with the order", "no clear word", "not asked (same words, or no answer)"]
    return Grid("The judge and the order of presentation", head, lines)


def path(folder: RunFolder, rows: Mapping[str, Sequence[Record]]) -> Grid:
    """Round trips of a question in which a model was asked: its critical path, counted in the journal."""
    counts = model_rounds(folder)
    lines = []
    for row, records in rows.items():
        found = [counts.get(r.key, 0) for r in records if r.ok]
        if found:
            over = sum(n > CRITICAL for n in found)
            lines.append([row, f"{np.mean(found):.2f}", str(max(found)), str(over), str(len(found))])
    head = ["row", "mean", "most", f"over {CRITICAL}", "questions"]
    return Grid("Critical path: model calls in a row", head, lines, "Calls of one batch count once; searches and classifiers do not count.")


def model_rounds(folder: RunFolder) -> dict[str, int]:
    """Sample → round trips with a chat model's call, from the journal."""
    if not folder.journal.is_file():
        return {}
    with Journal(folder.journal, writable=False) as journal:
        chat = {call.key for call in journal.calls() if call.role in CHAT}
        steps: dict[str, set[int]] = {}
        for use in journal.uses():
            if use.key in chat:
                steps.setdefault(use.sample, set()).add(use.step)
    return {sample: len(found) for sample, found in steps.items()}


def stages(folder: RunFolder) -> Grid:
    """Every stage: how often it was asked and what a call took; calls are shared between rows where they are the same."""
    if not folder.journal.is_file():
        return Grid("Stages", ["stage"], [])
    times: dict[str, list[float]] = {}
    stage_of: dict[str, str] = {}
    with Journal(folder.journal, writable=False) as journal:
        for call in journal.calls():
            times.setdefault(call.stage, []).append(call.seconds)
            stage_of[call.key] = call.stage
        uses: dict[str, int] = {}
        for use in journal.uses():
            if use.key in stage_of:
                uses[stage_of[use.key]] = uses.get(stage_of[use.key], 0) + 1
    lines = [
        [stage, str(uses.get(stage, 0)), str(len(found)), f"{np.mean(found):.3f}", f"{np.quantile(found, 0.95):.3f}"]
        for stage, found in sorted(times.items(), key=lambda pair: -sum(pair[1]))
    ]
    note = "Seconds of calls in batches include their waiting: costs of this run, no latencies."
    return Grid("Stages", ["stage", "used", "calls made", "mean (s)", "p95 (s)"], lines, note)
