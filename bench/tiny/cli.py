"""``python -m bench train-tiny`` and ``eval-tiny``: options, and which stages they run.

Everything lies under ``.cache/tiny/<family>/`` and can be deleted at any time; every stage goes on where it stopped.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench.tiny import options
from models.errors import ConfigError

STAGES = ("fresh", "vision", "joint")  # and "grow", which is asked for by name
TARGETS = {"qwen2.5-vl": Path("models/tiny-qwen2.5-vl"), "internvl": Path("models/tiny-internvl")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``train-tiny``."""
    parser.add_argument("--family", default="qwen2.5-vl", choices=sorted(TARGETS), help="architecture [qwen2.5-vl]")
    parser.add_argument("--stage", default="all", choices=("all", *STAGES, "grow"),
                        help="only this stage; grow: more words for a trained state, see --as [all]")  # fmt: skip
    parser.add_argument("--as", dest="name", default="", metavar="NAME", help="folder of the stages under --cache [the family]")
    parser.add_argument("--grow-from", type=Path, default=None, metavar="FOLDER", help="for grow: the trained state [--cache/<family>]")
    parser.add_argument("--language-from", type=Path, default=None, metavar="FOLDER",
                        help="for fresh: the language model of this trained state, of whichever family")  # fmt: skip
    parser.add_argument("--minutes", type=float, default=75.0, help="of joint training, all its parts together [75]")
    parser.add_argument("--vision-minutes", type=float, default=10.0, help="of the vision tower alone [10]")
    parser.add_argument("--procs", type=int, default=2, help="processes, one core each [2]")
    parser.add_argument("--seed", type=int, default=9, help="of weights and data [9]")
    parser.add_argument("--lr", type=float, default=1.5e-3, help="learning rate [0.0015]")
    parser.add_argument("--tokens", type=int, default=1280, help="padded tokens per micro-batch [1280]")
    parser.add_argument("--mix", default="", metavar="TASK=WEIGHT,…", help="changes to the mix of tasks")
    parser.add_argument("--cache", type=Path, default=Path(".cache/tiny"), help="where stages, clips and rows are kept [.cache/tiny]")
    parser.add_argument("--export", type=Path, nargs="?", const=None, default=argparse.SUPPRESS, metavar="FILE",
                        help="train nothing: export this snapshot (default: the latest state) as a model folder")  # fmt: skip
    parser.add_argument("--out", type=Path, default=None, help="model folder to write [models/tiny-<family>]")
    parser.add_argument("--smoke", action="store_true", help="a few steps on text alone; fails unless three tasks beat chance")
    parser.add_argument("--card", type=Path, default=None, metavar="FILE",
                        help="train nothing: fill the scores of eval-tiny --json FILE into the model's card and docs/tiny.md")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """``train-tiny``."""
    import torch

    from bench.tiny import architecture, stages
    from bench.tiny.card import card

    torch.set_num_threads(1)
    if arguments.card is not None:
        return _card(arguments)
    family = architecture.family_named(arguments.family)
    if arguments.smoke:
        from bench.tiny import smoke

        return smoke.run(arguments.cache, family.name, arguments.seed, arguments.procs)
    folder = arguments.cache / (arguments.name or family.name)
    target = arguments.out or TARGETS[family.name]
    if hasattr(arguments, "export"):
        source = arguments.export or folder / "joint.safetensors"
        stages.export(folder, family, source, target, card(family.name, source))
        print(f"exported {source} to {target}")
        return 0
    if arguments.stage == "grow":
        from bench.tiny.grow import grow

        count = grow(arguments.grow_from or arguments.cache / family.name, folder, family, arguments.seed)
        print(f"{folder}: {count} more words")
        return 0
    wanted = STAGES if arguments.stage == "all" else (arguments.stage,)
    if "fresh" in wanted and arguments.language_from is not None:
        from bench.tiny.graft import graft

        graft(arguments.language_from, folder, family, arguments.seed)
    elif "fresh" in wanted:
        stages.fresh(folder, family, arguments.seed)
    if "vision" in wanted:
        accuracy = stages.see_first(folder, family, arguments.cache, minutes=arguments.vision_minutes, shards=40, seed=7)
        print(f"vision: held out: motion {accuracy['motion']:.3f}, element {accuracy['element']:.3f}")
    if "joint" in wanted:
        from bench.tiny import curves
        from bench.tiny.train import MIX, Plan
        from bench.tiny.train import run as train

        plan = Plan(
            folder, arguments.cache, family.name, arguments.seed, arguments.minutes, procs=arguments.procs, tokens=arguments.tokens,
            lr=arguments.lr, mix=_mix(arguments.mix, MIX), shards=40,
        )  # fmt: skip
        train(plan)
        stages.export(folder, family, plan.out, target, card(family.name, plan.out))
        print(f"exported to {target}")
        curves.write(folder / "log.jsonl", folder / "curves.svg")
        print(f"curves: {folder / 'curves.svg'}")
    return 0


