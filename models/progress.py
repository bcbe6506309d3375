"""Progress on standard error: a bar with rate and time left at a terminal, nothing elsewhere.

The only file that draws bars. Try: python -c "from models.progress import bar; [None for _ in bar('demo', range(3))]"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

T = TypeVar("T")
Tell = Callable[[int, str], None]
"""(done so far, a few words) → the bar moves."""


def console() -> Console:
    """Standard error, where everything that is no result goes."""
    return Console(stderr=True)


@contextmanager
def progress(title: str, total: int) -> Iterator[Tell]:
    """A bar for `total` things; what is handed out moves it. Silent when standard error is no terminal."""
    screen = console()
    if not screen.is_terminal or not total:
        yield lambda done, words: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(show_speed=True),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=screen, transient=True) as shown:
        task = shown.add_task(title, total=total, words="")
        yield lambda done, words: shown.update(task, completed=done, words=words)


def bar(title: str, items: Iterable[T], total: int | None = None) -> Iterator[T]:
    """The items, with a bar that counts them."""
    known = total if total is not None else len(items) if isinstance(items, Sequence) else 0
    with progress(title, known) as tell:
        for i, item in enumerate(items, 1):
            yield item
            tell(i, "")
