"""`python -m models plan MODEL --gpus N`: what a count of GPUs would be used for. Needs no GPU and, for a card's name, no weights."""

from __future__ import annotations

import argparse

from models.errors import ConfigError
from models.locate import at_home

HELP = "say how a model would be spread over N GPUs, or which counts work"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a model folder, or the name of a model card (Qwen2.5-VL-7B-Instruct)")
    parser.add_argument("--gpus", type=int, default=1, metavar="N")
    parser.add_argument("--gpu-memory", type=float, metavar="GIB", help="plan for GPUs of this size instead of asking NVML")
    parser.add_argument("--gpu-utilisation", type=float, default=0.9, metavar="SHARE")
    parser.add_argument("--context", type=int, default=8192, metavar="TOKENS", help="prompt and reply of one call (8192)")
    parser.add_argument("--calls", type=int, default=2, metavar="N", help="calls of that length that must have room at once (2)")
    parser.add_argument("--tensor-parallel", type=int, metavar="N")


def run(args: argparse.Namespace) -> int:
    from models import gpus
    from models.cards import card_named
    from models.planner import GIB, Need, degrees, memory_of, plan, working_counts
    from models.shape import read_shape, shape_of

    for name, value in (("gpus", args.gpus), ("context", args.context), ("calls", args.calls)):
        if value < 1:
            raise ConfigError(f"--{name} {value}", remedy="a whole number, 1 at least")
    if not 0 < args.gpu_utilisation <= 1:
        raise ConfigError(f"--gpu-utilisation {args.gpu_utilisation:g}", remedy="a share of a GPU's memory, above 0 and 1 at most: 0.9")
    asked = None if args.gpu_memory is None else memory_of(args.gpu_memory, args.gpus)
    folder = at_home(args.model)
    if folder.is_dir():
        shape, weights = read_shape(folder)
        for fault in weights.faults:
            print(f"note: {fault}")
    else:
        try:
            card = card_named(args.model)
        except ConfigError as error:
            raise ConfigError(f"{args.model}: no such folder, and no model card", remedy=error.remedy) from None
        shape = shape_of(card.config(card.forms[0]), round(card.parameters * 2), round(card.vision.parameters * 2))
        print(f"{card.name}: {card.parameters / 1e9:.1f} billion parameters, {card.licence}, forms: {', '.join(card.forms)} (model card)")
    print(
        f"{shape.heads} heads, {shape.kv_heads} key-value heads, {shape.layers} layers, {shape.kv_bytes_per_token() / 1024:.0f} KiB of "
        f"cache a token, weights {shape.weight_bytes / GIB:.1f} GiB; tensor-parallel degrees: {', '.join(map(str, degrees(shape)))}"
    )
    memory = [gpu.memory for gpu in gpus.gpus()] if asked is None else asked
    need = Need(args.context, args.calls)
    chosen = plan(shape, args.gpus, memory, need, tensor_parallel=args.tensor_parallel, utilisation=args.gpu_utilisation)
    print(chosen)
    counts = working_counts(shape, min(memory), need, len(memory), args.gpu_utilisation)
    print(f"counts that work: {', '.join(map(str, counts))}")
    return 0
