"""Stage 2: the whole model on all tasks at once. One single-threaded process per core, gradients averaged by gloo over loopback.

float32 masters, bfloat16 twins that compute; a running average of the masters is what snapshots and exports hold. A stopped run
goes on at its last save, with the same data that it would have seen. Knows no agent: what is learnt is decided in the data.

    python -m bench train-tiny --stage joint --minutes 60 --procs 2
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

from bench.tiny import architecture, checkpoint, fast
from bench.tiny.clips import Pool
from bench.tiny.data import Batch, Encoder, Row, Rows, collate, hash_of
from bench.tiny.optimizer import Optimizer
from bench.tiny.tokenizer import with_vocabulary_of
from models import environment

MIX: Mapping[str, float] = {
    "search": 6, "online": 2, "perceive": 1.5, "topic": 0.7, "summarize": 3, "answer": 0.15, "judge": 2.5, "compare": 5,
    "describe": 0.7, "intent": 4, "queries": 3, "need": 1.2, "safe": 0.8, "respond": 5, "prefer": 1.2,
    "copy": 1, "find": 1, "equal": 2, "say": 0.3, "pick": 4,
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """One joint training. It ends after `steps` or `minutes` of wall clock (all its parts together), whichever is given and first.

    `tokens`: padded tokens per micro-batch; `parts`: micro-batches per step and process. `flat`: share of the run before the
    learning rate falls linearly to `final` of it. `lm`: weight of the prompt's own tokens at the start, fading to 0.
    """

    folder: Path
    cache: Path
    family: str = "qwen2.5-vl"
    seed: int = 9
    minutes: float = 0.0
    steps: int = 0
    procs: int = 2
    tokens: int = 1280
    parts: int = 3
    lr: float = 1.5e-3
    warmup: int = 20
    flat: float = 0.4
    final: float = 0.02
    lm: float = 0.3
    shards: int = 24
    average: float = 0.998
    save_minutes: float = 3.0
    snapshot_minutes: float = 10.0
    log_every: int = 25
    compiled: bool = True
    mix: Mapping[str, float] = field(default_factory=lambda: dict(MIX))

    @property
    def out(self) -> Path:
        return self.folder / "joint.safetensors"

    def progress(self, step: int, minutes: float) -> float:
        """How much of the run is done, 0 to 1."""
        return min(1.0, max(step / self.steps if self.steps else 0.0, minutes / self.minutes if self.minutes else 0.0))

    def scale(self, step: int, progress: float) -> float:
        """Factor of the learning rate: warm-up, flat, linear fall."""
        fall = max(0.0, progress - self.flat) / (1 - self.flat)
        return min(1.0, (step + 1) / self.warmup) * (1 - (1 - self.final) * fall)


def run(plan: Plan) -> None:
    """Trains to the end of the plan, or goes on with it. Needs fresh.safetensors and tokenizer.json in the plan's folder."""
    if plan.procs == 1:
        _worker(0, plan, "")
        return
    plan.folder.mkdir(parents=True, exist_ok=True)
    meeting = plan.folder / f"meeting.{os.getpid()}"
    try:
        spawn(_worker, (plan, f"file://{meeting.absolute()}"), plan.procs)  # type: ignore[no-untyped-call]
    finally:
        meeting.unlink(missing_ok=True)


def _worker(rank: int, plan: Plan, meeting: str) -> None:
    torch.set_num_threads(1)
    if meeting:
        environment.apply()
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=plan.procs)
    try:
        Trainer(plan, rank).run()
    finally:
        if meeting:
            dist.destroy_process_group()


