"""`python -m kg caption DATA --model FOLDER [--out FILE]`: a model describes every clip once, without question or search (Table 13).

The file that it writes is what `--captions` of a run takes; a video model's own captions can be brought in the same form. What was
already captioned is kept in a journal: a stopped command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from kg.agents import Agents
from kg.captioner import make_captions
from kg.captions import captioned, write_captions
from kg.frames import Frames
from kg.load import load
from models.engines import EngineSpec, make_engine
from models.errors import DataError
from models.files import writable
from models.journal import Journal
from video.options import STRATEGIES, FrameOptions


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
    options = FrameOptions(strategy=args.keyframes, frames=args.frames)
    dataset = load(args.data)
    out = args.out or args.cache / "captions" / f"{dataset.folder.name}-{Path(args.model).name}.json"
    writable(out)  # before hours are spent on what goes there
    agents = Agents.load(dataset.card, args.prompts)
    entities = captioned(dataset)
    if not entities:
        raise DataError("has no clip or picture to caption", where=str(args.data), remedy="python -m kg check lists missing media")
    urls = tuple(args.endpoint.split(",")) if args.endpoint else ()
    engine = make_engine(EngineSpec("openai" if urls else "transformers", args.model, urls))
    name = hashlib.sha256(f"{dataset.digest}{engine.digest}".encode()).hexdigest()[:12]
    with Frames(args.cache / "frames", dataset.folder) as frames, Journal(args.cache / "captions" / f"{name}.sqlite") as journal:
        shelf = frames.shelf(options, {e.index: (e.images, e.video) for e in entities})
        frames.fetch(shelf, shelf.media)
        made = make_captions(agents, entities, shelf, {"captioner": engine}, journal)
    write_captions(out, dataset, made.texts)
    print(f"{len(made.texts)} of {len(entities)} captions in {out}")
    for key, reason in list(made.failed.items())[:10]:
        print(f"  not captioned: {key}: {reason}")
    return 1 if made.failed else 0
