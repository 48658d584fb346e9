"""Words and numbers for the terminal, in lines of at most 80 characters."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence

__all__ = ["brief", "megabytes", "printed", "say", "shown", "table"]

_LONGEST = 110
_WIDEST = 80


def shown(text: str) -> str:
    """Return text that every terminal takes: keys may hold any byte, and control characters."""
    encoding = sys.stdout.encoding or "utf-8"
    plain = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return plain.encode(encoding, "backslashreplace").decode(encoding)


def brief(text: str) -> str:
    """Cut what is too long to be one of several: the files have it whole."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4].rstrip()} ..."


def _width() -> int:
    return max(40, min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns))


def say(text: str, *, indent: str = "", error: bool = False) -> None:
    """Print a paragraph.

    Parameters
    ----------
    text : str
    indent : str
        Before every line but the first.
    error : bool
        To standard error.
    """
    wrapped = textwrap.wrap(shown(text), _width(), subsequent_indent=indent, break_on_hyphens=False)
    stream = sys.stderr if error else sys.stdout
    stream.write("\n".join(wrapped) + "\n")


def table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in columns: the first is text, those between are numbers, the last wraps.

    Parameters
    ----------
    rows : sequence of tuple of str
        The first is the heading; all have the same number of cells.
    """
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


def printed(report: Callable[[], None]) -> int:
    """Print a report; return the exit status, 1 if nobody reads it, or there is no room for it."""
    try:
        report()
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0
