"""The relevance classifier on the sample world: its documents and questions as a judged collection, and training groups from train worlds.

Queries are the questions' intents, as the flow hands them to the classifier, and the questions that stand without a picture. Test worlds
share no name with train worlds.

With `--general` the groups also hold what keeps a general sense of relevance, made from the texts of a collection in Cranfield's files (no
judged query is read): a classifier trained on sample worlds alone ranks other texts worse than no classifier.

    python -m bench.cuem.relevance groups.jsonl --count 2000 --general ../shared/cranfield --dev dev.jsonl
    python -m pipeline relevance train groups.jsonl --dev dev.jsonl --out adapter.safetensors
    python -m bench relevance --data data/cuem-7 --adapter adapter.safetensors
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Literal

from bench.cuem.data import QUESTIONS, read
from bench.world.asks import make_ask
from bench.world.creatures import make_world
from bench.world.documents import COLLECTIONS, Library, WorldDocument, words_in
from models.errors import DataError
from pipeline.documents import Document
from pipeline.relevance.cranfield import Judged
from pipeline.relevance.data import Group, write_groups

TAUGHT, CLOZE = 1300, 1500  # groups of a general collection
HELD = 120
SHIPPED = Path(__file__).parent / "adapter.safetensors"  # trained on train worlds: for sample worlds, not for other texts
NEGATIVES = 8  # of a group: the most tempting by shared words, and two of any kind


def is_set(folder: Path) -> bool:
    """Whether a folder holds a CUE-M question set with the collections' rows beside it."""
    return (folder / QUESTIONS).is_file() and any((folder / f"{name}.jsonl").is_file() for name in COLLECTIONS)


def files(folder: Path) -> list[Path]:
    """What the judged collection is read from."""
    return [folder / QUESTIONS, *(path for name in COLLECTIONS if (path := folder / f"{name}.jsonl").is_file())]


def read_judged(folder: Path) -> Judged:
    """All collections of the folder as one, and the queries whose documents are known. Raises DataError."""
    documents = [document for path in files(folder)[1:] for document in _documents(path)]
    known = {document.id for document in documents}
    gains: dict[str, dict[str, float]] = {}
    rows = [json.loads(line) for line in (folder / QUESTIONS).read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    for item, row in zip(read(folder).items, rows, strict=True):
        right = {str(id_) for group in item.facts["documents"] for id_ in group} & known
        queries = [str(row.get("intent", "")), "" if item.pictures else item.question]
        for query in filter(str.strip, queries if right else []):
            gains.setdefault(query, {}).update(dict.fromkeys(sorted(right), 1.0))
    if not documents or not gains:
        raise DataError(
            "holds no question whose documents are known", where=str(folder), remedy="rows need `documents`, and `intent` or words"
        )
    return Judged(tuple(documents), tuple(gains), tuple(gains.values()))


def _documents(path: Path) -> Iterator[Document]:
    """Rows as the classifier meets them: attributes are said in the text."""
    own = {"id", "title", "text", "images", "tags", "url", "source", "date"}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            facts = "; ".join(f"{key}: {value}" for key, value in row.items() if key not in own)
            yield Document(str(row["id"]), str(row.get("title", "")), "\n".join(filter(None, (str(row.get("text", "")), facts))))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"is no document: {error!r}", where=f"{path}:{number}") from None


def groups(count: int, seed: int = 0, split: Literal["train", "test"] = "train") -> Iterator[Group]:
    """Endless questions of train (or test) worlds, `count` of them: a document that answers, and others that tempt."""
    rng = Random(f"relevance/{seed}")
    made = 0
    while made < count:
        library = Library(make_world(rng.getrandbits(50), rng.choice((3, 6, 10)), split))
        for _ in range(12):
            group = _group(library, rng)
            if group is not None and made < count:
                made += 1
                yield group


def _group(library: Library, rng: Random) -> Group | None:
    ask = make_ask(library, rng)
    facts = [fact for fact in ask.facts(library, ask.subject) if fact.documents]
    if not facts:
        return None
    query = " and ".join(ask.clauses(ask.subject)) if ask.pictured or rng.random() < 0.7 else ask.text
    right = list(dict.fromkeys(id_ for fact in facts for id_ in fact.documents))
    others = [d for d in library.documents if d.id not in right]
    wanted = words_in(query)
    tempting = sorted(others, key=lambda d: -len(wanted & library.words[d.id]) - rng.random())[: NEGATIVES - 2]
    negatives = [*tempting, *rng.sample(others, 2)]
    positives = [fact.documents[0] for fact in facts]
    return Group(query, tuple(told(library.by_id[id_]) for id_ in dict.fromkeys(positives)), tuple(told(d) for d in negatives))


def told(document: WorldDocument) -> str:
    """A document as pipeline/agents.py hands it to the classifier."""
    return f"{document.title}. {document.told}"


def general_groups(folder: Path, seed: int = 0) -> list[Group]:
    """Groups of a collection's own texts: its fused ranking taught (distillation), and sentences that ask for their abstracts."""
    from pipeline.encoders import text_encoder
    from pipeline.relevance import cranfield, evaluate

    judged = cranfield.read(folder)
    with evaluate.indexed(judged, text_encoder()) as collection:
        return [*evaluate.taught_groups(judged, collection, TAUGHT, seed), *evaluate.pseudo_groups(judged, collection, CLOZE, seed)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cuem.relevance", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=4000, help="groups from train worlds (default 4000)")
    parser.add_argument("--general", type=Path, help="a folder with Cranfield's files: groups from its texts beside them")
    parser.add_argument("--dev", type=Path, help=f"write {HELD} of the groups here, for early stopping, and not into the others")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    made = [*(general_groups(args.general, args.seed) if args.general else ()), *groups(args.count, args.seed)]
    Random(args.seed).shuffle(made)
    held = HELD if args.dev else 0
    if args.dev:
        print(f"{args.dev}: {write_groups(made[:held], args.dev)} groups")
    print(f"{args.out}: {write_groups(made[held:], args.out)} groups")


if __name__ == "__main__":
    main()
