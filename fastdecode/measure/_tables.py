"""Tables for the terminal: drawn by rich if it is installed, otherwise plain text."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from fastdecode.terminal import width

try:
    import rich.box
    import rich.console
    import rich.table
    import rich.text
except ImportError:
    HAS_RICH = False
else:
    HAS_RICH = True

_GAP = "  "
_NARROWEST = 8


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    title: str
    right: bool = False  # align to the right, for numbers
    # wrap cells that are wider, in characters; 0: never. The last column wraps at the line's end.
    widest: int = 0


@dataclass
class Table:
    """Rows of text in sections, with a title."""

    title: str
    columns: Sequence[Column]
    # the heading of each section, which may be empty, and its rows
    sections: list[tuple[str, Sequence[tuple[str, ...]]]] = field(default_factory=list)


def show(table: Table) -> None:
    """Print a table to standard output."""
    if not (HAS_RICH and sys.stdout.isatty()):
        print("\n".join(plain(table)))
        return
    console = rich.console.Console(highlight=False)
    for title, rows in table.sections:
        name = ", ".join(word for word in (table.title, title) if word)
        drawn = rich.table.Table(
            title=rich.text.Text(name, style="bold"),
            title_justify="left",
            box=rich.box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            pad_edge=False,
            show_edge=False,
        )
        sizes = _widths(table)  # of all sections, so that their columns line up
        for column, size in zip(table.columns, sizes, strict=True):
            drawn.add_column(
                column.title,
                justify="right" if column.right else "left",
                width=size,
                overflow="fold",
            )
        for row in rows:
            drawn.add_row(*(rich.text.Text(cell) for cell in row))
        console.print(drawn)
        console.print()


def plain(table: Table) -> Iterator[str]:
    """Yield the lines of a table, none wider than `width` if its columns can be wrapped enough."""
    widths = _widths(table)
    if table.title:
        yield table.title
    heading = tuple(column.title for column in table.columns)
    yield from _lines(heading, table.columns, widths)
    yield _GAP.join("-" * size for size in widths)
    for number, (title, section) in enumerate(table.sections):
        if title:
            yield from ["", title] if number else [title]
        for row in section:
            yield from _lines(row, table.columns, widths)


def _widths(table: Table) -> list[int]:
    """Measure the columns; narrow the last one, then the widest that may wrap, until they fit."""
    rows = [row for _, rows in table.sections for row in rows]
    widths = []
    for index, column in enumerate(table.columns):
        natural = max(len(cell) for cell in [column.title, *(row[index] for row in rows)])
        widths.append(min(natural, column.widest) if column.widest else natural)
    before = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    widths[-1] = max(min(widths[-1], _NARROWEST), min(widths[-1], width() - before))
    soft = [index for index, column in enumerate(table.columns) if column.widest]
    while soft and before + widths[-1] > width():
        widest = max(soft, key=lambda index: widths[index])
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
        before -= 1
    return widths


def _lines(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of one row, as many as its longest cell needs."""
    cells = [
        textwrap.wrap(cell, size, break_on_hyphens=False) or [""]
        for cell, size in zip(row, widths, strict=True)
    ]
    for parts in zip_longest(*cells, fillvalue=""):
        yield _GAP.join(
            part.rjust(size) if column.right else part.ljust(size)
            for part, column, size in zip(parts, columns, widths, strict=True)
        ).rstrip()
