"""The shards of a `ShardStream`, and which samples each consumer reads in an epoch.

Without counts, the length of a shard is unknown, and every consumer reads whole shards. Where there
are fewer shards than consumers, several consumers share a shard: each of them takes every k-th
sample. With counts, the shards are treated as one long sequence, and each rank takes one contiguous
range of it.
"""

from __future__ import annotations

import glob
import hashlib
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import torch

from fastdecode._arguments import check_word, is_int
from fastdecode.errors import StoreError
from fastdecode.stores import open_store
from fastdecode.stores.shards import read_manifest, shard_locations
from fastdecode.stores.tar.store import Sample, stream_tar
from fastdecode.torch._loader.order import sample_seed

Even: TypeAlias = 'Literal["drop"] | None'
"""How ranks get equal shares: some samples are left out."""

Locations: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

_T = TypeVar("_T")


class Consumer(NamedTuple):
    """A worker process of a rank; a rank without workers counts as worker 0 of 1."""

    rank: int = 0
    ranks: int = 1
    worker: int = 0
    workers: int = 1


class ShardSlice(NamedTuple):
    """Some samples of a shard, in the order of the shard; `stop` is None for its end."""

    shard: int
    start: int = 0
    stop: int | None = None
    step: int = 1

    def count(self, shard_count: int) -> int:
        """Count the samples of the slice in a shard of `shard_count` samples."""
        stop = shard_count if self.stop is None else min(self.stop, shard_count)
        return len(range(self.start, stop, self.step))


class ShardSample(NamedTuple):
    """A sample and its place in the shards."""

    shard: int
    position: int
    sample: Sample


@dataclass(frozen=True)
class Assignment:
    """The shards, their order in each epoch, and which consumer reads which samples.

    `counts` is the number of samples in each shard, if known. `reading` holds options for
    `stream_tar`.
    """

    shards: list[str]
    counts: list[int] | None
    shuffle: bool
    buffer: int
    seed: int
    even: Even
    reading: dict[str, Any]

    def slices(self, consumer: Consumer, epoch: int) -> list[ShardSlice]:
        """Return the slices that a consumer reads in an epoch."""
        order = list(range(len(self.shards)))
        if self.shuffle:
            generator = torch.Generator("cpu").manual_seed(sample_seed(self.seed, epoch, "shards"))
            order = torch.randperm(len(order), generator=generator, device="cpu").tolist()
        if self.counts is None:
            return assign_uncounted(order, consumer)
        return assign_counted(order, self.counts, consumer, self.even)

    def share(self, consumer: Consumer, epoch: int, counts: dict[int, int]) -> Share:
        """Return a consumer's share; without known counts, reading it fills `counts`."""
        known = counts if self.counts is None else dict(enumerate(self.counts))
        slices = self.slices(consumer, epoch)
        seed = sample_seed(self.seed, epoch, ("buffer", *consumer))
        return Share(self.shards, slices, known, self.buffer, seed, self.reading)

    def sample_seed(self, sample: ShardSample, epoch: int) -> int:
        """Return the seed of a sample's random draws, which depends on its place and the epoch."""
        return sample_seed(self.seed, epoch, (sample.shard, sample.position))

    def rank_length(self, rank: int, ranks: int) -> int | None:
        """Count the samples of a rank, or return None if the shards are not counted."""
        if self.counts is None:
            return None
        start, stop = rank_range(sum(self.counts), rank, ranks, self.even)
        return stop - start

    def settings(self, rank: int, ranks: int) -> dict[str, Any]:
        """Return, as plain values, everything that determines a rank's samples."""
        names = "\n".join(shard.rsplit("/", 1)[-1] for shard in self.shards)
        return {
            "shards": len(self.shards),
            "names": hashlib.blake2b(names.encode(), digest_size=8).hexdigest(),
            "samples": None if self.counts is None else sum(self.counts),
            "shuffle": self.shuffle,
            "buffer": self.buffer,
            "seed": self.seed,
            "even": self.even,
            "rank": rank,
            "world_size": ranks,
        }


