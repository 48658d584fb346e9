"""Make a ranking from a result of the benchmark, which ``--save`` writes for `decode`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from fastdecode import _selection
from fastdecode._system import cpu_model, libraries
from fastdecode.measure.result import AUTOMATIC
from fastdecode.ranking import Cell, Ranking, move_faster_forward, sort_by_default

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastdecode.measure.result import Measurement, Protocol, Result, Spread
    from fastdecode.types import Context, Format, Output, Reduce

_CONTEXTS: dict[Protocol, Context] = {
    "decode": "one",
    "threads": "threads",
    "loader": "processes",
}


def make_ranking(result: Result) -> Ranking:
    """Make a ranking from measurements on the user's images.

    Its cells apply to images of any size. They leave out backends whose pixels differ from the
    reference or are averaged. The order is the default one, except that backends move forward
    whose lead is larger than the spread of their own rounds.
    """
    speeds: dict[Cell, dict[str, Spread]] = {}
    most: dict[Cell, int] = {}
    for one in result.measurements:
        cell = _cell(one)
        if cell is None:
            continue
        crowd = max(one.threads, one.workers)
        if crowd > most.get(cell, 0):  # of several counts use the highest: all cores are busy
            most[cell], speeds[cell] = crowd, {}
        if crowd == most[cell]:
            speeds[cell][one.backend] = one.ratio
    sorted_speeds = {
        cell: {name: round(found[name].median, 4) for name in _order(cell, found)}
        for cell, found in speeds.items()
        if len(found) > 1
    }
    return Ranking(
        {cell: tuple(found) for cell, found in sorted_speeds.items()},
        sorted_speeds,
        cpu_model(),
        libraries(),
        result.measured,
    )


def _order(cell: Cell, speeds: Mapping[str, Spread]) -> list[str]:
    """Move clearly faster backends forward in the default order."""
    fastest_first = sorted(speeds, key=lambda name: -speeds[name].median)
    known = sort_by_default(fastest_first, cell.format, cell.reduce)
    return move_faster_forward(known, lambda one, other: speeds[one].low > speeds[other].high)


def _cell(one: Measurement) -> Cell | None:
    """Return the cell of a measurement; None if it does not count for the order."""
    context = _CONTEXTS.get(one.protocol)
    if context is None or one.backend == AUTOMATIC or one.size or not one.ratio.median:
        return None
    if one.differing or one.averaged:
        return None
    return Cell(
        cast("Format", one.format),
        cast("Reduce", one.reduce),
        None,
        _as_array(cast("Output", one.output)),
        context,
    )


def _as_array(output: Output | None) -> Output | None:
    """Return "array" for tensors, which share the memory of arrays and so have the same order."""
    return "array" if output == "tensor" else output


def merge_saved(new: Ranking) -> Ranking:
    """Add the cells of the saved ranking for kinds of work that were not measured."""
    old, _ = _selection.load_saved()
    if old is None:
        return new
    known = {cell._replace(size=None) for cell in new.orders}
    kept = {
        cell: names
        for cell, names in old.orders.items()
        if cell._replace(size=None, output=_as_array(cell.output)) not in known
    }
    speeds = {cell: old.speeds[cell] for cell in kept if cell in old.speeds}
    return replace(new, orders={**new.orders, **kept}, speeds={**new.speeds, **speeds})
