"""From the times of a group to its measurements: the figures that results hold."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fastdecode.bench import figures
from fastdecode.bench.result import AUTOMATIC, Measurement, Spread

if TYPE_CHECKING:
    from fastdecode.bench.protocols import Timed
    from fastdecode.bench.run import Group

__all__ = ["measurements"]

_MEGA = 1_000_000
_ONE_THREAD = ("decode", "file")


def measurements(group: Group, output: str, size: int) -> list[Measurement]:
    """Work out the figures of every backend of a group.

    Parameters
    ----------
    group : Group
    output : str
        As in `Measurement`.
    size : int

    Returns
    -------
    list of Measurement
        The fastest first, then those that were only checked, the automatic choice last.
    """
    rounds: list[figures.Round] = [
        (one.block, {name: timed.wall for name, timed in one.times.items()}) for one in group.rounds
    ]
    ratios = figures.ratios(rounds, _best(group, rounds)) if rounds and group.compared else {}
    found = [
        _measurement(group, name, ratios.get(name), output, size) for name in group.cell.backends
    ]
    return sorted(found, key=lambda one: (one.backend == AUTOMATIC, -one.ratio.median))


def _best(group: Group, rounds: Sequence[figures.Round]) -> str:
    """Name the fastest backend, of those whose pixels agree, if there are any."""
    backends = [name for name in group.compared if name != AUTOMATIC] or [AUTOMATIC]
    right = [name for name in backends if not group.checks[name].differing] or backends
    best = figures.fastest(rounds, right)
    # Medians need not agree with each other: go on until nobody is faster beside the best.
    for _ in right:
        beside = figures.ratios(rounds, best)
        faster = max(right, key=lambda name: (beside[name].median, name == best))
        if faster == best:
            break
        best = faster
    return best


def _measurement(
    group: Group, name: str, ratio: Spread | None, output: str, size: int
) -> Measurement:
    check, cell = group.checks[name], group.cell
    names = [photo.name for photo in group.photos]
    checked = Measurement(
        protocol=cell.protocol,
        format=cell.format,
        reduce=cell.reduce,
        backend=name,
        threads=cell.threads,
        workers=cell.workers,
        output=output,
        size=size,
        chosen=group.chosen if name == AUTOMATIC else "",
        fallbacks=check.fallbacks,
        refused={names[index]: why for index, why in sorted(check.refused.items())},
        differing=tuple(names[index] for index in sorted(check.differing)),
        averaged=len(check.averaged),
        max_difference=check.max_difference,
    )
    if ratio is None:
        return checked
    return _timed(checked, group, [one.times[name] for one in group.rounds], ratio)


def _timed(
    checked: Measurement, group: Group, times: Sequence[Timed], ratio: Spread
) -> Measurement:
    """Add the figures of what was timed."""
    rounds = _parts(group, times)
    visits = _visits(group)
    photos = [group.photos[index] for index in visits]
    speed = figures.rate(rounds, len(visits))
    seconds = len(visits) / speed.median
    calls = [call for timed in times for call in timed.calls]
    wall = sum(timed.wall for timed in times)
    pixels = sum(photo.header.width * photo.header.height for photo in photos)
    return replace(
        checked,
        files=len(set(visits)),
        images_per_s=speed,
        mb_per_s=sum(photo.size for photo in photos) / _MEGA / seconds,
        megapixels_per_s=pixels / _MEGA / seconds,
        latency_ms=tuple(round(1000 * value, 4) for value in figures.percentiles(calls)),
        cpu_s_per_1000=1000 * sum(timed.cpu for timed in times) / len(calls),
        peak_mb=max(timed.peak_mb for timed in times),
        read_share=sum(timed.reading for timed in times) / wall,
        ratio=ratio,
    )


def _parts(group: Group, times: Sequence[Timed]) -> list[list[tuple[Hashable, float]]]:
    """Split each round into the parts that have a time of their own."""
    pairs = zip(group.rounds, times, strict=True)
    if group.cell.protocol in _ONE_THREAD:
        return [list(zip(one.block, timed.calls, strict=True)) for one, timed in pairs]
    return [[(one.block, timed.wall)] for one, timed in pairs]


def _visits(group: Group) -> list[int]:
    """List the files of one pass over all parts, each as often as it comes in them."""
    blocks = {one.block for one in group.rounds}
    files = [index for block in blocks for index in block]
    return list(set(files)) if group.cell.protocol in _ONE_THREAD else files
