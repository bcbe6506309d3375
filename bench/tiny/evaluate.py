"""Exact accuracy of every skill on unseen worlds, with Wilson intervals, and which motions are taken for which.

Greedy, batched, by the stock model: what is measured is what ships. The samples are the training tasks on test worlds, whose names
no training world has. Knows no engine.

    python -m bench eval-tiny --n 200
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch

from bench.cuem.prefer import preference
from bench.tiny import patches, samples, tasks
from bench.tiny.architecture import Family, cast
from bench.tiny.clips import draw_clip
from bench.tiny.data import Encoder
from bench.tiny.primers import PRIMERS
from bench.world.asks import NOT_FOUND
from bench.world.lexicon import caption_class
from kg.replies import names, verdict
from models.requests import user
from pipeline import replies

TASKS: Mapping[str, float] = dict.fromkeys(tasks.TASKS, 1.0)


@dataclass(frozen=True, slots=True)
class Score:
    """`right` of `total`, with its 95 % Wilson interval."""

    right: int
    total: int

    @property
    def value(self) -> float:
        return self.right / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        if not self.total:
            return 0.0, 1.0
        n, p, z = self.total, self.value, 1.959964
        middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.3f} ({self.right}/{self.total}; 95 % {low:.3f} to {high:.3f})"


@dataclass(frozen=True)
class Result:
    """Scores by skill, motions confused ((gold, said) → count), and some wrong replies by task."""

    scores: Mapping[str, Score]
    confused: Mapping[tuple[str, str], int]
    wrong: Mapping[str, tuple[tuple[str, str, str], ...]]


class Speaker:
    """Greedy replies in batches, from a stock model in memory."""

    def __init__(self, model: Any, encoder: Encoder, family: Family, batch: int = 32) -> None:
        self.model, self.encoder, self.family, self.batch = cast(model, torch.bfloat16).eval(), encoder, family, batch

    @torch.no_grad()
    def reply(self, prompts: Sequence[Sequence[int]], clips: Sequence[np.ndarray[Any, Any] | None], tokens: int = 96) -> list[str]:
        """The reply to each prompt; `clips[i]` are its frames (uint8) or None."""
        out = [""] * len(prompts)
        order = sorted(range(len(prompts)), key=lambda i: (clips[i] is not None, len(prompts[i])))
        for start in range(0, len(order), self.batch):
            part = order[start : start + self.batch]
            n = max(len(prompts[i]) for i in part)
            ids = torch.full((len(part), n), self.encoder.pad)
            for r, i in enumerate(part):
                ids[r, n - len(prompts[i]) :] = torch.tensor(prompts[i])
            mask = torch.zeros_like(ids)
            for r, i in enumerate(part):
                mask[r, n - len(prompts[i]) :] = 1
            seen = [clip for i in part if (clip := clips[i]) is not None]
            made = self.model.generate(
                input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=tokens, **self._pixels(seen, ids)
            )[:, n:]
            for r, i in enumerate(part):
                out[i] = self.encoder.tokenizer.decode(made[r].tolist(), skip_special_tokens=True)
        return out

    def _pixels(self, clips: Sequence[np.ndarray[Any, Any]], ids: torch.Tensor) -> dict[str, torch.Tensor]:
        if not clips:
            return {}
        frames = np.concatenate(clips)
        flat = torch.from_numpy(patches.patchify(frames))
        if self.family.name == "internvl":
            return {"pixel_values": torch.from_numpy(patches.squares(frames)).bfloat16()}
        slots = torch.eq(ids, self.encoder.slot).int()
        return {
            "pixel_values": flat.bfloat16(),
            "image_grid_thw": torch.tensor([patches.GRID] * len(frames)),
            "mm_token_type_ids": slots,
        }


def evaluate(speaker: Speaker, n: int, seed: int = 10**9, wanted: Mapping[str, float] = TASKS, show: int = 3) -> Result:
    """`n` samples of every task on unseen worlds."""
    scores: dict[str, list[bool]] = {}
    confused: Counter[tuple[str, str]] = Counter()
    wrong: dict[str, tuple[tuple[str, str, str], ...]] = {}
    for task in wanted:
        rng = Random(f"evaluate/{seed}/{task}")
        source = tasks.source(task, rng.getrandbits(40), "test")
        items = [next(source) for _ in range(n)]
        clips = [None if s.clip is None else _draw(s.clip, rng) for s in items]
        prompts = [speaker.encoder.prompt(s.request, None if c is None else len(c)) for s, c in zip(items, clips, strict=True)]
        answers = speaker.reply(prompts, clips)
        for s, said in zip(items, answers, strict=True):
            for skill, right in _judge(s, said).items():
                scores.setdefault(skill, []).append(right)
            seen = caption_class(said)
            if s.task == "perceiver" and s.clip is not None:
                confused[s.clip.motion, seen[0] if seen else "?"] += 1
        bad = [(s.request.text, s.reply, said) for s, said in zip(items, answers, strict=True) if not next(iter(_judge(s, said).values()))]
        wrong[task] = tuple(bad[:show])
    return Result({k: Score(sum(v), len(v)) for k, v in sorted(scores.items())}, confused, wrong)


def _draw(clip: samples.Clip, rng: Random) -> np.ndarray[Any, Any]:
    family = "arena" if clip.family == "arena" else "wild"
    return draw_clip(clip.look, clip.motion, clip.element, family, clip.scene, clip.frames or 3, rng)  # type: ignore[arg-type]


def _judge(sample: samples.Sample, said: str) -> dict[str, bool]:
    """Skill → right or wrong; the first is the task's own measure."""
    gold = sample.reply
    if sample.task in ("expander", "summarizer", "answer"):
        # as the parsers see it: names in any order
        options = [*gold.split("; "), *said.split("; ")]
        want, got = names(options)(gold), names(options)(said)
        out = {sample.task: set(want.chosen) == set(got.chosen) and want.none == got.none}
        if sample.task == "answer":
            out = {("vanilla" if sample.clip else "vanilla+"): out["answer"]}
        return out
    if sample.task in ("validator", "judge", "caption_judge"):
        right = verdict(said).value == verdict(gold).value
        return {sample.task: right, f"{sample.task}/{gold}": right}
    if sample.task == "validator_online":
        head, _, tail = said.rpartition("; ")
        wanted, _, answer = gold.rpartition("; ")
        right = verdict(tail).value == verdict(answer).value
        return {sample.task: right, f"{sample.task}/{answer}": right, f"{sample.task}/look": caption_class(head) == caption_class(wanted)}
    if sample.task == "perceiver" and sample.clip is not None:
        seen = caption_class(said)
        motion = seen is not None and seen[0] == sample.clip.motion
        element = seen is not None and seen[1] == sample.clip.element
        return {"perceiver": motion and element, "perceiver/motion": motion, "perceiver/element": element}
    if sample.task in _CUEM:
        return _CUEM[sample.task](gold, said)
    return {sample.task: said.strip() == gold}


