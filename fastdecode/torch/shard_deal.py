"""Dealing shards to ranks and workers: which samples of which shards each one gives.

Without counts nobody knows how long a shard is. Each consumer then takes as many whole shards as
every other, and the shards that are left over are read by several consumers each, who take every
k-th sample. With counts each rank takes one stretch of all samples, laid end to end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["Consumer", "Even", "Piece", "deal_counted", "deal_uncounted", "rank_share"]

Even: TypeAlias = 'Literal["drop", "repeat"] | None'
"""What makes the ranks' shares equal: leaving some samples out, or giving some twice."""


class Consumer(NamedTuple):
    """Who takes a share: a worker process of a rank.

    Attributes
    ----------
    rank, ranks : int
    worker, workers : int
        0 of 1 where the rank has no worker processes.
    """

    rank: int = 0
    ranks: int = 1
    worker: int = 0
    workers: int = 1


class Piece(NamedTuple):
    """Some samples of a shard, in their order there.

    Attributes
    ----------
    shard : int
    start : int
        The first one.
    stop : int or None
        Before which one to end; None for the end of the shard.
    step : int
    time : int
        How often these samples have come before in this epoch.
    """

    shard: int
    start: int = 0
    stop: int | None = None
    step: int = 1
    time: int = 0

    def count(self, shard_count: int) -> int:
        """Count the samples, of a shard of that many."""
        stop = shard_count if self.stop is None else min(self.stop, shard_count)
        return len(range(self.start, stop, self.step))


def deal_uncounted(order: Sequence[int], consumer: Consumer) -> list[Piece]:
    """Deal shards of unknown length: no sample is missing, none comes twice.

    Parameters
    ----------
    order : sequence of int
        The shards, in the epoch's order.
    consumer : Consumer

    Returns
    -------
    list of Piece
    """
    consumers = consumer.ranks * consumer.workers
    # Neighbouring consumers are of different ranks, so that ranks share the rest evenly, too.
    me = consumer.worker * consumer.ranks + consumer.rank
    whole = len(order) // consumers * consumers
    pieces = [Piece(shard) for shard in order[me:whole:consumers]]
    rest = order[whole:]
    if rest:
        group = me % len(rest)
        sharers = len(range(group, consumers, len(rest)))
        pieces.append(Piece(rest[group], me // len(rest), None, sharers))
    return pieces


def deal_counted(
    order: Sequence[int], counts: Sequence[int], consumer: Consumer, even: Even = None
) -> list[Piece]:
    """Deal shards of known length: each rank takes one stretch, and each worker a part of that.

    Parameters
    ----------
    order : sequence of int
        The shards, in the epoch's order.
    counts : sequence of int
        Samples of each shard, by the shard.
    consumer : Consumer
    even : {"drop", "repeat"} or None
        See `rank_share`.

    Returns
    -------
    list of Piece
    """
    total = sum(counts)
    begin, end = rank_share(total, consumer.rank, consumer.ranks, even)
    length = end - begin
    # The first workers have the samples that are over, so that they also have the more batches.
    each, over = divmod(length, consumer.workers)
    start = begin + consumer.worker * each + min(consumer.worker, over)
    stop = start + each + (consumer.worker < over)
    return list(_stretch(order, counts, start, stop))


def rank_share(total: int, rank: int, ranks: int, even: Even) -> tuple[int, int]:
    """Say which of all samples a rank takes.

    Parameters
    ----------
    total : int
    rank, ranks : int
    even : {"drop", "repeat"} or None
        ``"drop"`` gives all ranks as many as there are for everyone, and leaves out the last ones;
        ``"repeat"`` as many as leave none out, and begins again where there are no more; with None
        ranks may differ by one.

    Returns
    -------
    start, stop : int
        From `total` on they count the first samples again.
    """
    if even is None:
        return total * rank // ranks, total * (rank + 1) // ranks
    each = total // ranks if even == "drop" else -(-total // ranks)
    return rank * each, (rank + 1) * each


def _stretch(order: Sequence[int], counts: Sequence[int], start: int, stop: int) -> Iterator[Piece]:
    """Cut a stretch of all samples, laid end to end again and again, at the shards' ends."""
    ends = list(accumulate(_in_order(order, counts)))
    while start < stop:
        time, place = divmod(start, ends[-1])
        at = bisect_right(ends, place)
        before = ends[at - 1] if at else 0
        end = min(ends[at], place + stop - start)
        yield Piece(order[at], place - before, end - before, 1, time)
        start += end - place


def _in_order(order: Iterable[int], counts: Sequence[int]) -> Iterator[int]:
    return (counts[shard] for shard in order)
