"""A profile as pictures: throughput and latency over concurrency, as SVG written by hand (a plotting library lives in bench alone).

Try: python -m models profile --replay RUN ..., then open throughput.svg
"""

from __future__ import annotations

from collections.abc import Sequence

from models.profile import Level, quantile

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 560, 320, 60, 40
_COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728")
Series = tuple[str, dict[int, float], list[tuple[int, float]]]  # name, the line, single dots; x is a concurrency


def throughput(levels: Sequence[Level]) -> str:
    """Calls a second: every pass a dot, the medians a line."""
    rates: dict[int, list[float]] = {}
    for level in levels:
        rates.setdefault(level.concurrency, []).append(level.calls_per_second)
    dots = [(level.concurrency, level.calls_per_second) for level in levels]
    return _plot("calls per second", [("", {c: quantile(found, 0.5) for c, found in rates.items()}, dots)])


def latency(levels: Sequence[Level]) -> str:
    """Seconds of a call (p50, p90, p99), and of a question (p50) with its critical path."""
    calls: dict[int, list[float]] = {}
    walls: dict[int, list[float]] = {}
    paths: dict[int, list[float]] = {}
    for level in levels:
        calls.setdefault(level.concurrency, []).extend(reply.seconds for _, reply in level.completions)
        good = [outcome for outcome in level.outcomes.values() if outcome.ok]
        walls.setdefault(level.concurrency, []).extend(outcome.seconds for outcome in good)
        paths.setdefault(level.concurrency, []).extend(outcome.critical_seconds for outcome in good)
    lines: list[Series] = [(f"call p{q:.0%}"[:-1], {c: quantile(found, q) for c, found in calls.items()}, []) for q in (0.5, 0.99)]
    lines.append(("question p50", {c: quantile(found, 0.5) for c, found in walls.items()}, []))
    lines.append(("its critical path", {c: quantile(found, 0.5) for c, found in paths.items()}, []))
    return _plot("seconds", lines)


def _plot(title: str, series: Sequence[Series]) -> str:
    concurrencies = sorted({c for _, line, _ in series for c in line})
    values = [value for _, line, dots in series for value in (*line.values(), *(v for _, v in dots))]
    top = max(values, default=1.0) * 1.1 or 1.0

    def x(concurrency: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - 20) * concurrencies.index(concurrency) / max(1, len(concurrencies) - 1)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - 20) * value / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<path d="M{_LEFT} 20V{_HEIGHT - _BOTTOM}H{_WIDTH - 20}" fill="none" stroke="black"/>',
        f'<text x="{(_WIDTH + _LEFT) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">calls in flight</text>',
        f'<text x="{_LEFT}" y="14">{title}</text>',
    ]
    parts += [f'<text x="{_LEFT - 6}" y="{y(top * i / 4) + 4:.1f}" text-anchor="end">{top * i / 4:.3g}</text>' for i in range(5)]
    parts += [f'<text x="{x(c):.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{c}</text>' for c in concurrencies]
    for i, (name, line, dots) in enumerate(series):
        colour = _COLOURS[i % len(_COLOURS)]
        points = " ".join(f"{x(c):.1f},{y(value):.1f}" for c, value in sorted(line.items()))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(c):.1f}" cy="{y(v):.1f}" r="3" fill="{colour}" opacity="0.6"/>' for c, v in dots]
        if name:
            parts.append(f'<text x="{_LEFT + 10}" y="{34 + 15 * i}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
