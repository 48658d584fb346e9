"""What `pack` and `check` share of the command line: words and tables, progress, CSV.

Lines have at most 80 characters. Progress is shown where standard error is a terminal: as a bar
where rich is installed, else as a line that is written over.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from fastdecode.errors import visible

try:
    import rich.console
    import rich.progress
except ImportError:
    _HAS_RICH = False
else:
    _HAS_RICH = True

__all__ = [
    "Notify",
    "brief",
    "csv_text",
    "megabytes",
    "progress",
    "say",
    "shown",
    "table",
]

_LONGEST = 110
_WIDEST = 80
_ACTING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, those that turn the direction of the rest, and what no file in UTF-8 has."""

_FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001 - some take the wide ones, too


def shown(text: str) -> str:
    """Return text that every terminal takes: keys may hold any byte, and control characters."""
    encoding = sys.stdout.encoding or "utf-8"
    return visible(text).encode(encoding, "backslashreplace").decode(encoding)


def brief(text: str) -> str:
    """Cut what is too long to be one of several: the files have it whole."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4].rstrip()} ..."


def _width() -> int:
    return max(40, min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns))


def say(text: str, *, indent: str = "", error: bool = False) -> None:
    """Print a paragraph."""
    wrapped = textwrap.wrap(shown(text), _width(), subsequent_indent=indent, break_on_hyphens=False)
    stream = sys.stderr if error else sys.stdout
    stream.write("\n".join(wrapped) + "\n")


def table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in columns: the first is text, those between are numbers, the last wraps."""
    cells = [[shown(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]) - 1)]
    before = sum(widths) + 2 * len(widths)
    room = max(12, _width() - before)
    for row in cells:
        numbers = [cell.rjust(size) for cell, size in zip(row[1:-1], widths[1:], strict=True)]
        start = "  ".join([row[0].ljust(widths[0]), *numbers])
        for number, line in enumerate(textwrap.wrap(row[-1], room) or [""]):
            sys.stdout.write(f"{start if not number else ' ' * len(start)}  {line}".rstrip() + "\n")


def megabytes(size: int) -> str:
    """Return a size in millions of bytes, in words."""
    return f"{size / 1e6:,.1f} MB"


def csv_text(rows: Iterable[Sequence[str | int]]) -> str:
    """Return a table as a file of CSV has it.

    Keys are anybody's words: what acts on a terminal is written out, and a cell that spreadsheets
    would take for a formula begins with an apostrophe (OWASP, CSV Injection).
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for row in rows:
        writer.writerow([_cell(cell) if isinstance(cell, str) else cell for cell in row])
    return lines.getvalue()


def _cell(text: str) -> str:
    text = _ACTING.sub(lambda found: ascii(found[0])[1:-1], text)
    return f"'{text}" if text.startswith(_FORMULAS) else text


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