def make_assignment(
    shards: Locations,
    counts: Sequence[int] | None,
    *,
    shuffle: bool,
    buffer: int,
    seed: int,
    even: Even,
    reading: dict[str, Any],
) -> Assignment:
    """Check the arguments of a `ShardStream`, find the shards, and count them if needed."""
    if not is_int(buffer) or buffer < 1:
        raise ValueError(f"buffer must be an integer from 1, not {buffer!r}")
    if even is not None:
        check_word("even", even, ("drop",))
    options = {name: value for name, value in reading.items() if value is not None}
    found = _list_shards(shards, reading["storage_options"])
    if counts is not None:
        if len(counts) != len(found) or not all(is_int(one) and 0 <= one < 2**63 for one in counts):
            raise ValueError(f"counts must be a number for each of the {len(found)} shards")
        counts = [int(count) for count in counts]
    elif even is not None:
        counts = _count_shards(shards, found, options)
    size = int(buffer) if shuffle else 1
    return Assignment(found, counts, bool(shuffle), size, seed, even, options)


def _list_shards(shards: Locations, storage_options: Mapping[str, Any] | None) -> list[str]:
    """List the shards; a folder stands for the tar files in it."""
    if isinstance(shards, (str, os.PathLike)) and Path(shards).is_dir():
        shards = os.path.join(glob.escape(os.fspath(shards)), "*.tar")  # noqa: PTH118 - a pattern
    return shard_locations(shards, storage_options)


def _count_shards(shards: Locations, found: Sequence[str], options: dict[str, Any]) -> list[int]:
    """Count the samples of each shard: from the manifest if it lists them, else shard by shard."""
    if isinstance(shards, (str, os.PathLike)):
        listed = read_manifest(os.fspath(shards), options.get("storage_options"))
        if listed is not None and listed.items is not None and listed.shards == list(found):
            return listed.items
    return [_count_shard(shard, options) for shard in found]


def _count_shard(shard: str, options: dict[str, Any]) -> int:
    try:
        with open_store(shard, "tar", **options) as store:
            return len(store)
    except StoreError:  # the index is damaged, or missing on a server: read the shard instead
        return sum(1 for _ in stream_tar(shard, **options))