class Trainer:
    """One process of a joint training."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan, self.rank = plan, rank
        family = architecture.family_named(plan.family)
        vocabulary = (plan.folder / "tokenizer.json").read_text(encoding="utf-8")
        self.encoder = Encoder(with_vocabulary_of(vocabulary), family)
        self.masters = architecture.build(family, self.encoder.tokenizer)
        self.model = architecture.build(family, self.encoder.tokenizer).bfloat16().train()
        self.named = list(self.masters.named_parameters())
        self.params = [p for _, p in self.named]
        self.work = list(self.model.parameters())
        self.optimizer = Optimizer(self.named, plan.lr)
        self.rows = Rows(plan.cache / "rows", self.encoder, plan.mix, plan.seed, vocabulary)
        self.pool = Pool(plan.cache / "clips", plan.shards)
        self.facts: dict[str, Any] = {"step": 0, "minutes": 0.0, "samples": 0, "tokens": 0, "mix": self.rows.key, "mix_step": 0}
        self.facts["seed"] = plan.seed
        self._restore()
        self.loss = fast.token_loss(self.model, plan.compiled)
        self.see = fast.see_of(self.model, plan.compiled)
        self.log: dict[str, list[float]] = {}
        self._copy()

    def _restore(self) -> None:
        by_name = dict(self.named)
        if self.plan.out.exists():
            tensors, facts = checkpoint.load(self.plan.out)
            weights = checkpoint.part(tensors, "model")
            self.average = [checkpoint.part(tensors, "average")[name] for name, _ in self.named]
            self.optimizer.restore(checkpoint.part(tensors, "optimizer"))
            self.facts.update(facts)
            if self.facts["mix"] != self.rows.key:  # another mix: its data begin at their beginning
                self.facts.update(mix=self.rows.key, mix_step=self.facts["step"])
        else:
            weights = checkpoint.part(checkpoint.load(self.plan.folder / "fresh.safetensors")[0], "model")
            seen = self.plan.folder / "vision.safetensors"
            if seen.exists():
                trained = checkpoint.part(checkpoint.load(seen)[0], "model")
                for part, module in architecture.vision_parts(self.masters).items():
                    prefix = next(n for n, m in self.masters.named_modules() if m is module)
                    weights.update({f"{prefix}.{key}": value for key, value in checkpoint.part(trained, part).items()})
            self.average = [weights[name].clone() for name, _ in self.named]
        with torch.no_grad():
            for name, p in by_name.items():
                p.copy_(weights[name])

    @torch.no_grad()
    def _copy(self) -> None:
        torch._foreach_copy_(self.work, self.params)

    def batches(self) -> Iterator[tuple[int, list[list[Row]]]]:
        """(step, its micro-batches) from the present step on."""
        step, number = self.facts["mix_step"], 0
        while True:
            steps = self.rows.steps(self.rank, number, self.plan.tokens, self.plan.parts)
            for parts in steps:
                if step >= self.facts["step"]:
                    yield step, parts
                step += 1
            number += 1

    def run(self) -> None:
        """Steps until the plan is done."""
        plan, facts = self.plan, self.facts
        begun = saved = logged = 0.0
        snapshot = int(facts["minutes"] / plan.snapshot_minutes)
        earlier, progress = facts["minutes"], plan.progress(facts["step"], facts["minutes"])
        source, parent = self.batches(), os.getppid()
        with (plan.folder / "log.jsonl").open("a", encoding="utf-8") as log:
            while progress < 1 and (plan.procs == 1 or os.getppid() == parent):  # a killed command leaves nobody training on
                step, parts = next(source)
                for n, rows in enumerate(parts):
                    self._part(rows, hash_of(plan.seed, self.rank, step, n), plan.lm * (1 - progress))
                if not begun:  # the clock starts after compilation
                    begun = saved = logged = time.time()
                minutes = self._meet(earlier + (time.time() - begun) / 60)
                self._update(step, plan.scale(step, progress))
                facts.update(step=step + 1, minutes=minutes)
                progress = plan.progress(step + 1, minutes)
                if self.rank:
                    continue
                if (step + 1) % plan.log_every == 0 or progress >= 1:
                    self._report(log, time.time() - logged, progress)
                    logged = time.time()
                if time.time() - saved > plan.save_minutes * 60 or progress >= 1:
                    self.save()
                    saved = time.time()
                if int(minutes / plan.snapshot_minutes) > snapshot:
                    snapshot = int(minutes / plan.snapshot_minutes)
                    self.snapshot(plan.folder / f"snapshot-{snapshot * plan.snapshot_minutes:03.0f}min.safetensors")

    def _part(self, rows: list[Row], seed: int, lm: float) -> None:
        """Forward and backward of one micro-batch; a sample's reply tokens weigh 1 / √(their number) each."""
        batch = collate(rows, self.encoder, self.pool, seed)
        x = self.model.model.language_model.embed_tokens(batch.ids)
        if batch.pixels is not None:
            x = x.masked_scatter(batch.slots[..., None], self.see(batch.pixels).to(x.dtype))
        ce = self.loss(x, batch.positions, batch.ids)
        reply, prompt = batch.reply[:, 1:], batch.prompt[:, 1:] * ~batch.slots[:, 1:]
        weight = reply / reply.sum(1, keepdim=True).sqrt()
        loss = (ce * weight).sum() / weight.sum() + lm * (ce * prompt).sum() / prompt.sum().clamp(min=1)
        (loss / self.plan.parts).backward()  # type: ignore[no-untyped-call]
        self._account(batch, ce.detach(), reply)

    def _account(self, batch: Batch, ce: Tensor, reply: Tensor) -> None:
        """Per task: mean reply loss, and the share of samples whose every reply token has p > 0.5."""
        loss = ((ce * reply).sum(1) / reply.sum(1)).tolist()
        sure = ((ce * reply).amax(1) < 0.69).tolist()
        for task, a, b in zip(batch.tasks, loss, sure, strict=True):
            v = self.log.setdefault(task, [0.0, 0.0, 0.0])
            v[0], v[1], v[2] = v[0] + a, v[1] + b, v[2] + 1
        self.facts["samples"] += len(batch.tasks) * self.plan.procs
        self.facts["tokens"] += batch.ids.numel() * self.plan.procs

    def _meet(self, minutes: float) -> float:
        """Averages the gradients (and the clock) of all processes; returns the common clock."""
        flat = torch.cat([w.grad.flatten().float() if w.grad is not None else torch.zeros(w.numel()) for w in self.work])
        flat = torch.cat([flat, torch.tensor([minutes])])
        if self.plan.procs > 1:
            dist.all_reduce(flat)
            flat /= self.plan.procs
        at = 0
        for p in self.params:
            p.grad = flat[at : at + p.numel()].view_as(p)
            at += p.numel()
        self.model.zero_grad(set_to_none=True)
        return float(flat[-1])

    @torch.no_grad()
    def _update(self, step: int, scale: float) -> None:
        nn.utils.clip_grad_norm_(self.params, 1.0)
        self.optimizer.step(scale)
        torch._foreach_lerp_(self.average, self.params, 1 - min(self.plan.average, (1 + step) / (10 + step)))
        self._copy()

    def _report(self, log: TextIO, seconds: float, progress: float) -> None:
        facts = self.facts
        tasks = {t: {"loss": v[0] / v[2], "sure": v[1] / v[2], "n": int(v[2])} for t, v in sorted(self.log.items())}
        rate = (facts["tokens"] - facts.get("logged", 0)) / max(seconds, 1e-9)
        facts["logged"] = facts["tokens"]
        line = {k: facts[k] for k in ("step", "minutes", "samples", "tokens")} | {"tokens_per_s": rate, "tasks": tasks}
        line["lr"] = self.plan.lr * self.plan.scale(facts["step"], progress)
        log.write(json.dumps(line) + "\n")
        log.flush()
        left = facts["minutes"] * (1 - progress) / max(progress, 1e-9)
        parts = " ".join(f"{t} {v['loss']:.2f}/{v['sure']:.2f}" for t, v in tasks.items())
        print(
            f"joint: step {facts['step']}, {facts['minutes']:.1f} min, {facts['tokens'] / 1e6:.2f} M tokens, {rate:.0f} tokens/s, "
            f"{left:.0f} min left; loss/sure: {parts}",
            flush=True,
        )
        self.log = {}

    def save(self) -> None:
        """The whole state, so that a later run goes on from here."""
        tensors = {f"model.{name}": p for name, p in self.named}
        tensors |= {f"average.{name}": a for (name, _), a in zip(self.named, self.average, strict=True)}
        tensors |= {f"optimizer.{key}": value for key, value in self.optimizer.state().items()}
        checkpoint.save(self.plan.out, tensors, self.facts)

    def snapshot(self, path: Path) -> None:
        """The averaged weights alone, in bfloat16."""
        pairs = zip(self.named, self.average, strict=True)
        checkpoint.save(path, {f"average.{name}": a.bfloat16() for (name, _), a in pairs}, self.facts)


def averaged(path: Path, family: architecture.Family, folder: Path) -> tuple[Any, Encoder, dict[str, Any]]:
    """(model with the averaged weights, its encoder, facts) of a joint.safetensors or snapshot."""
    encoder = Encoder(with_vocabulary_of((folder / "tokenizer.json").read_text(encoding="utf-8")), family)
    tensors, facts = checkpoint.load(path)
    weights = checkpoint.part(tensors, "average")
    model = architecture.build(family, encoder.tokenizer)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(weights[name])
    return model.eval(), encoder, facts
