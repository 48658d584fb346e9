"""What is to be measured: the configurations, and the blocks that the files are dealt into."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastdecode.bench.result import AUTOMATIC, Protocol
from fastdecode.cores import usable_cores

if TYPE_CHECKING:
    from fastdecode.bench.files import Photo
    from fastdecode.types import Format, Output, Reduce

__all__ = ["PROTOCOLS", "Cell", "Plan", "able", "blocks", "cells", "counts_up_to_cores"]

PROTOCOLS: tuple[Protocol, ...] = ("decode", "threads", "loader", "file")

_BLOCK_FILES = 64
_BLOCK_BYTES = 1 << 20  # a block takes about 10 ms to 100 ms for each backend
_FEW = 16  # files: a block of fewer is over before the processor's caches are warm
_EACH: dict[Protocol, int] = {"threads": 32, "loader": 64}
"""Images for each thread or worker: enough to hide how they start and end (two batches)."""
_MOST_EACH = 1024
_MOST_WORKERS = 8
"""Workers with which all backends are compared: each has its own, all alive at the same time."""


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes
    ----------
    backends : tuple of str
        Usable ones, by name; `decode` by itself is always measured too.
    reduces : tuple of {1, 2, 4, 8}
    seconds : float
        Time each configuration is measured for at least.
    protocols : tuple of Protocol
    threads, workers : tuple of int
        Counts to measure with; none leaves the protocol out.
    output : {"array", "tensor", "pil"}
    size : int
        Side in pixels to resize to, which gives tensors; 0 leaves pictures as they are.
    seed : int
        Of the random order.
    """

    backends: tuple[str, ...]
    reduces: tuple[Reduce, ...] = (1,)
    seconds: float = 0.5
    protocols: tuple[Protocol, ...] = ("decode",)
    threads: tuple[int, ...] = ()
    workers: tuple[int, ...] = ()
    output: Output = "array"
    size: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Cell:
    """What a group of backends is compared in.

    Attributes
    ----------
    protocol : Protocol
    format : Format
    reduce : {1, 2, 4, 8}
    threads, workers : int
        1 and 0 where the protocol has none.
    backends : tuple of str
        `AUTOMATIC` is the last of them.
    """

    protocol: Protocol
    format: Format
    reduce: Reduce
    threads: int
    workers: int
    backends: tuple[str, ...]


def cells(plan: Plan, photos: Sequence[Photo], reads: Mapping[str, Sequence[Format]]) -> list[Cell]:
    """List the groups to measure.

    Parameters
    ----------
    plan : Plan
    photos : sequence of Photo
    reads : Mapping of str to sequence of Format
        What each backend of the plan reads.

    Returns
    -------
    list of Cell
        ``decode`` for every format and reduction; the other protocols for the commonest format at
        the largest size alone.
    """
    formats = [kind for kind, _ in Counter(photo.header.format for photo in photos).most_common()]
    found: list[Cell] = []
    if "decode" in plan.protocols:
        found += [
            Cell("decode", kind, reduce, 1, 0, able(plan, reads, kind))
            for kind in formats
            for reduce in plan.reduces
        ]
    if not formats:
        return found
    usual, reduce = formats[0], min(plan.reduces)
    everyone = able(plan, reads, usual)
    if "threads" in plan.protocols:
        found += [Cell("threads", usual, reduce, n, 0, everyone) for n in plan.threads]
    if "loader" in plan.protocols:
        # Of the counts, one with all backends; the others show how `decode` scales.
        all_at = max((n for n in plan.workers if n <= _MOST_WORKERS), default=0)
        found += [
            Cell("loader", usual, reduce, 1, n, everyone if n == all_at else (AUTOMATIC,))
            for n in plan.workers
        ]
    if "file" in plan.protocols:
        found.append(Cell("file", usual, reduce, 1, 0, everyone))
    return found


def able(plan: Plan, reads: Mapping[str, Sequence[Format]], format: Format) -> tuple[str, ...]:
    """Name the backends that read a format, and `AUTOMATIC`."""
    return (*(name for name in plan.backends if format in reads[name]), AUTOMATIC)


def counts_up_to_cores() -> tuple[int, ...]:
    """Return the powers of two up to the cores that are usable here, and these."""
    cores = usable_cores()
    return tuple(sorted({*(1 << n for n in range(cores.bit_length())), cores}))


def blocks(cell: Cell, sizes: Mapping[int, int], chance: random.Random) -> list[tuple[int, ...]]:
    """Deal the files, in random order, into the shares of one round each.

    Parameters
    ----------
    cell : Cell
    sizes : Mapping of int to int
        Bytes of each file that is timed, by its index.
    chance : random.Random

    Returns
    -------
    list of tuple of int
        Indexes; the same files may come more than once in a block, all of them equally often, if
        there are few and several threads or workers share them.
    """
    order = chance.sample(list(sizes), len(sizes))
    if cell.protocol in ("threads", "loader"):
        sharers = max(cell.threads, cell.workers)
        usual = max(1, sum(sizes.values()) / len(sizes))
        each = min(_MOST_EACH, max(_EACH[cell.protocol], int(_BLOCK_BYTES / usual)))
        return _equal(order, sharers * each)
    if len(order) <= _FEW:
        return _equal(order, _FEW)
    dealt: list[list[int]] = []
    room = 0
    for index in order:
        if not dealt or sizes[index] > room or len(dealt[-1]) == _BLOCK_FILES:
            dealt.append([])
            room = _BLOCK_BYTES
        dealt[-1].append(index)
        room -= sizes[index]
    return [tuple(block) for block in dealt]


def _equal(order: list[int], needed: int) -> list[tuple[int, ...]]:
    """Make blocks of at least so many files, of the same ones again and again if there are few."""
    count = max(1, len(order) // needed)
    repeats = -(-needed // len(order))
    return [tuple(order[number::count] * repeats) for number in range(count)]
