"""From samples to batches: token ids, mRoPE positions, patches. Shard n of (seed, rank) is always the same and is kept on disk.

One row is prompt and reply in the chat format. Micro-batches hold rows of about one length; a step takes one from each length
quantile, so that padding is small and no step sees one length only. Knows no model.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import Tensor

from bench.tiny import patches, samples, tasks
from bench.tiny.architecture import Family
from bench.tiny.clips import Pool
from bench.tiny.fast import pixels_of
from bench.tiny.primers import PRIMERS
from bench.tiny.tokenizer import token
from bench.world.lexicon import Split
from models.requests import Request, user

SHARD = 4096  # samples
PER_PRIMER = 8  # samples that one draw of a primer gives


@dataclass(frozen=True, slots=True)
class Show:
    """What a row's frames show: `count` frames of a pool clip with this label."""

    motion: str
    element: str | None
    family: str
    count: int


@dataclass(frozen=True, slots=True)
class Row:
    """One sample as tokens. `prompt` of the ids are the prompt's."""

    task: str
    ids: tuple[int, ...]
    prompt: int
    show: Show | None


@dataclass(frozen=True)
class Batch:
    """ids (b, n), positions (3, b, n), mask of reply tokens and of prompt tokens (b, n), patches of all frames or None."""

    tasks: tuple[str, ...]
    ids: Tensor
    positions: Tensor
    reply: Tensor
    prompt: Tensor
    pixels: Tensor | None
    slots: Tensor

    def __repr__(self) -> str:
        return f"Batch({tuple(self.ids.shape)}, {0 if self.pixels is None else len(self.pixels) // 60} frames)"


class Encoder:
    """Chat messages → ids, word by word from a cache: equal to the tokenizer on the rendered template, a few times faster."""

    def __init__(self, tokenizer: Tokenizer, family: Family) -> None:
        self.tokenizer = tokenizer
        self._words: dict[str, list[int]] = {}
        self.start, self.end = token(tokenizer, "<|im_start|>"), token(tokenizer, "<|im_end|>")
        self.pad, self.slot = token(tokenizer, "<|endoftext|>"), token(tokenizer, family.slot)
        self._frame = [token(tokenizer, family.opens), *[self.slot] * family.tokens, token(tokenizer, family.closes)]
        self._flat = family.name == "internvl"  # counts every slot as one position

    def text(self, text: str) -> list[int]:
        out: list[int] = []
        for word in text.split():
            ids = self._words.get(word)
            if ids is None:
                ids = self._words[word] = self.tokenizer.encode(word, add_special_tokens=False).ids
            out += ids
        return out

    def prompt(self, request: Request, frames: int | None = None) -> list[int]:
        """Ids up to where the reply begins. `frames`: how many stand in place of the request's pictures (default: as many)."""
        out: list[int] = []
        for message in request.messages:
            out += [self.start, *self.text(message.role)]
            count = len(message.pictures) if frames is None else frames
            placed = False
            for part in message.parts:
                if isinstance(part, str):
                    out += self.text(part)
                elif not placed:
                    out += self._frame * count
                    placed = True
            out.append(self.end)
        return [*out, self.start, *self.text("assistant")]

    def positions(self, ids: Sequence[int]) -> npt.NDArray[np.int64]:
        if self._flat:
            return np.broadcast_to(np.arange(len(ids)), (3, len(ids)))
        return patches.positions(ids, self.slot)


def stream(encoder: Encoder, seed: int, weights: Mapping[str, float], split: Split = "train") -> Iterator[Row]:
    """Endless rows: a task or primer is drawn by its weight, then its next few samples come together."""
    rng = Random(f"rows/{split}/{seed}")
    sources = {task: tasks.source(task, rng.getrandbits(40), split) for task in tasks.TASKS if weights.get(task)}
    names, shares = list(weights), list(weights.values())
    while True:
        (task,) = rng.choices(names, shares)
        for _ in range(PER_PRIMER):
            if task in PRIMERS:
                text, reply = PRIMERS[task](rng)
                yield row(encoder, task, user(text), reply, None, rng)
            else:
                sample = next(sources[task])
                yield row(encoder, sample.task, sample.request, sample.reply, sample.clip, rng)


