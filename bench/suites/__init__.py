"""The suites beside MH-MMKG's six settings, as rows: a name (SUITE=…), what it is for, and the module that runs it.

A module has `add_arguments(parser)` and `run(arguments) -> exit code`; it is imported when its row is chosen. A suite whose folder
`python -m bench report` can report again also has `report(folder, judge) -> summary`, which also prints it. Try: python -m bench --help
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple


class Suite(NamedTuple):
    """A row: one line for the help, and the module."""

    help: str
    module: str

    def load(self) -> Any:
        return importlib.import_module(self.module)


SUITES: Mapping[str, Suite] = {
    "cuem": Suite("the six rows of CUE-M's ablation table on a question set (the sample world's by default)", "bench.suites.cuem"),
    "evqa": Suite("Encyclopedic-VQA's single-hop questions through the CUE-M flow", "bench.suites.evqa"),
    "mmsafety": Suite("MM-SafetyBench, jailbreaks in retrieval, and harmless questions", "bench.suites.mmsafety"),
    "injections": Suite("orders hidden in the evidence: are they obeyed, do right answers stay", "bench.suites.injections"),
    "relevance": Suite("BM25, dense, fused, and each re-ranked, on a judged collection", "bench.suites.relevance"),
    "refine": Suite("sort a raw question set by four domains, upvotes and a chosen answer", "bench.suites.refine"),
}
