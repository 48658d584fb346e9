"""Prints a result: the tables, then the files that went wrong, and finally the answer."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fastdecode.measure._summary import (
    Group,
    Sheet,
    by_protocol,
    device_groups,
    format_times,
    groups,
    listings,
    load_sentence,
    notes,
    sentences,
    sheet,
)
from fastdecode.measure._tables import Column, Table, plain, show
from fastdecode.measure._text import (
    BRIEF,
    DEVICE_COLUMNS,
    SPEED,
    Figure,
    backend_versions,
    costs,
    device_facts,
    device_model,
    legend,
    machine_line,
    measured_files,
    percent,
    protocol,
    setting,
    title,
    visible,
)
from fastdecode.measure.result import CPU, Measurement
from fastdecode.terminal import count, paragraph

if TYPE_CHECKING:
    from fastdecode.measure.result import Result
    from fastdecode.ranking import DeviceRanking

_MAX_LISTED = 3  # file names that a list shows; it only counts the others
_MAX_REASON = 150  # characters of a decoder's message: about two lines
_MAX_BACKEND = 16  # characters of a backend's name; names from plugins may be longer
_MAX_PIPELINE = 24


def heading(result: Result) -> None:
    """Print the machine, the libraries and the images. The result may still be empty."""
    here = result.machine
    print(f"fastdecode {here.fastdecode} benchmark")
    print(paragraph(machine_line(here)))
    versions = [f"{name} {text}" for name, text in backend_versions(result.backends).items()]
    if versions:
        print(paragraph(", ".join(versions)))
    load = load_sentence(here)
    if load:
        print(paragraph(load))
    print(paragraph(measured_files(result.collection)))


def show_result(result: Result, *, brief: bool = False) -> None:
    """Print the tables (a single one if `brief`), the files that went wrong, and the answer."""
    if result.interrupted:
        print("\nInterrupted: these are the results so far.")
    sheets = [] if brief else sheets_of(result)
    drawn = [short_table(result)] if brief else [_table(own) for own in sheets]
    drawn = [table for table in drawn if table.sections]
    for table in drawn:
        print()
        show(table)
    if result.on_device:
        print()
        for name, text in device_facts(result).items():
            print(paragraph(f"{name}: {text}", indent="  ", first=""))
        print()
        name = title(result.on_device[0], result.device)
        sheets.insert(0, sheet(name, DEVICE_COLUMNS, device_groups(result)))
        show(_table(sheets[0]))
    shown = dict.fromkeys(figure for own in sheets for figure in own.figures)
    if brief and drawn:
        shown |= dict.fromkeys(BRIEF)
    remarks = [paragraph(line, indent="  ", first="") for line in (*legend(shown), *notes(result))]
    remarks += [listing(*one) for one in listings(result)]
    if remarks:
        print()
        print("\n".join(remarks))
    print()
    for line in result.answer or sentences(result):
        print(paragraph(line))


def sheets_of(result: Result) -> list[Sheet]:
    """Return two tables, of speed and of cost, for each protocol and format."""
    found = []
    for own in by_protocol(group for group in groups(result) if group.timed):
        one = own[0].one
        name = title(one, result.device)
        found.append(sheet(f"{name}: speed", SPEED, own))
        found.append(sheet(f"{name}: cost", costs(one.protocol), own))
    return found


def tables(result: Result) -> list[Table]:
    """Lay out all tables of a result."""
    return [_table(own) for own in sheets_of(result)]


def short_table(result: Result) -> Table:
    """Make one table of all groups: speed, ratio to Pillow, and cost."""
    first, speed, spread, *others = BRIEF
    columns = [*_columns([first, speed, spread], _MAX_PIPELINE), Column("vs Pillow", right=True)]
    table = Table("", [*columns, *_columns(others)])
    for group in groups(result):
        if not group.timed:
            continue
        rows = []
        for one in group.members:
            gain = group.ratio_to_pillow(one)
            told = format_times(gain.median) if gain else "-"
            before, after = ([figure.text(one) for figure in part] for part in (BRIEF[:3], others))
            rows.append((*before, told, *after))
        table.sections.append((_heading(group), rows))
    return table


def _heading(group: Group) -> str:
    """Describe in one line the settings that the rows of a section share."""
    one = group.one
    what = f"training {setting(one)}" if one.protocol == "train" else protocol(one)
    size = "" if one.protocol == "train" else f", {setting(one)}"
    return f"{one.format.upper()}, {what}{size}, {count(one.files, 'file')}"


def _table(own: Sheet) -> Table:
    table = Table(own.title, _columns(own.figures, _MAX_BACKEND))
    for said, members in own.sections:
        rows = [tuple(figure.text(one) for figure in own.figures) for one in members]
        table.sections.append((said, rows))
    return table


def _columns(figures: Sequence[Figure], widest: int = 0) -> list[Column]:
    """Make columns; wrap the first one if it is wider than `widest` characters."""
    return [
        Column(figure.title, figure.right, widest if figure is figures[0] else 0)
        for figure in figures
    ]


def listing(heading: str, files: Mapping[str, str]) -> str:
    """List a few files with their remarks, and say how many more there are."""
    lines = [f"{heading} ({count(len(files), 'file')}):"]
    for name, reason in sorted(files.items())[:_MAX_LISTED]:
        short = textwrap.shorten(reason, _MAX_REASON, placeholder=" …")
        text = visible(f"{name}: {short}" if short else name)
        lines.append(paragraph(text, indent="      ", first="  "))
    if len(files) > _MAX_LISTED:
        lines.append(f"  … and {len(files) - _MAX_LISTED:,} more")
    return "\n".join(lines)


def device_ranking(ranking: DeviceRanking) -> Iterator[str]:
    """Yield the lines of a device ranking: its table, the explanations and the order."""
    here = ranking.device
    yield paragraph(f"{device_model(here)}; {ranking.cpu}, {ranking.cores} cores")
    yield ""
    columns = [Column(one.title, bool(place)) for place, one in enumerate(DEVICE_COLUMNS)]
    table = Table("", columns)
    for cell, speeds in ranking.speeds.items():
        usual = Measurement("device", cell.format, 1, batch=cell.batch)
        rows = [
            tuple(one.text(replace(usual, backend=name, **vars(speed))) for one in DEVICE_COLUMNS)
            for name, speed in speeds.items()
        ]
        table.sections.append(
            (f"{cell.format.upper()}, {cell.size}, batches of {cell.batch}", rows)
        )
    yield from plain(table)
    yield ""
    yield from (paragraph(line, indent="  ", first="") for line in legend(DEVICE_COLUMNS))
    for name, why in ranking.lost.items():
        yield paragraph(f"Left out: {name}: {why}", indent="  ", first="")
    yield paragraph(f"The fastest first, over all of these: {', '.join(ranking.order())}.")


def no_order(ranking: DeviceRanking) -> str:
    """Say why no batch backend could be ranked."""
    shares = [
        speed.on_cpu
        for speeds in ranking.speeds.values()
        for name, speed in speeds.items()
        if name != CPU
    ]
    if not shares:
        return "nothing was compared: the CPU reads none of these files"
    least = min(shares)
    several = "" if least == 1 else " or more"
    return (
        f"nothing was compared: the CPU decoded {percent(least)}{several} of these files, which no "
        "batch backend reads"
    )
