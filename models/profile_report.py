"""A profile on paper: a table for people, JSON lines for scripts, a plot (SVG). Knows levels and bounds, measures nothing.

Try: python -m models profile --replay RUN --url URL --model NAME --out profile/
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from models.profile import PAPER, Level, Questions, Row, quantile, questions, rows
from models.profile_tokens import Prefix
from models.roofline import Least


@dataclass(frozen=True)
class Beside:
    """What stands beside the measured figures, as far as it is known: prefix bounds of each pass, tokens of pictures by call, the
    hardware's bound of each concurrency."""

    prefixes: Sequence[Prefix] = ()
    images: Mapping[str, int] = field(default_factory=dict)
    least: Mapping[int, Least] = field(default_factory=dict)


NOTHING = Beside()


def lines(levels: Sequence[Level], beside: Beside = NOTHING) -> list[dict[str, Any]]:
    """One mapping a measured thing, `kind` first: level, server, calls, questions, prefix bound, hardware bound. Ready for JSON lines."""
    found: list[dict[str, Any]] = []
    for level in levels:
        watched = level.watched
        found.append(
            {
                "kind": "level",
                "concurrency": level.concurrency,
                "repetition": level.repetition,
                "cache": level.cache,
                "seconds": level.seconds,
                "calls": len(level.records),
                "failed": len(level.records) - len(level.completions),
                "calls_per_second": level.calls_per_second,
                "output_tokens_per_second": level.tokens_per_second,
                "prompt_tokens_per_second": prompt_rate(level),
                "server": dict(watched.counters),
                "prefix_hit_share": watched.share("prefix_hits", "prefix_queries"),
                "media_hit_share": watched.share("media_hits", "media_queries"),
                "queue_seconds_mean": watched.share("queue_seconds", "queued"),
                "kv_use_max": max((s.gauges["kv_use"] for s in watched.samples if "kv_use" in s.gauges), default=None),
                "gpu_busy_mean": _busy(level),
                "joules": watched.joules,
            }
        )
        for sample in watched.samples:
            at = sample.at - level.begun
            of_gpus = [asdict(one) for one in sample.gpus]
            found.append({"kind": "server", "concurrency": level.concurrency, "repetition": level.repetition, "at": at}
                         | dict(sample.gauges) | ({"gpus": of_gpus} if of_gpus else {}))  # fmt: skip
    found += [{"kind": "calls", **asdict(row)} for row in rows(levels, beside.images)]
    found += [{"kind": "questions", **asdict(row)} for row in questions(levels)]
    found += [{"kind": "prefix bound", **asdict(one), "reached": one.reached} for one in beside.prefixes]
    for concurrency, seconds in beside.least.items():
        found.append({"kind": "hardware bound", "concurrency": concurrency, "prefill": seconds.prefill, "decode": seconds.decode})
    return found


def _busy(level: Level) -> float | None:
    seen = [one.busy for sample in level.watched.samples for one in sample.gpus]
    return sum(seen) / len(seen) if seen else None


def prompt_rate(level: Level) -> float:
    """Prompt tokens a second, cached ones among them."""
    return sum(reply.prompt_tokens or 0 for _, reply in level.completions) / level.seconds if level.seconds else 0.0


def table(levels: Sequence[Level], beside: Beside = NOTHING) -> str:
    """The report as text. What was not measured is a dash, never a zero."""
    if not levels:
        return "nothing was measured"
    out = [f"cache: {levels[0].cache}", ""]
    head = (
        "in flight", "calls/s", "tokens out/s", "in/s", "seconds", "failed", "prefix hits", "media hits", "queue s", "KV use",
        "preempted", "GPU busy", "J",
    )  # fmt: skip
    body = []
    for concurrency in sorted({level.concurrency for level in levels}):
        passes = [level for level in levels if level.concurrency == concurrency]
        rates = [level.calls_per_second for level in passes]
        watched = passes[0].watched
        use = max((s.gauges["kv_use"] for level in passes for s in level.watched.samples if "kv_use" in s.gauges), default=None)
        body.append(
            (
                str(concurrency),
                f"{quantile(rates, 0.5):.1f} ({min(rates):.1f}–{max(rates):.1f})",
                f"{quantile([level.tokens_per_second for level in passes], 0.5):.0f}",
                f"{quantile([prompt_rate(level) for level in passes], 0.5):.0f}",
                f"{quantile([level.seconds for level in passes], 0.5):.1f}",
                str(sum(len(level.records) - len(level.completions) for level in passes)),
                _share(watched.share("prefix_hits", "prefix_queries")),
                _share(watched.share("media_hits", "media_queries")),
                _number(watched.share("queue_seconds", "queued"), ".3f"),
                _share(use),
                _number(watched.counters.get("preemptions"), ".0f"),
                _share(_busy(passes[0])),
                _number(watched.joules, ".0f"),
            )
        )
    out += [_grid(head, body), ""]
    best = max(levels, key=lambda level: level.calls_per_second).concurrency
    for concurrency in sorted({1 if any(level.concurrency == 1 for level in levels) else best, best}):
        out += [f"calls at {concurrency} in flight (seconds: p50 / p90 / p99)", _calls(rows(levels, beside.images), concurrency), ""]
    out += ["questions (seconds and calls: p50 / p90 / p99; stretch: wall ÷ critical path)", _questions(questions(levels)), ""]
    if beside.prefixes:
        out += [
            "prompt tokens that a prefix cache can serve, and did (reached: served ÷ what whole blocks allow)",
            _prefixes(beside.prefixes),
            "",
        ]
    for concurrency, seconds in beside.least.items():
        wall = quantile([level.seconds for level in levels if level.concurrency == concurrency], 0.5)
        said = f"prefill {seconds.prefill:.2f} s, decode {seconds.decode:.2f} s; measured {wall:.2f} s"
        out.append(f"hardware bound at {concurrency} in flight: {said}")
    return "\n".join(out).rstrip() + "\n"


