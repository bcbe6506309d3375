"""vLLM inside this process, without a port: a `BatchEngine` over `vllm.LLM`. The only file that imports vllm.

For the lock-step driver: one round of all samples is one batch, which vLLM schedules itself. The pictures are decoded here, the same
way as for every engine. Knows no prompts. Try: tests/vllm/test_offline.py, with the environment of scripts/make_vllm_venv.sh
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib.util
import io
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from models import environment
from models.checkpoint import digest
from models.engines import Workload
from models.errors import CallFailed, ConfigError, ModelError
from models.pictures import open_rgb
from models.placement import Placement
from models.planner import Plan
from models.preflight import Misfit, check, require
from models.repetition import loop_in
from models.requests import Completion, Request
from models.shape import Shape, read_shape
from models.vllm_flags import HOST, ServeOptions, picture_budget

_CHUNK = 512  # requests handed to vllm at once: enough to keep it busy, few enough that a kill loses little


class VllmOffline:
    """vLLM's engine on the GPUs of `plan.replicas[0]` (one replica; several belong behind servers).

    Raises ModelError, listing every misfit, when the folder or the options cannot be used, and when vllm is not installed.
    """

    can_constrain = frozenset({"choices", "pattern", "probe"})

    def __init__(self, folder: Path, plan: Plan, options: ServeOptions | None = None, *, work: Workload | None = None) -> None:
        options = options or ServeOptions(folder.name)
        shape, weights = read_shape(folder)
        require(check(folder, shape, weights, options, plan.context, work=work), str(folder))
        self.name, self._options, self._context = options.name, options, plan.context
        seen = [digest(folder, weights.shards), options.min_pixels, options.max_pixels, options.max_tiles, options.extra]
        self.digest = "vllm-offline:" + hashlib.sha256(json.dumps(seen).encode()).hexdigest()
        self._vision = bool(shape.vision_layers)
        self._llm: Any = _llm(folder, shape, plan, options)
        self._tokenizer: Any = self._llm.get_tokenizer()

    def check(self, work: Workload) -> None:
        """Raises ModelError for pictures beyond the limit or without a vision tower, and for replies longer than the context."""
        if work.pictures and not self._vision:
            raise ModelError(f"{self.name} reads text only, and the run shows it pictures", remedy="take a vision-language model")
        if work.pictures > self._options.pictures:
            what = f"calls hold up to {work.pictures} pictures, the engine was made for {self._options.pictures}"
            raise ModelError(what, remedy=f"--pictures {work.pictures}")
        if work.max_tokens >= self._context:
            raise ModelError(f"replies of {work.max_tokens} tokens do not fit a context of {self._context}", remedy="lower max_tokens")

    def stop(self) -> None:
        """Frees the GPUs. The engine cannot be asked again."""
        engine, self._llm = self._llm, None
        with contextlib.suppress(AttributeError):  # where this vllm has no such method, collecting it has to do
            engine.llm_engine.engine_core.shutdown()
        del engine
        gc.collect()

    def complete_batch(self, requests: Sequence[Request]) -> Iterator[tuple[int, Completion | CallFailed]]:
        """(position, reply), chunk by chunk. `seconds` is the chunk's wall clock: inside a batch no call has a time of its own."""
        for start in range(0, len(requests), _CHUNK):
            ready: list[tuple[int, list[dict[str, Any]], Any]] = []
            for i in range(start, min(start + _CHUNK, len(requests))):
                try:
                    ready.append((i, self._messages(requests[i]), self._sampling(requests[i])))
                except CallFailed as error:
                    yield i, error
            begun = time.perf_counter()
            outputs = self._run(ready)
            seconds = time.perf_counter() - begun
            for (i, _, _), output in zip(ready, outputs, strict=True):
                yield i, output if isinstance(output, CallFailed) else self._reply(requests[i], output, seconds)

    def _run(self, ready: list[tuple[int, list[dict[str, Any]], Any]]) -> list[Any]:
        """vllm's outputs; a call that vllm refuses fails alone, found by halving the batch."""
        if not ready:
            return []
        try:
            return list(self._llm.chat([m for _, m, _ in ready], [s for _, _, s in ready], use_tqdm=False))
        except Exception as error:
            if "EngineDead" in type(error).__name__:
                raise ModelError(f"vllm's engine died: {error}", remedy="the same command goes on from here") from None
            if len(ready) == 1:
                said = str(error)
                reason = "too-long" if "max_model_len" in said or "maximum model length" in said or "context length" in said else "refused"
                return [CallFailed(reason, said[:500])]
        half = len(ready) // 2
        return self._run(ready[:half]) + self._run(ready[half:])

    def _messages(self, request: Request) -> list[dict[str, Any]]:
        turns: list[dict[str, Any]] = []
        for message in request.messages:
            if not message.pictures:
                turns.append({"role": message.role, "content": message.text})
                continue
            content: list[dict[str, Any]] = []
            for part in message.parts:
                if isinstance(part, str):
                    content.append({"type": "text", "text": part})
                else:  # the digest as identity: a picture that comes again is not encoded again
                    content.append({"type": "image_pil", "image_pil": open_rgb(part), "uuid": part.digest})
            turns.append({"role": message.role, "content": content})
        return turns

    def _sampling(self, request: Request) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        d = request.decoding
        shaped = None
        if d.choices is not None:
            shaped = StructuredOutputsParams(choice=list(d.choices))
        elif d.pattern is not None:
            shaped = StructuredOutputsParams(regex=d.pattern)
        words = sorted({self._word(word) for word in d.probe})
        return SamplingParams(
            max_tokens=d.max_tokens,
            temperature=d.temperature,
            top_p=d.top_p,
            seed=d.seed,
            structured_outputs=shaped,
            **({"logprobs": len(words), "logprob_token_ids": words} if words else {}),
        )

    def _word(self, word: str) -> int:
        return int(self._tokenizer.encode(word, add_special_tokens=False)[0])

    def _reply(self, request: Request, output: Any, seconds: float) -> Completion | CallFailed:
        first = output.outputs[0]
        cut = first.finish_reason == "length"
        if cut and loop_in(first.text):
            return CallFailed("repetition", f"the reply ends in a loop: …{first.text[-60:]}")
        probs: tuple[tuple[str, float], ...] = ()
        if request.decoding.probe:
            known = first.logprobs[0]
            probs = tuple((word, math.exp(known[self._word(word)].logprob)) for word in request.decoding.probe)
        return Completion(
            first.text,
            "length" if cut else "stop",
            len(output.prompt_token_ids or ()),
            len(first.token_ids),
            output.num_cached_tokens,
            seconds,
            None,
            probs,
        )


