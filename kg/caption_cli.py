"""`python -m kg caption DATA --model FOLDER [--out FILE]`: a model describes every clip once, without question or search (Table 13).

The file that it writes is what `--captions` of a run takes; a video model's own captions can be brought in the same form. What was
already captioned is kept in a journal: a stopped command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from pathlib import Path

from kg.agents import Agents
from kg.captions import caption, captioned, key_of, write_captions
from kg.load import load
from models.agents import Episode
from models.drivers import Outcome
from models.drivers import run as drive
from models.engines import EngineSpec, make_engine
from models.errors import DataError
from models.journal import Journal
from models.progress import progress
from models.requests import Picture
from video.options import STRATEGIES, FrameOptions
from video.source import FrameSet, FrameStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("data", type=Path, help="a data set's folder")
    parser.add_argument("--model", required=True, help="a model folder or registered name; with --endpoint the served name")
    parser.add_argument("--endpoint", help="an OpenAI-compatible server, http://127.0.0.1:8000/v1")
    parser.add_argument("--out", type=Path, help="the JSON to write (default: .cache/captions/<data>-<model>.json)")
    parser.add_argument("--prompts", help="prompt set: full, compact or a folder (default: full)")
    parser.add_argument("--keyframes", default="human", choices=STRATEGIES, help="how frames of a clip are chosen")
    parser.add_argument("--frames", type=int, default=10, help="at most so many frames of a clip")
    parser.add_argument("--cache", type=Path, default=Path(".cache"), help="where frames and the journal are kept")


def run(args: argparse.Namespace) -> int:
    """Writes the captions; exit code 1 when some clip could not be captioned (they are named). Raises UserError."""
    dataset = load(args.data)
    agents = Agents.load(dataset.card, args.prompts)
    entities = captioned(dataset)
    if not entities:
        raise DataError("has no clip or picture to caption", where=str(args.data), remedy="python -m kg check lists missing media")
    spec = EngineSpec(
        "openai" if args.endpoint else "transformers", args.model, tuple((args.endpoint or "").split(",")) if args.endpoint else ()
    )
    engine = make_engine(spec)
    options = FrameOptions(strategy=args.keyframes, frames=args.frames)
    failed: dict[str, str] = {}
    with FrameStore(args.cache / "frames", options, data_root=dataset.folder) as store, progress("frames", len(entities)) as tell:
        sets = store.prepare([(e.images, e.video) for e in entities], progress=lambda done, total: tell(done, ""))
    frames = {}
    for entity, made in zip(entities, sets, strict=True):
        if isinstance(made, FrameSet):
            frames[key_of(entity)] = (entity, tuple(Picture.of(path) for path in made.paths))
        else:
            failed[key_of(entity)] = str(made)
    captions: dict[int, str] = {}

    def episodes() -> Iterator[tuple[str, Episode[str]]]:
        for key, (entity, pictures) in frames.items():
            yield key, caption(agents, entity, pictures)

    def done(key: str, outcome: Outcome[str]) -> None:
        if outcome.failure is None and outcome.value is not None:
            captions[frames[key][0].index] = outcome.value
        else:
            failed[key] = str(outcome.failure)

    name = hashlib.sha256(f"{dataset.digest}{engine.digest}".encode()).hexdigest()[:12]
    out = args.out or args.cache / "captions" / f"{dataset.folder.name}-{Path(args.model).name}.json"
    with Journal(args.cache / "captions" / f"{name}.sqlite") as journal, progress("captions", len(frames)) as tell:
        drive(episodes(), {"captioner": engine}, journal, on_done=done, progress=lambda p: tell(p.done, f"{p.failed} failed"))
    write_captions(out, dataset, captions)
    print(f"{len(captions)} of {len(entities)} captions in {out}")
    for key, reason in list(failed.items())[:10]:
        print(f"  not captioned: {key}: {reason}")
    return 1 if failed else 0
