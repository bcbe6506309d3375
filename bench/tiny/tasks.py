"""All tasks of the tiny model in one table: the knowledge graph's agents (samples.py) and CUE-M's stages (cuem_samples.py).

Try: python -c "from bench.tiny.tasks import source; print(next(source('intent', 1)).request.text)"
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.tiny import cuem_samples, samples
from bench.tiny.samples import Sample
from bench.world.lexicon import Split

GRAPH_TASKS = tuple(samples.TASKS)
CUEM_TASKS = tuple(cuem_samples.TASKS)
TASKS = (*GRAPH_TASKS, *CUEM_TASKS)


def source(task: str, seed: int, split: Split = "train") -> Iterator[Sample]:
    """Endless samples of one task."""
    if task in cuem_samples.TASKS:
        return cuem_samples.stream(seed, {task: 1.0}, split)
    return samples.stream(seed, {task: 1.0}, split)
