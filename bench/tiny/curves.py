"""Training curves as one SVG from a joint training's log.jsonl: loss and share of sure replies by task over tokens, learning rate, speed.

A task is drawn from where it entered the mix. Lines are averaged over a few reports, so that they can be read; the log itself stays as it
is. A last line that a kill tore off is left out, and
reports that a resumed training made again. Knows no model.

    python -m bench.tiny.curves .cache/tiny/qwen2.5-vl/log.jsonl docs/tiny-curves.svg
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from bench.figures import COLOURS, svg
from models.errors import ConfigError, UserError
from models.files import replace

STYLES: Final = ("-", "--", ":")
POINTS: Final = 80  # of a line, at most: reports beyond that are averaged together
Points = tuple[list[float], list[float]]  # millions of tokens, values


@dataclass(frozen=True)
class Log:
    """The reports of a training, oldest first; keys as bench/tiny/train.py writes them."""

    lines: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Log:
        """Raises ConfigError for a file that is missing, no log, or damaged elsewhere than at its end."""
        try:
            raw = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be read: {error}", where=str(path), remedy="give the log.jsonl of a joint training") from None
        lines: list[dict[str, Any]] = []
        for number, text in enumerate(raw[:-1], 1):  # what has no line end was torn off
            try:
                line = json.loads(text)
                report = {**{key: float(line[key]) for key in ("step", "tokens", "tokens_per_s")}, **_rest(line)}
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ConfigError(f"line {number} is no report of a training: {error!r}", where=str(path)) from None
            while lines and lines[-1]["step"] >= report["step"]:  # done again after a kill
                lines.pop()
            lines.append(report)
        if not lines:
            raise ConfigError("holds no report yet", where=str(path), remedy="train some 25 steps first: make train-tiny")
        return cls(lines)

    @property
    def tasks(self) -> list[str]:
        return sorted({task for line in self.lines for task in line["tasks"]})

    def of_task(self, task: str, what: str) -> Points:
        """`what` of one task, weighted by its samples."""
        found = [(line["tokens"], line["tasks"][task][what], line["tasks"][task]["n"]) for line in self.lines if task in line["tasks"]]
        return _thinned(found)

    def of(self, key: str) -> Points:
        """A figure of the whole training; empty where the log does not tell it."""
        return _thinned([(line["tokens"], line[key], 1) for line in self.lines if line[key] is not None])


def _rest(line: Mapping[str, Any]) -> dict[str, Any]:
    tasks = {task: {key: float(one[key]) for key in ("loss", "sure", "n")} for task, one in line["tasks"].items()}
    return {"tasks": tasks, "lr": None if line.get("lr") is None else float(line["lr"])}


def _thinned(found: Sequence[tuple[float, float, float]]) -> Points:
    """(tokens, value, weight) → means of neighbours, at most POINTS of them."""
    each = -(-len(found) // POINTS) or 1
    groups = [found[at : at + each] for at in range(0, len(found), each)]
    weights = [sum(w for *_, w in group) for group in groups]
    x = [sum(tokens for tokens, *_ in group) / len(group) / 1e6 for group in groups]
    return x, [sum(v * w for _, v, w in group) / weight for group, weight in zip(groups, weights, strict=True)]


def curves(log: Log) -> str:
    """The figure as SVG."""
    tasks = log.tasks
    looks = list(islice(((colour, style) for style in cycle(STYLES) for colour in COLOURS), len(tasks)))

    def by_task(what: str) -> Callable[[Any], None]:
        def paint(axes: Any) -> None:
            for task, (colour, style) in zip(tasks, looks, strict=True):
                axes.plot(*log.of_task(task, what), style, color=colour, linewidth=1.2, label=task)

        return paint

    def paint(figure: Any) -> None:
        (loss, sure), (rate, speed) = figure.subplots(2, 2, sharex=True, height_ratios=(3, 1))
        by_task("loss")(loss)
        loss.set(yscale="log", ylabel="loss of a reply's token")
        by_task("sure")(sure)
        sure.set(ylim=(0, 1.02), ylabel="replies whose every token has P > 0.5")
        rate.plot(*log.of("lr"), color="0.2", linewidth=1.2)
        rate.set(ylabel="learning rate", xlabel="million tokens (padded)")
        if not log.of("lr")[0]:
            rate.set_yticks([])
            rate.text(0.5, 0.5, "not in this log", ha="center", va="center", transform=rate.transAxes, color="0.5")
        speed.plot(*log.of("tokens_per_s"), color="0.2", linewidth=1.2)
        speed.set(ylabel="tokens a second", xlabel="million tokens (padded)", ylim=(0, None))
        for axes in (loss, sure, rate, speed):
            axes.spines[["top", "right"]].set_visible(False)
        figure.legend(*loss.get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False, fontsize="small")

    return svg(paint, (10, 7))


def write(log: Path, out: Path) -> None:
    """curves.svg of a log. Raises ConfigError."""
    replace(out, curves(Log.read(log)))


if __name__ == "__main__":
    try:
        write(Path(sys.argv[1]), Path(sys.argv[2]))
    except IndexError:
        sys.exit("usage: python -m bench.tiny.curves LOG.jsonl OUT.svg")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
