"""`python -m pipeline safety …`: train and score the text classifier, edit the policy.

python -m pipeline safety train ../shared/safety/advbench_goals.txt --harmless questions.txt --out head.safetensors
python -m pipeline safety policy add policy.jsonl --id p1 --query "…" --response "…"
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from random import Random

import numpy as np

from models.errors import ConfigError, DataError
from models.files import writable
from pipeline.encoders import image_encoder, text_encoder
from pipeline.files import sha256
from pipeline.safety.classifiers import TextScreen, text_screen
from pipeline.safety.head import SHIPPED, Head, TextFilter, choose_threshold, cross_scores, fit, load_head, save_head
from pipeline.safety.measure import ENTRIES, measure, thresholds
from pipeline.safety.policy import TEXT_THRESHOLD, Entry, Policy, edit
from pipeline.safety.verdicts import REFUSAL, told

HARMLESS = Path(__file__).parent / "data" / "harmless.txt"


def add_parser(parent: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    top = parent.add_parser("safety", help="the safety filter: text classifier and policy")
    sub = top.add_subparsers(dest="action", required=True)
    learn = sub.add_parser("train", help="a linear head from harmful and harmless texts, one a line")
    learn.add_argument("harmful", type=Path, nargs="+")
    learn.add_argument("--harmless", type=Path, nargs="*", default=[], help="more files beside the shipped one")
    learn.add_argument("--alarms", type=float, default=0.01, help="share of false alarms that the threshold may give, five-fold")
    learn.add_argument("--strength", type=float, default=10.0, help="inverse of the L2 penalty")
    learn.add_argument("--out", type=Path, required=True, help="the head's file; score it with --head")
    learn.set_defaults(run=_train)
    score = sub.add_parser("score", help="verdicts of texts")
    score.add_argument("texts", nargs="+")
    score.add_argument("--tags", nargs="*", default=[], help="tags of the image, put before each text")
    score.add_argument("--head", type=Path, default=SHIPPED)
    score.add_argument("--text-filter", default="head", help="head, or a local text classifier's folder")
    score.add_argument("--harmful-labels", nargs="*", default=[], help="of that classifier, where its labels do not say")
    score.set_defaults(run=_score)
    policy = sub.add_parser("policy", help="the instance-wise filter's entries").add_subparsers(dest="edit", required=True)
    add = policy.add_parser("add", help="add or replace an entry")
    add.add_argument("file", type=Path)
    add.add_argument("--id", required=True)
    add.add_argument("--query", default="")
    add.add_argument("--tags", nargs="*", default=[])
    add.add_argument("--image", default="", help="a picture beside the file")
    add.add_argument("--response", default=REFUSAL)
    add.add_argument("--threshold", type=float, default=TEXT_THRESHOLD)
    add.set_defaults(run=_add)
    gone = policy.add_parser("remove", help="remove entries")
    gone.add_argument("file", type=Path)
    gone.add_argument("ids", nargs="+")
    gone.set_defaults(run=_remove)
    test = policy.add_parser("measure", help="200 entries asked in other words and by their pictures alone, and harmless questions")
    test.add_argument("harmful", type=Path, nargs="+", help="harmful requests, one a line")
    test.add_argument("--harmless", type=Path, nargs="*", default=[], help="more files beside the shipped one")
    test.add_argument("--text-alone", action="store_true", help="without pictures")
    test.add_argument("--pictures", type=Path, help="a folder of pictures, no two alike, in place of made ones")
    test.add_argument("--seed", type=int, default=0)
    test.set_defaults(run=_measure)
    check = policy.add_parser("check", help="read the file as the filter does")
    check.add_argument("file", type=Path)
    check.add_argument("--query", help="and match this")
    check.set_defaults(run=_check)


def read_lines(paths: list[Path]) -> list[str]:
    """Distinct non-empty lines. Raises DataError."""
    out: dict[str, None] = {}
    for path in paths:
        try:
            out.update((line.strip(), None) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot be read: {error}", where=str(path), remedy="give UTF-8 texts, one a line") from None
    return list(out)


def train_head(harmful: list[str], harmless: list[str], alarms: float, strength: float, data: dict[str, str]) -> Head:
    """A head with its five-fold figures in the card."""
    encoder = text_encoder()
    vectors = encoder.encode([*harmful, *harmless])
    labels = [1] * len(harmful) + [0] * len(harmless)
    scores = cross_scores(vectors, labels, strength=strength)
    threshold = choose_threshold(scores, labels, alarms)
    y = np.asarray(labels)
    figures = {
        "five-fold recall": round(float((scores[y == 1] >= threshold).mean()), 4),
        "five-fold false alarms": round(float((scores[y == 0] >= threshold).mean()), 4),
        "harmful": len(harmful),
        "harmless": len(harmless),
    }
    weight, bias = fit(vectors, labels, strength)
    nature = encoder.nature
    return Head(weight, bias, threshold, {"encoder": nature.name, "encoder_digest": nature.digest, "data": data, **figures})


def _train(args: argparse.Namespace) -> int:
    harmful, harmless = read_lines(args.harmful), read_lines([HARMLESS, *args.harmless])
    writable(args.out)
    data = {path.name: sha256(path) for path in (*args.harmful, HARMLESS, *args.harmless)}
    head = train_head(harmful, harmless, args.alarms, args.strength, data)
    save_head(head, args.out)
    print(json.dumps({**head.card, "threshold": round(head.threshold, 4)}, ensure_ascii=False))
    return 0


def _score(args: argparse.Namespace) -> int:
    screen: TextScreen | None = TextFilter(text_encoder(), load_head(args.head))
    if args.text_filter != "head":
        screen = text_screen(args.text_filter, args.harmful_labels)
    if screen is None:
        raise ConfigError("--text-filter none judges nothing", remedy="head, or a folder")
    for text, verdict in zip(args.texts, screen.judge([told(t, args.tags) for t in args.texts]), strict=True):
        print(f"{'blocked' if verdict.blocks else 'passed'}  {verdict}  {text}")
    return 0


def _add(args: argparse.Namespace) -> int:
    entry = Entry(args.id, args.query, tuple(args.tags), args.image, args.response, args.threshold)
    print(f"{args.file}: {len(edit(args.file, add=[entry]))} entries")
    return 0


def _remove(args: argparse.Namespace) -> int:
    print(f"{args.file}: {len(edit(args.file, remove=args.ids))} entries")
    return 0


def _measure(args: argparse.Namespace) -> int:
    harmful, harmless = read_lines(args.harmful), read_lines([HARMLESS, *args.harmless])
    for lines in (harmful, harmless):
        Random(args.seed).shuffle(lines)
    if len(harmful) >= ENTRIES + 20:  # the rest chooses; what is tested below has no part in it
        print(json.dumps({"would be chosen on the others": thresholds(harmful[ENTRIES:], harmless[1::2], text_encoder())}))
        harmful, harmless = harmful[:ENTRIES], harmless[::2]
    image = None if args.text_alone else image_encoder()
    with tempfile.TemporaryDirectory(prefix="policy-") as made:
        rows = measure(harmful, harmless, Path(made), text_encoder(), image, args.seed, args.pictures)
    print("\n".join(map(str, rows)))
    hits, false = ([row for row in rows if row.harmless is harmless] for harmless in (False, True))
    totals = {name: round(sum(r.hit for r in part) / sum(r.asked for r in part), 4) for name, part in (("hit", hits), ("false", false))}
    print(json.dumps(totals))
    return 0


def _check(args: argparse.Namespace) -> int:
    if not args.file.exists():
        raise DataError("there is no such file", where=str(args.file))
    policy = Policy(args.file, text_encoder(), image_encoder())
    count = len(policy.entries)
    if policy.notice:
        raise DataError(policy.notice)
    print(f"{args.file}: {count} entries")
    if args.query:
        print(policy.match(args.query))
    return 0