def _intent(gold: str, said: str) -> dict[str, bool]:
    return {"intent": replies.refined(said) == replies.refined(gold)}


def _queries(gold: str, said: str) -> dict[str, bool]:
    want, got = replies.queries(gold), replies.queries(said)
    right = set(want.queries) == set(got.queries) and not got.unclear
    return {"queries": right, f"queries/{'some' if want.queries else 'none'}": right}


def _judgement(task: str, gold: str, said: str) -> dict[str, bool]:
    right = replies.judgement(said) == replies.judgement(gold)
    return {task: right, f"{task}/{gold}": right}


def _respond(gold: str, said: str) -> dict[str, bool]:
    """Words and citations; found or not found apart."""
    parse = replies.answer(9, NOT_FOUND)
    want, got = parse(gold), parse(said)
    right = (want.text, want.cited) == (got.text, got.cited)
    return {"respond": right, f"respond/{NOT_FOUND if want.not_found else 'found'}": right}


def _prefer(gold: str, said: str) -> dict[str, bool]:
    right = preference(said) == gold
    return {"prefer": right, f"prefer/{gold}": right}


_CUEM: Mapping[str, Callable[[str, str], dict[str, bool]]] = {
    "describe": lambda gold, said: {"describe": caption_class(said) == caption_class(gold)},
    "intent": _intent,
    "queries": _queries,
    "need": lambda gold, said: _judgement("need", gold, said),
    "safe": lambda gold, said: _judgement("safe", gold, said),
    "respond": _respond,
    "prefer": _prefer,
}


def primers(speaker: Speaker, n: int, tasks: Sequence[str], seed: int = 10**9) -> dict[str, Score]:
    """Exact accuracy on primers."""
    out = {}
    for task in tasks:
        rng = Random(f"evaluate/{seed}/{task}")
        pairs = [PRIMERS[task](rng) for _ in range(n)]
        said = speaker.reply([speaker.encoder.prompt(user(text)) for text, _ in pairs], [None] * n)
        out[task] = Score(sum(a.strip() == gold for a, (_, gold) in zip(said, pairs, strict=True)), n)
    return out
