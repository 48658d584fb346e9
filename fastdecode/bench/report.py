"""Printing what was measured: the answer first, then the tables, then what went wrong."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fastdecode.bench.check import AUTOMATIC, Check
from fastdecode.bench.figures import fastest, rows, timed_files
from fastdecode.bench.tables import Column, Table, paragraph, show

if TYPE_CHECKING:
    from fastdecode.bench.files import Collection
    from fastdecode.bench.machine import Machine
    from fastdecode.bench.run import Group
    from fastdecode.registry import BackendInfo

__all__ = ["answer", "heading", "listing", "report", "table"]

_FEW = 3  # names of files that a list shows before it says how many more there are
_REASON = 150  # characters of what a decoder says: about two lines
_NEAR = 0.97  # of the best: closer than what repeated runs differ by
_COLUMNS = (
    Column("backend", widest=16),
    Column("images/s", right=True),
    Column("MB/s", right=True),
    Column("median ms", right=True),
    Column("vs best", right=True),
    Column("refused", right=True),
    Column("pixels"),
)


def heading(here: Machine, infos: Sequence[BackendInfo], collection: Collection) -> None:
    """Print what is measured, and on what."""
    print(f"fastdecode {here.fastdecode} benchmark: decoding from memory, one thread")
    print(paragraph(f"{here.cpu}, {count(here.cores, 'core')} usable, {here.system}"))
    versions = [f"{info.name} {info.version}".strip() for info in infos]
    print(paragraph(f"{here.python}, NumPy {here.numpy}, {', '.join(versions)}"))
    size = sum(len(photo.data) for photo in collection.photos) / 1e6
    text = f"{count(len(collection.photos), 'image')}, {size:.1f} MB"
    if collection.full:
        text += f"; no more fit into the memory set aside: {collection.left_out} files left out"
    elif collection.left_out:
        text += f" (--limit leaves {count(collection.left_out, 'file')} out)"
    print(paragraph(text))


def report(groups: Sequence[Group], collection: Collection, *, interrupted: bool = False) -> None:
    """Print the answer, a table for each format, and the files that were refused.

    Parameters
    ----------
    groups : sequence of Group
    collection : Collection
    interrupted : bool
        Say that this is not all that was asked for.
    """
    if interrupted:
        print("\nInterrupted: this is what was measured so far.")
    print()
    for line in answer(groups):
        print(paragraph(line))
    formats = dict.fromkeys(group.format for group in groups)
    for kind in formats:
        own = [group for group in groups if group.format == kind and group.rounds]
        if own:
            print()
            show(table(own))
    notes = [*_notes(groups), *_refusals(groups)]
    if collection.unreadable:
        notes.append(listing("Unreadable", collection.unreadable))
    if collection.not_images:
        notes.append(f"Passed over, not images: {count(collection.not_images, 'file')}")
    if notes:
        print()
        print("\n".join(notes))


def answer(groups: Sequence[Group]) -> list[str]:
    """Say in plain words what is fastest, what `decode` chooses, and whether the pixels agree.

    Parameters
    ----------
    groups : sequence of Group

    Returns
    -------
    list of str
    """
    lines = []
    measured = {group.format: group for group in reversed(groups) if group.rounds}
    for kind in dict.fromkeys(group.format for group in groups if group.rounds):
        group = measured[kind]
        lines.append(_fastest(group, f"for {kind} at " if len(measured) > 1 else "at "))
    if not lines:
        return ["Nothing was measured."]
    wrong = {
        name: None for group in groups for name, check in group.checks.items() if check.differing
    }
    if wrong:
        lines.append(f"The pixels DIFFER from the reference: {', '.join(wrong)}.")
    else:
        lines.append("The pixels agree, wherever they should.")
    return lines


def _fastest(group: Group, what: str) -> str:
    by_name = {row.backend: row for row in rows(group)}
    best = by_name[fastest(group)]
    speed = f"{_number(best.images_per_s)} images/s"
    if best.backend == AUTOMATIC:
        return f"Only decode() could be measured {what}{_size(group)}: {speed}."
    near = [
        name
        for name, row in by_name.items()
        if name not in (best.backend, AUTOMATIC)
        and not group.checks[name].differing
        and row.ratio >= _NEAR
    ]
    if near:
        speed += f"; {', '.join(near)} within 3%"
    text = f"Fastest here {what}{_size(group)}: {best.backend} ({speed})"
    if AUTOMATIC in by_name:
        text += f"; decode() chooses {group.chosen}"
        if group.chosen != best.backend:
            text += f", at {by_name[AUTOMATIC].ratio:.2f} of that"
    return f"{text}."


def table(groups: Sequence[Group]) -> Table:
    """Make the table of one format, a section for each reduction.

    Parameters
    ----------
    groups : sequence of Group
        Of one format, each with at least one round.
    """
    result = Table(groups[0].format.upper(), _COLUMNS)
    for group in groups:
        title = f"{_size(group)}, {_of(timed_files(group), len(group.photos))}"
        section = [
            (
                row.backend,
                _number(row.images_per_s),
                _number(row.mb_per_s),
                _number(row.ms),
                f"{row.ratio:.2f}",
                str(len(group.checks[row.backend].refused) or "-"),
                _pixels(group.checks[row.backend]),
            )
            for row in rows(group)
        ]
        result.sections.append((title, section))
    return result


def _of(timed: int, all_files: int) -> str:
    return count(timed, "file") if timed == all_files else f"{timed} of {all_files} files"


def _size(group: Group) -> str:
    return "full size" if group.reduce == 1 else f"1/{group.reduce} size"


def _pixels(check: Check) -> str:
    if check.differing:
        return f"{len(check.differing)} differ, max {check.max_difference}"
    if not check.averaged:
        return "agree"
    if check.averaged == check.read:
        return f"averaged, max {check.max_difference}"
    return f"agree, {len(check.averaged)} averaged"


def _number(value: float) -> str:
    """Three significant digits, or all those before the point."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def count(number: int, noun: str) -> str:
    """Say how many of something there are."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _notes(groups: Sequence[Group]) -> list[str]:
    """Explain what the tables show, where they need it, and what they leave out."""
    notes = []
    if any(check.averaged for group in groups for check in group.checks.values()):
        notes.append(
            "averaged: the backend does not reduce these JPEG files inside its decoder, so the "
            "package averages full-size pixels; that gives other values, by up to max of 255"
        )
    out = {
        (group.format, name): None
        for group in groups
        if group.common
        for name in group.checks
        if name not in group.compared
    }
    notes += [f"Not timed: {name}, which refuses most {kind} files" for kind, name in out]
    for group in groups:
        for name, check in group.checks.items():
            if check.differing:
                wrong = {group.photos[index].name: "" for index in sorted(check.differing)}
                notes.append(
                    listing(f"Pixels differ, {name}, {group.format} {_size(group)}", wrong)
                )
    return [note if "\n" in note else paragraph(note) for note in notes]


def _refusals(groups: Sequence[Group]) -> list[str]:
    """List refused files: first those that nothing reads, then by backend."""
    hopeless: dict[str, str] = {}
    by_backend: dict[str, dict[str, str]] = {}
    for group in groups:
        readable = set().union(*(check.read for check in group.checks.values()))
        for name, check in group.checks.items():
            for index, reason in check.refused.items():
                file = group.photos[index].name
                if index in readable:
                    by_backend.setdefault(name, {}).setdefault(file, reason)
                elif name == AUTOMATIC:
                    hopeless.setdefault(file, reason)
    lists = [listing(f"Refused by {name}", files) for name, files in by_backend.items()]
    return ([listing("Refused by all", hopeless)] if hopeless else []) + lists


def listing(title: str, files: Mapping[str, str]) -> str:
    """List a few files with what is to be said of each, and how many more there are."""
    lines = [f"{title} ({count(len(files), 'file')}):"]
    for name, reason in sorted(files.items())[:_FEW]:
        text = f"{name}: {textwrap.shorten(reason, _REASON, placeholder=' …')}" if reason else name
        lines.append(paragraph(text, indent="      ", first="  "))
    if len(files) > _FEW:
        lines.append(f"  … and {len(files) - _FEW:,} more")
    return "\n".join(lines)
