"""How far the run is, on standard error: a bar on a terminal, else a line for each step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fastdecode.bench.tables import HAS_RICH

if TYPE_CHECKING:
    from fastdecode.bench.run import Notify

__all__ = ["progress"]


@contextmanager
def progress() -> Iterator[Notify]:
    """Show progress for as long as the block runs."""
    if HAS_RICH and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=1.0)
            yield lambda what, share: bar.update(task, description=what, completed=share)
        return
    last = ""

    def line(what: str, _share: float) -> None:
        nonlocal last
        if what != last:
            print(f"{what} ...", file=sys.stderr, flush=True)
        last = what

    yield line
