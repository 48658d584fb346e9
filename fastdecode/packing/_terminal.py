"""What `pack` and `check` share of the command line: words, tables and CSV.

Lines have at most 80 characters.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence

from fastdecode.errors import visible
from fastdecode.terminal import width

__all__ = [
    "brief",
    "csv_text",
    "megabytes",
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
    """Shorten a line of several that is too long: the files have it whole."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4].rstrip()} ..."


def say(text: str, *, indent: str = "", error: bool = False) -> None:
    """Print a paragraph."""
    wrapped = textwrap.wrap(
        shown(text), width(_WIDEST), subsequent_indent=indent, break_on_hyphens=False
    )
    stream = sys.stderr if error else sys.stdout
    stream.write("\n".join(wrapped) + "\n")


def table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in columns: the first is text, those between are numbers, the last wraps."""
    cells = [[shown(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]) - 1)]
    before = sum(widths) + 2 * len(widths)
    room = max(12, width(_WIDEST) - before)
    for row in cells:
        numbers = [cell.rjust(size) for cell, size in zip(row[1:-1], widths[1:], strict=True)]
        start = "  ".join([row[0].ljust(widths[0]), *numbers])
        for number, line in enumerate(textwrap.wrap(row[-1], room) or [""]):
            sys.stdout.write(f"{start if not number else ' ' * len(start)}  {line}".rstrip() + "\n")


def megabytes(size: int) -> str:
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
