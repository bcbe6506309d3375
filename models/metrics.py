"""A server's /metrics: read as Prometheus text, watched while something runs, joined by time. Also what the GPUs do meanwhile.

Try: python -c "from models.metrics import parse; print(parse('vllm:num_preemptions_total{engine=\\"0\\"} 3'))"
"""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from models import gpus

# name in the report → the counter of vLLM that it comes from (sums over engines and labels)
COUNTERS = {
    "prefix_queries": "vllm:prefix_cache_queries_total",
    "prefix_hits": "vllm:prefix_cache_hits_total",
    "media_queries": "vllm:mm_cache_queries_total",
    "media_hits": "vllm:mm_cache_hits_total",
    "preemptions": "vllm:num_preemptions_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "queue_seconds": "vllm:request_queue_time_seconds_sum",
    "queued": "vllm:request_queue_time_seconds_count",
    "prefill_seconds": "vllm:request_prefill_time_seconds_sum",
    "decode_seconds": "vllm:request_decode_time_seconds_sum",
}
GAUGES = {"kv_use": "vllm:kv_cache_usage_perc", "running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting"}
_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{.*\})?\s+([-+]?(?:\d[\d.eE+-]*|Inf|NaN))(?:\s+\d+)?$")


def parse(text: str) -> dict[str, float]:
    """Metric name → sum over its label sets. Lines that are no metric are skipped."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            found[match[1]] = found.get(match[1], 0.0) + float(match[2].replace("Inf", "inf"))
    return found


_BLOCK = re.compile(r'^vllm:cache_config_info\{[^}]*\bblock_size="(\d+)"', re.M)


def block_in(text: str) -> int | None:
    """The prefix cache's block in tokens, as vLLM tells it among its metrics; None where it does not."""
    found = _BLOCK.search(text)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class Sample:
    """One reading: seconds since the epoch, gauges summed over servers (kv_use: the fullest), GPU readings."""

    at: float
    gauges: Mapping[str, float]
    gpus: tuple[gpus.Use, ...] = ()


@dataclass
class Watched:
    """What was seen between start and stop. `counters` are differences; empty where no server has /metrics."""

    counters: dict[str, float] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)

    def share(self, hits: str, queries: str) -> float | None:
        asked = self.counters.get(queries, 0.0)
        return self.counters.get(hits, 0.0) / asked if asked else None

    @property
    def joules(self) -> float | None:
        """Energy of all GPUs by the trapezium rule; None where none tells."""
        points = [(s.at, sum(one.watts for one in s.gpus)) for s in self.samples if s.gpus]
        if len(points) < 2 or not any(watts for _, watts in points):
            return None
        return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))


class Watch:
    """Reads the servers' /metrics at the start, at the end and every `seconds` between; a context manager.

    `urls` are base addresses (``http://host:port/v1``). A server without /metrics is skipped in silence: other servers have none.
    """

    def __init__(self, urls: Sequence[str], key: str = "", seconds: float = 0.5) -> None:
        self._urls = [url.removesuffix("/").removesuffix("/v1") + "/metrics" for url in urls]
        self._key, self._seconds = key, seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._before: dict[str, float] = {}
        self.seen = Watched()

    def read(self) -> list[dict[str, float]]:
        return [parse(text) for text in self.texts()]

    def texts(self) -> list[str]:
        """What each server that has /metrics says."""
        found = []
        for url in self._urls:
            request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self._key}"} if self._key else {})
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    found.append(answer.read().decode("utf-8", "replace"))
            except (OSError, ValueError):
                continue
        return found

    def _counters(self) -> dict[str, float]:
        rows = self.read()
        return {name: sum(row.get(metric, 0.0) for row in rows) for name, metric in COUNTERS.items()} if rows else {}

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            rows = self.read()
            gauges: dict[str, float] = {}
            for name, metric in GAUGES.items():
                values = [row[metric] for row in rows if metric in row]
                if values:
                    gauges[name] = max(values) if name == "kv_use" else sum(values)
            self.seen.samples.append(Sample(time.time(), gauges, tuple(gpus.use())))

    def __enter__(self) -> Watched:
        self._before = self._counters()
        self._thread.start()
        return self.seen

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        after = self._counters()
        self.seen.counters = {name: value - self._before.get(name, 0.0) for name, value in after.items()}
