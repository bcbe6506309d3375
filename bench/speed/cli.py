"""``python -m bench speed``: what a run costs beside its model, as ratios within one run, each beside its target.

    python -m bench speed                                     stub server: scheduling, own CPU, memory, prefixes
    python -m bench speed --rows radix,cpu --limit 20         some of it, on fewer questions
    python -m bench speed --rows served --gpu 1 --set served_on=cpu     against a real vLLM (its CPU build), the embedded model
    python -m bench speed --rows served --gpu 2 --set served_on=cpu     two replicas

The text rows ask the questions of --data in `perceptive` (without it those of the published list, where $MH_BENCH or the neighbourhood has
it), the rows with pictures those of the sample world in `unaided-online`. Run it on a quiet machine: a busy one spoils ratios too.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from bench.config import EMBEDDED_MODEL, SAMPLE_WORLD, RunConfig, from_arguments, validate
from bench.config import add_arguments as add_options
from bench.run import open_data
from bench.speed.measures import Figure, memory, own_cpu, peak, radix, scheduling, tokenizer
from bench.speed.work import Work, configured, prepared
from bench.workshop import CACHE, Workshop
from models.errors import ConfigError

TEXT = "perceptive"
SIGHTED = "unaided-online"
TEXTS = ("perceptive", "knowledgeable", "vanilla+")
TOKENIZERS = (".cache/models/smollm2-135m", EMBEDDED_MODEL)  # the first that is there


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run, and which rows of the table are wanted."""
    add_options(parser)
    parser.add_argument("--rows", default="stub", metavar="LIST", help=f"of {', '.join(ROWS)}; stub is all that needs no model (stub)")
    parser.add_argument("--many", type=int, default=10_000, metavar="N", help="questions in flight of the memory row (10000)")
    parser.add_argument("--tokenizer", type=Path, metavar="FOLDER", help="a model folder whose tokenizer counts the prompts")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the figures as JSON lines, too")
    parser.add_argument("--peak", type=int, metavar="N", help=argparse.SUPPRESS)  # a process of the memory row


def run(args: argparse.Namespace) -> int:
    """Measures, prints the table; 0 when no target was missed, 1 otherwise. Raises UserError."""
    made = Bench(args)
    if args.peak is not None:
        print(json.dumps({"mib": peak(made.text(TEXT), args.peak)}))
        return 0
    names = [name.strip() for name in args.rows.split(",") if name.strip()]
    names = [row for name in names for row in (STUB if name == "stub" else [name])]
    unknown = [name for name in names if name not in ROWS]
    if unknown or not names:
        raise ConfigError(f"no row {', '.join(unknown) or args.rows!r}", remedy=f"rows: stub, {', '.join(ROWS)}")
    found: list[Figure] = []
    for name in names:
        for figure in ROWS[name](made):
            found.append(figure)
            print(line(figure), flush=True)
    if args.out is not None:
        rows = [{"what": f.what, "value": f.value, "target": f.target, "met": f.met, "unit": f.unit, "note": f.note} for f in found]
        args.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return 1 if any(figure.met is False for figure in found) else 0


_SAID = {True: "met", False: "MISSED", None: "not measured"}


def line(figure: Figure) -> str:
    """One figure as a line of text: what, value, target, whether it was met."""
    value = "–" if figure.value is None else f"{figure.value:.3f} {figure.unit}".rstrip()
    wanted = ""
    if figure.target is not None:
        wanted = f"  {'≥' if figure.least else '≤'} {figure.target:g}  {_SAID[figure.met]}"
    return f"{figure.what}: {value}{wanted}" + (f"   ({figure.note})" if figure.note else "")


class Bench:
    """The work of each setting, made once."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.config = args, from_arguments(args)
        self._made: dict[tuple[str, str], Work] = {}

    @property
    def data(self) -> str:
        """The questions of the text rows: what --data says, else the published list where $MH_BENCH or the neighbourhood has it."""
        if "data" in vars(self.args):
            return self.config.data
        published = Path(os.environ.get("MH_BENCH", "../shared/mh_bench"))
        return str(published) if published.is_dir() else SAMPLE_WORLD

    @property
    def prompts(self) -> str:
        """The set that is measured: the full one, if no other is named."""
        return self.config.prompts or "full"

    def text(self, setting: str) -> Work:
        return self._work(self.data, setting)

    def sighted(self) -> Work:
        return self._work(self.config.data, SIGHTED)

    def _work(self, data: str, setting: str) -> Work:
        if (data, setting) not in self._made:
            config = configured(Path(data), setting, self.prompts, self.config.limit)
            workshop = Workshop(open_data(validate({**config.model_dump(), "data": data})), CACHE)
            self._made[data, setting] = prepared(workshop, config)
        return self._made[data, setting]

    def served(self) -> RunConfig:
        """The options for a real server: one sighted setting, the set that suits the model."""
        return validate({**self.config.model_dump(), "settings": [SIGHTED]})

    def flags(self) -> list[str]:
        """What another process of this command needs to do the same work."""
        limit = ["--limit", str(self.config.limit)] if self.config.limit else []
        return ["--data", self.data, "--prompts", self.prompts, *limit]


def _cpu(bench: Bench) -> Iterable[Figure]:
    yield from own_cpu(bench.text(TEXT), "text", 1.0)
    yield from own_cpu(bench.sighted(), "pictures in the store", 1.3)


def _radix(bench: Bench) -> Iterable[Figure]:
    folder = bench.args.tokenizer or next(Path(name) for name in TOKENIZERS if (Path(name) / "tokenizer.json").is_file())
    yield from radix([bench.text(setting) for setting in TEXTS], tokenizer(folder))


def _served(bench: Bench) -> Iterable[Figure]:
    from bench.speed.served import measured

    yield from measured(bench.served())


ROWS: Mapping[str, Callable[[Bench], Iterable[Figure]]] = {
    "scheduling": lambda bench: [scheduling(bench.text(TEXT))],
    "cpu": _cpu,
    "radix": _radix,
    "memory": lambda bench: [memory(bench.flags(), bench.args.many)],
    "served": _served,
}
STUB: Sequence[str] = ("scheduling", "cpu", "radix", "memory")