def row(encoder: Encoder, task: str, request: Request, reply: str, clip: samples.Clip | None, rng: Random) -> Row:
    """One sample as a row; a clip is shown as many frames as it says, or as three, now and then as two or four."""
    show = None if clip is None else Show(clip.motion, clip.element, clip.family, clip.frames or rng.choices((3, 2, 4), (80, 8, 12))[0])
    prompt = encoder.prompt(request, show.count if show else None)
    return Row(task, (*prompt, *encoder.text(reply), encoder.end), len(prompt), show)


class Rows:
    """Shards of rows on disk, keyed by everything that decides them."""

    def __init__(self, folder: Path, encoder: Encoder, weights: Mapping[str, float], seed: int, vocabulary: str) -> None:
        self.folder, self.encoder, self.weights, self.seed = folder, encoder, dict(weights), seed
        key = json.dumps([self.weights, vocabulary, seed])
        self.key = hashlib.sha256(key.encode()).hexdigest()[:10]

    def shard(self, rank: int, number: int) -> list[Row]:
        path = self.folder / f"rows-{self.key}-{rank}-{number:04d}.json"
        if not path.exists():
            source = stream(self.encoder, hash_of(self.seed, rank, number), self.weights)
            rows = [next(source) for _ in range(SHARD)]
            self.folder.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(f".{os.getpid()}.new")
            fresh.write_text(json.dumps([[r.task, r.ids, r.prompt, None if r.show is None else _list(r.show)] for r in rows]))
            fresh.replace(path)
        raw = json.loads(path.read_text())
        return [Row(task, tuple(ids), prompt, None if show is None else Show(*show)) for task, ids, prompt, show in raw]

    def steps(self, rank: int, number: int, tokens: int, parts: int) -> list[list[list[Row]]]:
        """The shard as steps of `parts` micro-batches of at most `tokens` padded tokens, one from each length quantile."""
        rows = sorted(self.shard(rank, number), key=lambda r: len(r.ids))
        cuts: list[list[Row]] = [[]]
        for r in rows:
            if cuts[-1] and len(r.ids) * (len(cuts[-1]) + 1) > tokens:
                cuts.append([])
            cuts[-1].append(r)
        count = len(cuts) // parts
        generator = np.random.default_rng([self.seed, rank, number])
        columns = [generator.permutation(count) + k * count for k in range(parts)]
        return [[cuts[i] for i in places] for places in zip(*columns, strict=True)]


def hash_of(*numbers: int) -> int:
    """One seed from several numbers."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:6], "big")


def _list(show: Show) -> list[Any]:
    return [show.motion, show.element, show.family, show.count]


def collate(rows: Sequence[Row], encoder: Encoder, pool: Pool | None, seed: int) -> Batch:
    """Rows padded on the right to the longest; clips are chosen from the pool by `seed`."""
    n = max(len(r.ids) for r in rows)
    ids = np.full((len(rows), n), encoder.pad, np.int64)
    positions = np.zeros((3, len(rows), n), np.int64)
    reply, prompt = np.zeros((len(rows), n), np.float32), np.zeros((len(rows), n), np.float32)
    frames, counts = [], []
    rng = Random(seed)
    for i, r in enumerate(rows):
        size = len(r.ids)
        ids[i, :size] = r.ids
        positions[:, i, :size] = encoder.positions(r.ids)
        prompt[i, : r.prompt], reply[i, r.prompt : size] = 1, 1
        if r.show is not None:
            assert pool is not None
            frames.append(pool.clip(r.show.motion, r.show.element, r.show.family, r.show.count, rng.getrandbits(30)))
            counts.append(r.show.count)
    slots = torch.from_numpy(ids == encoder.slot)
    pixels = None
    if frames:
        arranged = torch.from_numpy(patches.arrange(np.concatenate(frames)))
        pixels = pixels_of(arranged, counts, torch.Generator().manual_seed(seed % 2**62))
    tasks, marks = tuple(r.task for r in rows), (torch.from_numpy(reply), torch.from_numpy(prompt))
    return Batch(tasks, torch.from_numpy(ids), torch.from_numpy(positions), *marks, pixels, slots)
