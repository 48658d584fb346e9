"""What was measured for a device, as ``python -m fastdecode calibrate`` says it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastdecode.bench.on_device import CPU, OnDevice
from fastdecode.bench.on_device_run import measurement_of
from fastdecode.bench.on_device_words import COLUMNS, legend
from fastdecode.bench.tables import Column, Table, paragraph, plain
from fastdecode.bench.words import percent

if TYPE_CHECKING:
    from fastdecode.device.ranking import DeviceRanking

__all__ = ["lines", "no_order"]


def lines(ranking: DeviceRanking) -> Iterator[str]:
    """Lay a table out, with what explains it, and the order that comes out.

    Parameters
    ----------
    ranking : DeviceRanking
        With an order.
    """
    here = ranking.device
    driver = f", driver {here.driver}" if here.driver else ""
    runtime = f", CUDA {here.runtime}" if here.runtime else ""
    yield paragraph(f"{here.name}{driver}{runtime}; {ranking.cpu}, {ranking.cores} cores")
    yield ""
    columns = [Column(one.title, bool(place)) for place, one in enumerate(COLUMNS)]
    table = Table("", columns)
    for cell, speeds in ranking.speeds.items():
        usual = OnDevice(CPU, cell.format, cell.batch)
        rows = [
            tuple(one.text(measurement_of(usual, name, speed)) for one in COLUMNS)
            for name, speed in speeds.items()
        ]
        table.sections.append(
            (f"{cell.format.upper()}, {cell.size}, batches of {cell.batch}", rows)
        )
    yield from plain(table)
    yield ""
    yield from (paragraph(line, indent="  ", first="") for line in legend())
    for name, why in ranking.lost.items():
        yield paragraph(f"Left out: {name}: {why}", indent="  ", first="")
    yield paragraph(f"The fastest first, over all of these: {', '.join(ranking.order())}.")


def no_order(ranking: DeviceRanking) -> str:
    """Say why what was measured tells nothing of any batch backend."""
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