def assign_uncounted(order: Sequence[int], consumer: Consumer) -> list[ShardSlice]:
    """Assign shards of unknown length so that every sample is read exactly once."""
    consumers = consumer.ranks * consumer.workers
    # Consecutive consumers belong to different ranks, so the ranks of the first have one more.
    number = consumer.worker * consumer.ranks + consumer.rank
    if len(order) >= consumers:
        return [ShardSlice(shard) for shard in order[number::consumers]]
    shared = number % len(order)
    sharers = len(range(shared, consumers, len(order)))
    return [ShardSlice(order[shared], number // len(order), None, sharers)]


def assign_counted(
    order: Sequence[int], counts: Sequence[int], consumer: Consumer, even: Even = None
) -> list[ShardSlice]:
    """Assign shards of known length: one range of samples per rank, divided among its workers."""
    begin, end = rank_range(sum(counts), consumer.rank, consumer.ranks, even)
    # The first workers get the remaining samples, so a worker never has more batches than one
    # before it.
    per_worker, extra = divmod(end - begin, consumer.workers)
    start = begin + consumer.worker * per_worker + min(consumer.worker, extra)
    stop = start + per_worker + (consumer.worker < extra)
    return list(_slices_of_range(order, counts, start, stop))


def rank_range(total: int, rank: int, ranks: int, even: Even) -> tuple[int, int]:
    """Return the range of samples that a rank takes, as (start, stop).

    With None, the lengths of ranks may differ by one. With ``"drop"`` they are equal, and the last
    samples are left out.
    """
    if even is None:
        return total * rank // ranks, total * (rank + 1) // ranks
    each = total // ranks
    return rank * each, (rank + 1) * each


def _slices_of_range(
    order: Sequence[int], counts: Sequence[int], start: int, stop: int
) -> Iterator[ShardSlice]:
    """Split a range of samples into slices of shards."""
    before = 0
    for shard in order:
        end = before + counts[shard]
        first, last = max(start, before), min(stop, end)
        if first < last:
            yield ShardSlice(shard, first - before, last - before)
        before = end


class Share:
    """The samples of one consumer, in order, starting at any place.

    `counts` maps shards to their known numbers of samples. Reading a shard to its end adds its
    number, or raises an error if the known number is wrong. The next sample is drawn, with `seed`,
    from a buffer of `buffer` samples; a buffer below 2 keeps the order. `reading` holds options for
    `stream_tar`.
    """

    def __init__(
        self,
        shards: Sequence[str],
        slices: Sequence[ShardSlice],
        counts: dict[int, int],
        buffer: int,
        seed: int,
        reading: Mapping[str, Any],
    ) -> None:
        self._shards = shards
        self._reading = reading
        self._slices = slices
        self._buffer = buffer
        self._seed = seed
        self.counts = counts

    def samples(self, begin: int = 0) -> Iterator[ShardSample]:
        """Read the shards and yield all samples except the first `begin`.

        A shard of known length is not read if all its samples are among those. A shard that cannot
        be read is an OSError. A damaged shard, or one with the wrong number of samples, is a
        StoreError.
        """
        source = self._read_slices(self._first_needed(begin))
        # Samples of shards that are not read are None; they are all among those left out.
        kept = islice(shuffled(source, self._buffer, self._seed), begin, None)
        return (sample for sample in kept if sample is not None)

    def _read_slices(self, needed: int) -> Iterator[ShardSample | None]:
        """Yield the samples slice by slice; yield None for slices that end before `needed`."""
        position = 0
        for each in self._slices:
            known = self.counts.get(each.shard)
            count = None if known is None else each.count(known)
            if count is not None and position + count <= needed:
                yield from repeat(None, count)
                position += count
                continue
            for sample in self._read_slice(each):
                yield sample
                position += 1

    def _read_slice(self, part: ShardSlice) -> Iterator[ShardSample]:
        known = self.counts.get(part.shard)
        count = 0
        with closing(stream_tar(self._shards[part.shard], **self._reading)) as samples:
            for sample in samples:
                if count == part.stop and count != known:
                    return  # other consumers read the rest of the shard
                if count == known:
                    raise self._count_error(part.shard, f"more than the {known}")
                if count in range(part.start, count + 1, part.step):
                    yield ShardSample(part.shard, count, sample)
                count += 1
        if count < (known or 0):
            raise self._count_error(part.shard, f"{count}, not the {known}")
        self.counts[part.shard] = count

    def _count_error(self, shard: int, found: str) -> StoreError:
        return StoreError(
            f"{self._shards[shard]}: it holds {found} samples that it should have: has it been "
            "replaced? Make its index again, or give the right counts"
        )

    def _first_needed(self, begin: int) -> int:
        """Return a place in the source before which every sample is among the first `begin`."""
        if self._buffer < 2 or not begin:
            return begin
        total, all_known = self._count_known()
        if not all_known:  # while the buffer is full, later samples do not change the draws
            begin = min(begin, max(0, total - self._buffer + 1))
        given = bytearray(total + 1)
        for position in islice(shuffled(range(total), self._buffer, self._seed), begin):
            given[position] = 1
        return given.index(0)

    def _count_known(self) -> tuple[int, bool]:
        """Count the samples of slices up to the first of unknown length; say if all are known."""
        total = 0
        for each in self._slices:
            known = self.counts.get(each.shard)
            if known is None:
                return total, False
            total += each.count(known)
        return total, True


def shuffled(source: Iterable[_T], size: int, seed: int) -> Iterator[_T]:
    """Yield each item, drawn at random from a buffer that is refilled while the source lasts.

    Below 2 there is no buffer. The draws depend on `seed` and on the number of items alone.
    """
    if size < 2:
        yield from source
        return
    # A string seed gives the same draws on every machine and in every version of Python.
    draw = random.Random(str(seed)).randrange  # noqa: S311
    held: list[_T] = []
    for item in source:
        held.append(item)
        if len(held) == size:
            yield _swap_remove(held, draw(size))
    while held:
        yield _swap_remove(held, draw(len(held)))


def _swap_remove(held: list[_T], at: int) -> _T:
    held[at], held[-1] = held[-1], held[at]
    return held.pop()
