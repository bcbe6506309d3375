"""The transformers engine: answers a batch of requests with a model in this process (CPU or one GPU). A `BatchEngine`.

Prompts that begin alike share a batch, within a token budget, and what they begin with is computed once; a picture's tokens are computed
once per picture. Text-only models refuse pictures before the run starts. Try: python -m models chat FOLDER "hello"
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from models.checkpoint import inspect
from models.constrain import greedy, matching, one_of, sampler
from models.decode import Row, decode
from models.encode import Encoded, encode, word_ids
from models.engines import Workload
from models.errors import CallFailed, ModelError
from models.groups import groups
from models.hf import Loaded, Size, features, load, positions, size_of
from models.pictures import open_rgb
from models.pictures import size_of as shown_size
from models.repetition import loop_in
from models.requests import Completion, Picture, Request

_BATCH_TOKENS = 16_384  # prompt tokens of a batch, padding included: activations of a 7B model stay below 2 GB
_PICTURES_AT_ONCE = 48
_FEATURE_BYTES = 512 << 20


class TransformersEngine:
    """Raises ModelError for a folder that is not whole, a model of another kind, or a device that is not there.

    Args:
        batch: rows of a batch at most.
        threads: CPU threads of torch, for the whole process; 0 leaves them.
        min_pixels, max_pixels: Qwen2.5-VL's picture budget, in pixels; None takes the folder's.
    """

    can_constrain = frozenset({"choices", "pattern", "probe"})

    def __init__(
        self,
        folder: Path,
        *,
        device: str = "auto",
        batch: int = 32,
        threads: int = 0,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
    ) -> None:
        if threads:
            torch.set_num_threads(threads)
        checkpoint = inspect(folder)
        self.name = folder.resolve().name
        self.loaded: Loaded = load(checkpoint, device=device, min_pixels=min_pixels, max_pixels=max_pixels)
        budget = f"|{min_pixels}|{max_pixels}" if (min_pixels or max_pixels) else ""
        self.digest = f"hf:{checkpoint.digest}:{self.loaded.device.type}{budget}"
        self.batch = batch
        self._features: OrderedDict[str, torch.Tensor] = OrderedDict()
        self._sizes: dict[str, Size] = {}
        self._held = 0
        self._end = min(self.loaded.eos)
        self._words = lru_cache(maxsize=4096)(lambda words: tuple(map(tuple, word_ids(self.loaded, words))))

    def check(self, work: Workload) -> None:
        """Raises ModelError for pictures to a text-only model and for replies longer than the context."""
        if work.pictures and self.loaded.family == "text":
            raise ModelError(
                f"{self.name} ({self.loaded.checkpoint.architecture}) reads text only, and the run shows it pictures",
                remedy="choose settings without pictures (vanilla+, knowledgeable, perceptive), or a vision model",
            )
        context = self.loaded.checkpoint.context
        if work.max_tokens >= context:
            raise ModelError(
                f"replies of {work.max_tokens} tokens do not fit {self.name}'s context of {context}", remedy="lower max_tokens"
            )

    def complete_batch(self, requests: Sequence[Request]) -> Iterator[tuple[int, Completion | CallFailed]]:
        """(position, reply) as they finish."""
        begun = time.perf_counter()
        usable, bad = self._look(requests)
        for i, failure in bad.items():
            yield i, failure
        encoded: dict[int, Encoded] = {}
        for i, result in zip(usable, encode(self.loaded, [requests[i] for i in usable], self._sizes), strict=True):
            fault = result if isinstance(result, CallFailed) else self._fits(result)
            if fault is None:
                assert isinstance(result, Encoded)
                encoded[i] = result
            else:
                yield i, fault
        known = list(encoded)
        for places in groups([encoded[i].kinds for i in known], self.batch, _BATCH_TOKENS):
            group = [known[place] for place in places]
            yield from self._run(group, requests, encoded, begun)
            begun = time.perf_counter()

    def _fits(self, encoded: Encoded) -> CallFailed | None:
        context = self.loaded.checkpoint.context
        if len(encoded.ids) < context:
            return None
        return CallFailed("too-long", f"the prompt has {len(encoded.ids)} tokens, the model's context {context}")

    def _run(
        self, group: list[int], requests: Sequence[Request], encoded: dict[int, Encoded], begun: float
    ) -> Iterator[tuple[int, Completion | CallFailed]]:
        shown, unseen = self._see([picture for i in group for picture in requests[i].pictures])
        rows = []
        for i in group:
            try:
                for picture in requests[i].pictures:
                    if picture.digest in unseen:
                        raise unseen[picture.digest]
                rows.append(self._row(i, requests[i], encoded[i], shown))
            except CallFailed as error:
                yield i, error
        if not rows:
            return
        done: set[int] = set()
        try:
            for row in decode(self.loaded, rows, lambda out: len(out) >= 64 and bool(loop_in(out))):
                done.add(row.index)
                yield row.index, self._reply(row, requests[row.index], time.perf_counter() - begun)
        except CallFailed as error:  # no token continues a pattern: that ends one row; the others are asked again, one by one
            if len(rows) == 1:
                yield rows[0].index, error
                return
            for row in rows:
                if row.index not in done:
                    yield from self._run([row.index], requests, encoded, begun)

    def _row(self, i: int, request: Request, encoded: Encoded, shown: dict[str, torch.Tensor]) -> Row:
        pictures = [shown[picture.digest] for picture in request.pictures]
        room = self.loaded.checkpoint.context - len(encoded.ids)
        return Row(
            index=i,
            ids=encoded.ids,
            kinds=encoded.kinds,
            positions=positions(self.loaded, encoded.ids, encoded.sizes),
            pictures=torch.cat(pictures) if pictures else None,
            limit=min(request.decoding.max_tokens, room),
            choose=self._chooser(request),
            probe=tuple(ids[0] for ids in self._words(request.decoding.probe)) if request.decoding.probe else (),
        )

    def _chooser(self, request: Request) -> Callable[[list[int], torch.Tensor], int] | None:
        d = request.decoding
        pick: Callable[[torch.Tensor], int] = greedy
        if d.temperature > 0:
            # Without a seed the call's own content is one: the same call gives the same reply, alone or in a batch.
            seed = d.seed if d.seed is not None else int(request.key(self.digest)[:15], 16)
            pick = sampler(d.temperature, d.top_p, seed)
        if d.choices is not None:
            return one_of(self._words(d.choices), self._end, pick)
        if d.pattern is not None:
            return matching(d.pattern, self.loaded.tokenizer, self.loaded.eos)
        return (lambda _, logits: pick(logits)) if d.temperature > 0 else None

    def _reply(self, row: Row, request: Request, seconds: float) -> Completion | CallFailed:
        text = self.loaded.tokenizer.decode(row.out, skip_special_tokens=True)
        if not row.stopped and loop_in(text):
            return CallFailed("repetition", f"the reply ends in a loop: …{text[-60:]}")
        return Completion(
            text=text,
            finish="stop" if row.stopped else "length",
            prompt_tokens=len(row.ids),
            output_tokens=len(row.out) + row.stopped,
            seconds=seconds,
            probs=tuple(zip(request.decoding.probe, row.probs, strict=True)),
        )

    def _look(self, requests: Sequence[Request]) -> tuple[list[int], dict[int, CallFailed]]:
        """Which requests' pictures have a readable header; their sizes end up in the cache."""
        bad: dict[int, CallFailed] = {}
        for i, request in enumerate(requests):
            if request.pictures and self.loaded.family == "text":
                bad[i] = CallFailed("no-pictures", f"{self.name} reads text only")
                continue
            for picture in request.pictures:
                if picture.digest in self._sizes:
                    continue
                try:
                    self._sizes[picture.digest] = size_of(self.loaded, *shown_size(picture))
                except CallFailed as error:
                    bad[i] = error
                    break
                except ValueError as error:
                    bad[i] = CallFailed("bad-image", f"{picture.path}: {error}")
                    break
        return [i for i in range(len(requests)) if i not in bad], bad

    def _see(self, pictures: Sequence[Picture]) -> tuple[dict[str, torch.Tensor], dict[str, CallFailed]]:
        """The pictures' tokens, from the cache or the vision tower; and those that cannot be decoded."""
        shown: dict[str, torch.Tensor] = {}
        unseen: dict[str, CallFailed] = {}
        fresh: dict[str, Picture] = {}
        for picture in pictures:
            if picture.digest in self._features:
                self._features.move_to_end(picture.digest)
                shown[picture.digest] = self._features[picture.digest]
            else:
                fresh.setdefault(picture.digest, picture)
        todo = list(fresh.values())
        for at in range(0, len(todo), _PICTURES_AT_ONCE):
            part, images = [], []
            for picture, image in self._open(todo[at : at + _PICTURES_AT_ONCE]):
                if isinstance(image, CallFailed):
                    unseen[picture.digest] = image
                else:
                    part.append(picture)
                    images.append(image)
            if images:
                with torch.inference_mode():
                    for picture, tokens in zip(part, features(self.loaded, images), strict=True):
                        shown[picture.digest] = tokens
                        self._keep(picture.digest, tokens)
        return shown, unseen

    def _open(self, pictures: Sequence[Picture]) -> Iterator[tuple[Picture, Any]]:
        """Each picture with its pixels, or with why it has none. Decoders let go of the interpreter, so threads share the work."""

        def look(picture: Picture) -> Any:
            try:
                return open_rgb(picture)
            except CallFailed as error:
                return error

        with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
            yield from zip(pictures, pool.map(look, pictures), strict=True)

    def _keep(self, digest: str, tokens: torch.Tensor) -> None:
        self._features[digest] = tokens = tokens.clone()  # a view would keep the whole pass alive
        self._held += tokens.nbytes
        while self._held > _FEATURE_BYTES and len(self._features) > 1:
            _, old = self._features.popitem(last=False)
            self._held -= old.nbytes