def _llm(folder: Path, shape: Shape, plan: Plan, options: ServeOptions) -> Any:
    environment.apply()
    os.environ["VLLM_HOST_IP"] = HOST
    if plan.device == "cpu":
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(max(1, plan.cache_bytes // 2**30))
    try:
        from vllm import LLM
    except ImportError as error:
        raise ModelError(f"vllm cannot be imported: {error}", remedy="run it in an environment of the vllm extra") from None
    more: dict[str, Any] = {"enforce_eager": True} if plan.device == "cpu" else {"gpu_memory_utilization": plan.utilisation}
    if plan.tensor_parallel > 1:
        more |= {"tensor_parallel_size": plan.tensor_parallel, "mm_encoder_tp_mode": "data"}
    if shape.vision_layers:
        more |= {"limit_mm_per_prompt": {"image": options.pictures, "video": 0}}
    budget = picture_budget(shape, options)
    if budget:
        more["mm_processor_kwargs"] = budget
    chosen: dict[str, Any] = {
        "model": str(folder),
        "max_model_len": plan.context,
        "max_num_seqs": options.sequences,
        "enable_prefix_caching": True,
        "generation_config": "vllm",
        "trust_remote_code": options.own_code,
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        "disable_log_stats": True,
        **more,
        **_given(options.extra),
    }
    return LLM(**chosen)


def _given(extra: Sequence[str]) -> dict[str, Any]:
    """``--vllm-args`` as arguments of the engine: what differs from vllm's own defaults. Raises ConfigError."""
    if not extra:
        return {}
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            given = vars(parser.parse_args(list(extra)))
    except SystemExit:
        remedy = "the offline engine takes vllm's engine flags, not those of its HTTP server"
        raise ConfigError(f"--vllm-args: {said.getvalue().strip().splitlines()[-1]}", remedy=remedy) from None
    plain = vars(parser.parse_args([]))
    return {name: value for name, value in given.items() if value != plain[name]}


def prepared(folder: Path, where: Placement | None = None, options: ServeOptions | None = None, *, work: Workload | None = None) -> Plan:
    """The plan of one replica over all of `where.gpus`; loads nothing. Raises ModelError listing every misfit, a missing vllm too."""
    from models.fleet import prepare

    options, where = options or ServeOptions(folder.name), where or Placement()
    if where.device == "cuda" and where.gpus > 1 and where.tensor_parallel is None:
        where = replace(where, tensor_parallel=where.gpus)
    _, chosen, misfits = prepare(folder, where, options, work=work)
    if importlib.util.find_spec("vllm") is None:
        misfits.append(Misfit("this Python has no vllm", "run it in an environment of the vllm extra (make setup GPU=1), or --engine vllm"))
    require(misfits, str(folder))
    return chosen


def offline(
    folder: Path, where: Placement | None = None, options: ServeOptions | None = None, *, work: Workload | None = None
) -> VllmOffline:
    """The engine on `where.gpus` GPUs, planned as one replica over all of them. Raises ModelError listing every misfit."""
    return VllmOffline(folder, prepared(folder, where, options, work=work), options, work=work)
