"""Printing a result: the answer first, then the tables, then what went wrong."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fastdecode.bench import on_device_words, words
from fastdecode.bench.answer import sentences
from fastdecode.bench.columns import COST, SPEED, Figure, costs
from fastdecode.bench.groups import Group, by_protocol, groups
from fastdecode.bench.remarks import busy, listings, notes
from fastdecode.bench.tables import Column, Table, paragraph, show
from fastdecode.bench.words import count

if TYPE_CHECKING:
    from fastdecode.bench.result import Result

__all__ = ["count", "heading", "listing", "show_result", "tables"]

_FEW = 3  # names of files that a list shows before it says how many more there are
_REASON = 150  # characters of what a decoder says: about two lines
_BACKEND = 16  # characters of a backend's name; those of other packages may have more


def heading(result: Result) -> None:
    """Print what is measured, and on what.

    Parameters
    ----------
    result : Result
        Its measurements need not be there yet.
    """
    here = result.machine
    print(f"fastdecode {here.fastdecode} benchmark")
    print(paragraph(words.machine(here)))
    versions = [f"{name} {text}" for name, text in words.backends(result.backends).items()]
    if versions:
        print(paragraph(", ".join(versions)))
    load = busy(here)
    if load:
        print(paragraph(load))
    print(paragraph(words.measured_files(result.collection)))


def show_result(result: Result) -> None:
    """Print the answer, the tables, and the files that went wrong.

    Parameters
    ----------
    result : Result
    """
    if result.interrupted:
        print("\nInterrupted: this is what was measured so far.")
    print()
    for line in result.answer or sentences(result):
        print(paragraph(line))
    drawn = tables(result)
    for table in drawn:
        print()
        show(table)
    _show_device(result)
    remarks = [paragraph(line, indent="  ", first="") for line in notes(result)]
    if drawn:
        remarks.insert(0, _legend(result))
    if result.on_device:
        remarks = [
            *(paragraph(line, indent="  ", first="") for line in on_device_words.legend()),
            *remarks,
        ]
    remarks += [listing(*one) for one in listings(result)]
    if remarks:
        print()
        print("\n".join(remarks))


def _show_device(result: Result) -> None:
    """Print which device it was, and the table of it."""
    if not result.on_device:
        return
    print()
    for name, text in on_device_words.facts(result).items():
        print(paragraph(f"{name}: {text}", indent="  ", first=""))
    print()
    show(on_device_words.table(result))


def tables(result: Result) -> list[Table]:
    """Make two tables, of speed and of cost, for each protocol and format.

    Parameters
    ----------
    result : Result

    Returns
    -------
    list of Table
        A section for each reduction and each count of threads or workers.
    """
    found = []
    for own in by_protocol(group for group in groups(result) if group.timed):
        one = own[0].one
        title = f"{one.format.upper()}, {words.protocol(one)}"
        found.append(_table(f"{title}: speed", SPEED, own))
        found.append(_table(f"{title}: cost", costs(one.protocol), own))
    return found


def _table(title: str, figures: Sequence[Figure], own: Sequence[Group]) -> Table:
    columns = [
        Column(figure.title, figure.right, 0 if number else _BACKEND)
        for number, figure in enumerate(figures)
    ]
    table = Table(title, columns)
    for group in own:
        files = count(group.timed[0].files, "file")
        rows = [tuple(figure.text(one) for figure in figures) for one in group.members]
        table.sections.append((f"{words.setting(group.one)}, {files}", rows))
    return table


def _legend(result: Result) -> str:
    """Explain the columns whose titles do not speak for themselves."""
    titles = ("±", "vs best", "p95 ms", "MP/s", "CPU s/1000", "fallbacks", "max diff", "reading")
    figures = {figure.title: figure for figure in (*SPEED, *COST)}
    if any(one.protocol == "file" for one in result.measurements):
        figures |= {figure.title: figure for figure in costs("file")}
    said = [f"{title}: {figures[title].meaning}." for title in titles if title in figures]
    return "\n".join(paragraph(line, indent="  ", first="") for line in said)


def listing(title: str, files: Mapping[str, str]) -> str:
    """List a few files with what is to be said of each, and how many more there are."""
    lines = [f"{title} ({count(len(files), 'file')}):"]
    for name, reason in sorted(files.items())[:_FEW]:
        short = textwrap.shorten(reason, _REASON, placeholder=" …")
        text = words.visible(f"{name}: {short}" if short else name)
        lines.append(paragraph(text, indent="      ", first="  "))
    if len(files) > _FEW:
        lines.append(f"  … and {len(files) - _FEW:,} more")
    return "\n".join(lines)
