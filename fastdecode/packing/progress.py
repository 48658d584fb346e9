"""How far the work is, where standard error is a terminal: a bar with rich, else a line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

try:
    import rich.console
    import rich.progress
except ImportError:
    _HAS_RICH = False
else:
    _HAS_RICH = True

__all__ = ["Notify", "progress"]

_EVERY_S = 0.2

Notify: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how many items are done, and of how many."""


class _Line:
    """A line that is written over."""

    def __init__(self) -> None:
        self._shown = 0.0

    def show(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._shown >= _EVERY_S or done == total:
            self._shown = now
            sys.stderr.write(f"\r{what} {done:,} of {total:,}")
            sys.stderr.flush()


@contextmanager
def progress() -> Iterator[Notify]:
    """Show progress for as long as the block runs."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    if not _HAS_RICH:
        try:
            yield _Line().show
        finally:  # also before an error
            sys.stderr.write("\n")
        return
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeRemainingColumn(),
    )
    console = rich.console.Console(stderr=True)
    with rich.progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda what, done, total: bar.update(
            task, description=what, completed=done, total=total
        )