def _prefixes(found: Sequence[Prefix]) -> str:
    head = ("in flight", "pass", "prompt tokens", "perfect", "blocks of", "in blocks", "served", "reached")
    body = [
        (
            str(one.concurrency),
            str(one.repetition + 1),
            f"{one.prompt:,}",
            f"{one.perfect / one.prompt:.3f}",
            str(one.block),
            f"{one.blocks / one.prompt:.3f}",
            "–" if one.served is None else f"{one.served / one.prompt:.3f}",
            _share(one.reached),
        )
        for one in found
    ]
    return _grid(head, body)


def _calls(found: Sequence[Row], concurrency: int) -> str:
    head = (
        "role", "stage", "round", "calls", "failed", "pictures", "text", "image", "cached", "output", "queue", "first token", "inter-token",
        "total",
    )  # fmt: skip
    body = [
        (
            row.role,
            row.stage,
            str(row.round),
            str(row.calls),
            str(row.failed),
            f"{row.pictures:.1f}",
            f"{row.prompt_tokens - (row.image_tokens or 0.0):.0f}" if row.image_tokens is not None or not row.pictures else "–",
            f"{row.image_tokens:.0f}" if row.image_tokens is not None else "–" if row.pictures else "0",
            _share(row.cached_share),
            f"{row.output_tokens:.0f}",
            _triple(row.queue),
            _triple(row.first_token),
            _triple(row.inter_token, 4),
            _triple(row.total),
        )
        for row in found
        if row.concurrency == concurrency
    ]
    return _grid(head, body)


def _questions(found: Sequence[Questions]) -> str:
    head = ("in flight", "questions", "failed", "wall", "calls", "critical path", "stretch", "Table 18: s", "calls", "s a call")
    body = [
        (
            str(row.concurrency),
            str(row.questions),
            str(row.failed),
            _triple(row.wall),
            _triple(row.calls, 0),
            _triple(row.critical),
            f"{row.stretch:.2f}",
            *("{:.2f} ± {:.2f}".format(*pair) for pair in (row.seconds_mean_sd, row.calls_mean_sd, row.call_seconds_mean_sd)),
        )
        for row in found
    ]
    for name, triple in PAPER.items():
        body.append(("paper", name, "–", "–", "–", "–", "–", *("{:.2f} ± {:.2f}".format(*pair) for pair in triple)))
    return _grid(head, body)


def _triple(values: Sequence[float], digits: int = 3) -> str:
    return " / ".join(f"{value:.{digits}f}" for value in values) if values else "–"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _grid(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    rule = "  ".join("─" * width for width in widths)
    text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [head, *body]]
    return "\n".join([text[0], rule, *text[1:]])


def write(folder: Path, levels: Sequence[Level], text: str, records: Sequence[Mapping[str, Any]]) -> None:
    """profile.txt, profile.jsonl, throughput.svg, latency.svg and timeline.json (of the fastest pass) in `folder`."""
    from models import profile_plots, timeline

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "profile.txt").write_text(text, encoding="utf-8")
    (folder / "profile.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records), encoding="utf-8")
    if levels:
        (folder / "throughput.svg").write_text(profile_plots.throughput(levels), encoding="utf-8")
        (folder / "latency.svg").write_text(profile_plots.latency(levels), encoding="utf-8")
        best = max(levels, key=lambda level: level.calls_per_second)
        timeline.write(folder / "timeline.json", best.records, best.uses, best.watched.samples)
