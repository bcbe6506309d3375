"""Stage 1: the vision tower (and the projector behind it) alone, with heads for motion, moment and element that are thrown away.

Through the language model alone the tower stays at chance; alone it learns in ten minutes of one core. Knows no words.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bench.tiny import checkpoint, fast, patches
from bench.tiny.architecture import HIDDEN, vision_parts
from bench.tiny.clips import Drawn, Pool
from bench.tiny.optimizer import Optimizer
from bench.world import lexicon as lx

MOTIONS, ELEMENTS = tuple(lx.MOTIONS), (None, *lx.ELEMENTS)
MOMENTS = 3


class Heads(nn.Module):
    """(frames · tokens, hidden) merged embeddings of three-frame clips → logits of (motion and moment), motion, element."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.norm = nn.RMSNorm(HIDDEN)
        self.frame = nn.Linear(HIDDEN, len(MOTIONS) * MOMENTS)
        self.motion = nn.Linear(HIDDEN * MOMENTS, len(MOTIONS))
        self.element = nn.Linear(HIDDEN * MOMENTS, len(ELEMENTS))

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.norm(seen.view(-1, self.tokens, HIDDEN)).mean(1)
        clip = x.reshape(-1, MOMENTS * HIDDEN)
        return self.frame(x), self.motion(clip), self.element(clip)


def batches(pool: Pool, seed: int, size: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Endless (patches, motions, elements) of three-frame clips from step `start` on; shard by shard, shuffled within each."""
    per_shard, step = 400 // size, start
    while True:
        turn, number = divmod(step // per_shard, pool.shards)
        clips = [c for c in pool.shard(number) if len(c.frames) == MOMENTS]
        Random(f"{seed}/{turn}/{number}").shuffle(clips)
        for at in range(step % per_shard, per_shard):
            chosen = [clips[(at * size + i) % len(clips)] for i in range(size)]
            yield (*_tensors(chosen, torch.Generator().manual_seed(seed * 1_000_003 + step)),)
            step += 1


def _tensors(clips: Sequence[Drawn], generator: torch.Generator | None) -> tuple[Tensor, Tensor, Tensor]:
    arranged = torch.from_numpy(patches.arrange(np.concatenate([c.frames for c in clips])))
    motions = torch.tensor([MOTIONS.index(c.motion) for c in clips])
    elements = torch.tensor([ELEMENTS.index(c.element) for c in clips])
    return fast.pixels_of(arranged, [MOMENTS] * len(clips), generator), motions, elements


def train(
    fresh: Any, work: Any, pool: Pool, out: Path, *, tokens: int, minutes: float, seed: int = 5, clips: int = 32, lr: float = 1e-3
) -> dict[str, float]:
    """Trains the tower of `fresh` (float32; `work` is its bfloat16 twin) for about `minutes` and saves it; returns held-out accuracy.

    `tokens`: merged embeddings of one frame.

    Saves every minute, so a stopped run goes on from its last save.
    """
    torch.manual_seed(seed)
    masters = nn.ModuleDict({**vision_parts(fresh), "heads": Heads(tokens)})
    twins = nn.ModuleDict({**vision_parts(work), "heads": Heads(tokens)}).bfloat16()
    heads = twins["heads"]
    looks = fast.see_of(work)
    optimizer = Optimizer(masters.named_parameters(), lr)
    step, spent = 0, 0.0
    if out.exists():
        tensors, facts = checkpoint.load(out)
        if facts.get("done") and facts["minutes"] >= minutes:
            return dict(facts["accuracy"])
        masters.load_state_dict(checkpoint.part(tensors, "model"))
        optimizer.restore(checkpoint.part(tensors, "optimizer"))
        step, spent = facts["step"], facts["minutes"]
    pairs = list(zip(masters.parameters(), twins.parameters(), strict=True))
    _copy(pairs)
    begun, saved, stats = time.time() - spent * 60, time.time(), [0.0] * 4
    first = step
    source = batches(pool, seed, clips, step)
    while spent < minutes:
        pixels, motions, elements = next(source)
        moments = (motions[:, None] * MOMENTS + torch.arange(MOMENTS)).flatten()
        f, m, e = heads(looks(pixels))
        loss = cross_entropy(f.float(), moments) + cross_entropy(m.float(), motions) + cross_entropy(e.float(), elements)
        loss.backward()  # type: ignore[no-untyped-call]
        for p, w in pairs:
            p.grad = None if w.grad is None else w.grad.float()
            w.grad = None
        nn.utils.clip_grad_norm_([p for p, _ in pairs], 1.0)
        optimizer.step(min(1.0, (step + 1) / 30) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, spent / minutes)))))
        _copy(pairs)
        if step == first:  # the clock starts after compilation
            begun = time.time() - spent * 60
        step += 1
        spent = (time.time() - begun) / 60
        hits = (f.argmax(1) == moments, m.argmax(1) == motions, e.argmax(1) == elements)
        stats = [s + v for s, v in zip(stats, [loss.item(), *(h.float().mean().item() for h in hits)], strict=True)]
        if step % 25 == 0:
            mean = [s / 25 for s in stats]
            stats = [0.0] * 4
            left = max(0.0, minutes - spent)
            print(
                f"vision: step {step}, {step * clips} clips, loss {mean[0]:.3f}, moment {mean[1]:.3f}, motion {mean[2]:.3f}, "
                f"element {mean[3]:.3f}; {left:.1f} minutes left",
                flush=True,
            )
        if time.time() - saved > 60:
            saved = time.time()
            _save(out, masters, optimizer, {"step": step, "minutes": spent})
    accuracy = _held_out(looks, heads, Pool(pool.folder.with_name("clips-held-out"), 2, seed=1), clips)
    _save(out, masters, optimizer, {"step": step, "minutes": spent, "done": True, "accuracy": accuracy})
    return accuracy


@torch.no_grad()
def _copy(pairs: list[tuple[nn.Parameter, nn.Parameter]]) -> None:
    torch._foreach_copy_([w for _, w in pairs], [p for p, _ in pairs])


@torch.no_grad()
def _held_out(looks: fast.See, heads: nn.Module, pool: Pool, size: int) -> dict[str, float]:
    right, total = [0, 0], 0
    for number in range(pool.shards):
        clips = [c for c in pool.shard(number) if len(c.frames) == MOMENTS]
        for at in range(0, len(clips), size):
            part = clips[at : at + size]
            pixels, motions, elements = _tensors(part, None)
            _, m, e = heads(looks(pixels))
            right[0] += int((m.argmax(1) == motions).sum())
            right[1] += int((e.argmax(1) == elements).sum())
            total += len(part)
    return {"motion": right[0] / total, "element": right[1] / total, "clips": total}


def _save(out: Path, masters: nn.ModuleDict, optimizer: Optimizer, facts: dict[str, Any]) -> None:
    tensors = {f"model.{k}": v for k, v in masters.state_dict().items()}
    checkpoint.save(out, {**tensors, **{f"optimizer.{k}": v for k, v in optimizer.state().items()}}, facts)
