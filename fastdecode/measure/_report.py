"""Prints a result: the tables, then the files that went wrong, and finally the answer."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fastdecode.cli.terminal import Column, count, paragraph, table
from fastdecode.errors import visible
from fastdecode.measure._summary import (
    caveats,
    facts,
    figures,
    groups,
    listings,
    notes,
    sentences,
)

if TYPE_CHECKING:
    from fastdecode.measure.result import Result

_MAX_LISTED = 3  # file names that a list shows; it only counts the others
_MAX_REASON = 150  # characters of a decoder's message: about two lines
_WIDEST = 24  # characters of a backend's name; names from plugins may be longer


def heading(result: Result) -> None:
    """Print the machine and the images, before anything is measured."""
    for name, text in facts(result).items():
        if name not in ("Libraries", "Measured"):
            print(paragraph(f"{name}: {text}", indent="  ", first=""))


def show_result(result: Result) -> None:
    """Print the tables, the files that went wrong, and the answer."""
    if result.interrupted:
        print("\nInterrupted: these are the results so far.")
    meanings: dict[str, None] = {}
    for group in groups(result):
        if group.timed:
            shown = figures(group)
            columns = [Column(one.title, one.right, widest=_WIDEST) for one in shown]
            rows = [[one.text(member) for one in shown] for member in group.members]
            print(f"\n{group.title}, {count(group.one.files, 'file')}")
            print("\n".join(table(columns, rows)))
            meanings |= dict.fromkeys(
                f"{one.title}: {one.meaning}." for one in shown if one.meaning
            )
    lines = [*meanings, *notes(result)]
    if libraries := facts(result).get("Libraries"):
        lines.append(f"Libraries: {libraries}.")
    remarks = [paragraph(line, indent="  ", first="") for line in lines]
    remarks += [listing(title, files) for title, files in listings(result).items()]
    if remarks:
        print("\n" + "\n".join(remarks))
    print()
    for line in (*caveats(result), *(result.answer or sentences(result))):
        print(paragraph(visible(line)))


def listing(heading: str, files: Mapping[str, str]) -> str:
    """List a few files with their remarks, and say how many more there are."""
    title = visible(f"{heading} ({count(len(files), 'file')}):")
    lines = [paragraph(title, indent="  ", first="")]
    for name, reason in sorted(files.items())[:_MAX_LISTED]:
        short = textwrap.shorten(reason, _MAX_REASON, placeholder=" …")
        text = visible(f"{name}: {short}" if short else name)
        lines.append(paragraph(text, indent="      ", first="  "))
    if len(files) > _MAX_LISTED:
        lines.append(f"  … and {len(files) - _MAX_LISTED:,} more")
    return "\n".join(lines)
