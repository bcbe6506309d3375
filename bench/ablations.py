"""The paper's ablations as one grid of rows (Tables 5, 17, 19; Figures 4, 6a, 6b): one run, one journal, equal calls asked once.

A row is a setting with changed options; the table below says which. Knows no engine. Try: python -m bench ablations --help
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

from bench.config import Backend, RunConfig, from_arguments
from bench.config import add_arguments as add_options
from bench.rows import Row, row
from bench.settings import SETTINGS
from models.errors import ConfigError

K_CURVE = range(1, 9)  # Figure 6a
BFS_DFS_K = 3  # Figure 6b uses three paths
SWAPPED = ("summarizer", "validator")  # Table 19


def _plain(config: RunConfig, setting: str) -> list[Row]:
    return [row(config, setting)]


def _k(config: RunConfig, setting: str) -> list[Row]:
    return [row(config, setting, f"{setting} k={k}", k=k) for k in K_CURVE]


def _order(config: RunConfig, setting: str) -> list[Row]:
    return [row(config, setting, f"{setting} order={order}", order=order, k=BFS_DFS_K) for order in ("bfs", "dfs")]


def _wording(config: RunConfig, setting: str) -> list[Row]:
    switches = [(name, extra) for name in (False, True) for extra in (False, True)]
    return [row(config, setting, f"{setting} name={n} extra={e}".lower(), ask_name=n, ask_extra=e) for n, e in switches]


def _keyframes(config: RunConfig, setting: str) -> list[Row]:
    if not SETTINGS[setting].needs_query_media:
        return []
    return [row(config, setting, f"{setting} keyframes={how}", keyframes=how) for how in ("human", "equal")]


def _roles(config: RunConfig, setting: str) -> list[Row]:
    """Each backend in `roles` that is not the judge's answers one of the two roles of Table 19, all others stay."""
    others = list(dict.fromkeys(backend for role, backend in config.roles.items() if role != "judge"))
    base = config.model_copy(update={"roles": {}})
    return [_swapped(base, setting, role, backend) for backend in others for role in SWAPPED]


def _swapped(config: RunConfig, setting: str, role: str, backend: Backend) -> Row:
    return row(config, setting, f"{setting} {role}={backend.model}", roles={role: backend.model_dump()})


PARTS: Mapping[str, tuple[str, Callable[[RunConfig, str], list[Row]]]] = {
    "plain": ("every setting as it is, told apart by sub-task (Figure 4)", _plain),
    "k": ("number of paths that the answer is given, 1 to 8 (Figure 6a)", _k),
    "order": ("breadth or depth first with three paths (Figure 6b)", _order),
    "wording": ("with and without the root's name and the additional information (Table 17)", _wording),
    "keyframes": ("chosen frames or evenly spaced ones (Table 5)", _keyframes),
    "roles": ("another model as summarizer or validator (Table 19): name it with --set roles.validator=MODEL", _roles),
}


def grid(config: RunConfig, parts: Sequence[str]) -> tuple[Row, ...]:
    """The rows of these parts, for every setting that searches (plain: for each). Raises ConfigError for an unknown part."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise ConfigError(f"unknown ablation {unknown[0]!r}", remedy=f"parts: {', '.join(PARTS)}")
    searching = [name for name in config.settings if SETTINGS[name].knowledge == "search"]
    if not searching:
        names = ", ".join(name for name, setting in SETTINGS.items() if setting.knowledge == "search")
        raise ConfigError("no setting that searches is asked for, and only those have ablations", remedy=f"--settings of {names}")
    asked = {part: config.settings if part == "plain" else searching for part in parts}
    rows = [made for setting in config.settings for part in parts if setting in asked[part] for made in PARTS[part][1](config, setting)]
    if not rows:
        raise ConfigError("the ablations asked for make no row", remedy="see python -m bench ablations --help")
    return tuple(rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Every option of a run, and which parts of the grid."""
    listed = "; ".join(f"{name}: {text}" for name, (text, _) in PARTS.items())
    parser.add_argument("--parts", default=",".join(PARTS), help=f"comma-separated; {listed} [all]")
    add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs the grid, reports it, and draws its figures."""
    from bench.run import report, run_suite, show

    config = from_arguments(arguments)
    rows = grid(config, [part.strip() for part in arguments.parts.split(",") if part.strip()])
    folder = run_suite("ablations", rows, config)
    show(report(folder), folder)
    return 0
