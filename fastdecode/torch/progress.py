"""A bar that shows how far an epoch is."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from fastdecode.errors import BackendUnavailable

__all__ = ["Shown"]


class Shown:
    """Yields what an iterator yields, and shows on the terminal how many there have been.

    Parameters
    ----------
    batches : iterator
    done, total : int
        How many there were before, and how many there will be.
    title : str

    Raises
    ------
    BackendUnavailable
        If rich is not installed.
    """

    def __init__(self, batches: Iterator[Any], *, done: int, total: int, title: str) -> None:
        self._batches = batches
        self._bar = _bar()
        self._task = self._bar.add_task(title, total=total, completed=done)
        self._bar.start()
        # A consumer that leaves early drops this object; the terminal must be given back then, too.
        self._stop = weakref.finalize(self, self._bar.stop)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except BaseException:
            self._stop()
            raise
        self._bar.advance(self._task)
        return batch


def _bar() -> Any:
    try:
        from rich import progress
    except ImportError as error:
        raise BackendUnavailable("progress=True needs rich: pip install rich") from error
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