def _card(arguments: argparse.Namespace) -> int:
    """Scores into the card of the model that they were measured on."""
    from bench.tiny import card, parts

    facts = parts.read(arguments.card)
    model = arguments.out or TARGETS[facts["model"]["family"]]
    for path in card.fill(facts, model):
        print(f"scores written to {path}")
    return 0


def _mix(text: str, base: object) -> dict[str, float]:
    mix = dict(base)  # type: ignore[call-overload]
    for item in filter(None, text.split(",")):
        task, _, weight = item.partition("=")
        if task not in mix:
            raise ConfigError(f"--mix: unknown task {task!r}", remedy=f"known: {', '.join(mix)}")
        try:
            mix[task] = float(weight)
        except ValueError:
            raise ConfigError(f"--mix: {item!r} is not TASK=NUMBER") from None
    return {task: weight for task, weight in mix.items() if weight > 0}


def add_eval_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``eval-tiny``."""
    parser.add_argument("--family", default="qwen2.5-vl", choices=sorted(TARGETS), help="architecture [qwen2.5-vl]")
    parser.add_argument("--model", type=Path, default=None, help="a model folder [models/tiny-<family>], or a .safetensors of training")
    parser.add_argument("--cache", type=Path, default=Path(".cache/tiny"), help="where training keeps its tokenizer [.cache/tiny]")
    parser.add_argument("--n", type=int, default=200, help="samples of each task, condition and agent [200]")
    parser.add_argument("--tasks", default="", metavar="TASK,…", help="only these skills")
    parser.add_argument("--seed", type=int, default=20261129, help="of the worlds; 10**9 served while training was tuned [20261129]")
    parser.add_argument("--threads", type=int, default=2, help="threads [2]")
    parser.add_argument("--out", type=Path, default=None, help="also write the report to this file")
    options.add_arguments(parser)


def run_eval(arguments: argparse.Namespace) -> int:
    """``eval-tiny``."""
    import torch

    from bench.tiny import architecture, evaluate, parts
    from bench.tiny.data import Encoder
    from bench.tiny.tokenizer import with_vocabulary_of
    from bench.tiny.train import averaged

    parts.check(arguments)
    torch.set_num_threads(arguments.threads)
    family = architecture.family_named(arguments.family)
    source = arguments.model or TARGETS[family.name]
    if source.suffix == ".safetensors":
        beside = (source.parent / "tokenizer.json").exists()
        model, encoder, _ = averaged(source, family, source.parent if beside else arguments.cache / family.name)
    else:
        model = architecture.load(source)
        encoder = Encoder(with_vocabulary_of((source / "tokenizer.json").read_text(encoding="utf-8")), family)
    tasks = dict.fromkeys(filter(None, arguments.tasks.split(",")), 1.0) or dict(evaluate.TASKS)
    if unknown := set(tasks) - set(evaluate.TASKS):
        raise ConfigError(f"--tasks: unknown {', '.join(sorted(unknown))}", remedy=f"known: {', '.join(evaluate.TASKS)}")
    begun = time.time()
    parts.run(arguments, evaluate.Speaker(model, encoder, family), None if source.suffix == ".safetensors" else source, tasks)
    print(f"{time.time() - begun:.0f} s")
    return 0
