"""A profile on paper: a table for people, JSON lines for scripts, a plot (SVG). Knows levels and bounds, measures nothing.

Try: python -m models profile --replay RUN --url URL --model NAME --out profile/
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from models.profile import PAPER, Level, Questions, Row, quantile, questions, rows
from models.radix import Bound
from models.roofline import Least


def lines(
    levels: Sequence[Level], bounds: Mapping[str, Bound] | None = None, least: Mapping[int, Least] | None = None
) -> list[dict[str, Any]]:
    """One mapping a measured thing, `kind` first: level, calls, questions, prefix bound, hardware bound. Ready for JSON lines."""
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
                "server": dict(watched.counters),
                "prefix_hit_share": watched.share("prefix_hits", "prefix_queries"),
                "media_hit_share": watched.share("media_hits", "media_queries"),
                "queue_seconds_mean": watched.share("queue_seconds", "queued"),
                "kv_use_max": max((s.gauges.get("kv_use", 0.0) for s in watched.samples), default=None),
                "gpu_busy_mean": _busy(level),
                "joules": watched.joules,
            }
        )
    found += [{"kind": "calls", **asdict(row)} for row in rows(levels)]
    found += [{"kind": "questions", **asdict(row)} for row in questions(levels)]
    for name, bound in (bounds or {}).items():
        found.append(
            {"kind": "prefix bound", "what": name, "prompt_tokens": bound.prompt_tokens, "served": bound.served, "share": bound.share}
        )
    for concurrency, seconds in (least or {}).items():
        found.append({"kind": "hardware bound", "concurrency": concurrency, "prefill": seconds.prefill, "decode": seconds.decode})
    return found


def _busy(level: Level) -> float | None:
    seen = [one.busy for sample in level.watched.samples for one in sample.gpus]
    return sum(seen) / len(seen) if seen else None


def table(levels: Sequence[Level], bounds: Mapping[str, Bound] | None = None, least: Mapping[int, Least] | None = None) -> str:
    """The report as text. What was not measured is a dash, never a zero."""
    if not levels:
        return "nothing was measured"
    out = [f"cache: {levels[0].cache}", ""]
    head = ("in flight", "calls/s", "tokens/s", "seconds", "failed", "prefix hits", "media hits", "queue s", "KV use", "GPU busy", "J")
    body = []
    for concurrency in sorted({level.concurrency for level in levels}):
        passes = [level for level in levels if level.concurrency == concurrency]
        rates = [level.calls_per_second for level in passes]
        watched = passes[0].watched
        use = max((s.gauges.get("kv_use", 0.0) for level in passes for s in level.watched.samples), default=None)
        body.append(
            (
                str(concurrency),
                f"{quantile(rates, 0.5):.1f} ({min(rates):.1f}–{max(rates):.1f})",
                f"{quantile([level.tokens_per_second for level in passes], 0.5):.0f}",
                f"{quantile([level.seconds for level in passes], 0.5):.1f}",
                str(sum(len(level.records) - len(level.completions) for level in passes)),
                _share(watched.share("prefix_hits", "prefix_queries")),
                _share(watched.share("media_hits", "media_queries")),
                _number(watched.share("queue_seconds", "queued"), ".3f"),
                _share(use),
                _share(_busy(passes[0])),
                _number(watched.joules, ".0f"),
            )
        )
    out += [_grid(head, body), ""]
    best = max(levels, key=lambda level: level.calls_per_second).concurrency
    for concurrency in sorted({1 if any(level.concurrency == 1 for level in levels) else best, best}):
        out += [f"calls at {concurrency} in flight (seconds: p50 / p90 / p99)", _calls(rows(levels), concurrency), ""]
    out += ["questions (seconds and calls: p50 / p90 / p99; stretch: wall ÷ critical path)", _questions(questions(levels)), ""]
    if bounds:
        parts = [f"{name} {bound.share:.3f} of {bound.prompt_tokens:,} tokens" for name, bound in bounds.items()]
        out += ["share of the prompt tokens that a prefix cache could serve: " + "; ".join(parts), ""]
        done = [reply.cached_tokens for level in levels for _, reply in level.completions if reply.cached_tokens is not None]
        sent = sum(reply.prompt_tokens or 0 for level in levels for _, reply in level.completions)
        if done and sent:
            out += [f"share that the server did serve: {sum(done) / sent:.3f}", ""]
    for concurrency, seconds in (least or {}).items():
        wall = quantile([level.seconds for level in levels if level.concurrency == concurrency], 0.5)
        said = f"prefill {seconds.prefill:.2f} s, decode {seconds.decode:.2f} s; measured {wall:.2f} s"
        out.append(f"hardware bound at {concurrency} in flight: {said}")
    return "\n".join(out).rstrip() + "\n"


def _calls(found: Sequence[Row], concurrency: int) -> str:
    head = ("role", "stage", "round", "calls", "failed", "pictures", "prompt", "cached", "output", "first token", "inter-token", "total")
    body = [
        (
            row.role,
            row.stage,
            str(row.round),
            str(row.calls),
            str(row.failed),
            f"{row.pictures:.1f}",
            f"{row.prompt_tokens:.0f}",
            _share(row.cached_share),
            f"{row.output_tokens:.0f}",
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


def plot(levels: Sequence[Level]) -> str:
    """Calls a second over concurrency (log scale) as an SVG: every pass a dot, the medians a line. Plain text, so no library is needed."""
    width, height, left, bottom = 560, 320, 60, 40
    concurrencies = sorted({level.concurrency for level in levels})
    top = max((level.calls_per_second for level in levels), default=1.0) * 1.1 or 1.0

    def x(concurrency: int) -> float:
        return left + (width - left - 20) * concurrencies.index(concurrency) / max(1, len(concurrencies) - 1)

    def y(rate: float) -> float:
        return height - bottom - (height - bottom - 20) * rate / top

    medians = {c: quantile([level.calls_per_second for level in levels if level.concurrency == c], 0.5) for c in concurrencies}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<path d="M{left} 20V{height - bottom}H{width - 20}" fill="none" stroke="black"/>',
        f'<text x="{(width + left) / 2}" y="{height - 8}" text-anchor="middle">calls in flight</text>',
        f'<text x="{left}" y="14">calls per second</text>',
    ]
    for i in range(5):
        rate = top * i / 4
        parts.append(f'<text x="{left - 6}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate:.3g}</text>')
    for c in concurrencies:
        parts.append(f'<text x="{x(c):.1f}" y="{height - bottom + 16}" text-anchor="middle">{c}</text>')
    points = " ".join(f"{x(c):.1f},{y(rate):.1f}" for c, rate in medians.items())
    parts.append(f'<polyline points="{points}" fill="none" stroke="#1f77b4" stroke-width="2"/>')
    for level in levels:
        parts.append(f'<circle cx="{x(level.concurrency):.1f}" cy="{y(level.calls_per_second):.1f}" r="3" fill="#1f77b4" opacity="0.6"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def write(folder: Path, levels: Sequence[Level], text: str, records: Sequence[Mapping[str, Any]]) -> None:
    """profile.txt, profile.jsonl, throughput.svg and timeline.json (of the fastest pass) in `folder`."""
    from models import timeline

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "profile.txt").write_text(text, encoding="utf-8")
    (folder / "profile.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records), encoding="utf-8")
    if levels:
        (folder / "throughput.svg").write_text(plot(levels), encoding="utf-8")
        best = max(levels, key=lambda level: level.calls_per_second)
        timeline.write(folder / "timeline.json", best.records, best.uses, best.watched.samples)
