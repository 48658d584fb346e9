"""Who reads which sample: the shards of a `ShardStream`, and each consumer's share of an epoch.

Without counts nobody knows how long a shard is. Each consumer then takes as many whole shards as
every other, and the shards that are left over are read by several consumers each, who take every
k-th sample. With counts each rank takes one stretch of all samples, laid end to end.
"""

from __future__ import annotations

import glob
import hashlib
import os
import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate, islice, repeat
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import torch

from fastdecode._arguments import is_int
from fastdecode.errors import StoreError
from fastdecode.stores import open_store
from fastdecode.stores._index import summary
from fastdecode.stores._mmap import is_uri, local_path
from fastdecode.stores.concat import agreed
from fastdecode.stores.locations import manifest_of, shard_locations
from fastdecode.stores.tar import Sample, stream_tar
from fastdecode.stores.tar.store import SUFFIX
from fastdecode.torch._order import sample_seed

Even: TypeAlias = 'Literal["drop", "repeat"] | None'
"""What makes the ranks' shares equal: leaving some samples out, or giving some twice."""

Locations: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

_PROBED_SHARDS, _PROBED_SAMPLES = 8, 64
_T = TypeVar("_T")


class Consumer(NamedTuple):
    """Who takes a share: a worker process of a rank, 0 of 1 where the rank has none."""

    rank: int = 0
    ranks: int = 1
    worker: int = 0
    workers: int = 1


class ShardSlice(NamedTuple):
    """Some samples of a shard, in their order there.

    `stop` is None for the end of the shard. `time` says how often these samples have come before in
    this epoch.
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


class ShardSample(NamedTuple):
    """A sample, and where it comes from; `time` as for `ShardSlice`."""

    shard: int
    position: int
    time: int
    sample: Sample


@dataclass(frozen=True)
class Assignment:
    """The shards, their order in each epoch, and which consumer reads what of them.

    `counts` are the samples of each shard, if they are known. `reading` are options of
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
        """Return what a consumer reads in an epoch."""
        order = list(range(len(self.shards)))
        if self.shuffle:
            generator = torch.Generator("cpu").manual_seed(sample_seed(self.seed, epoch, "shards"))
            order = torch.randperm(len(order), generator=generator, device="cpu").tolist()
        if self.counts is None:
            return assign_uncounted(order, consumer)
        return assign_counted(order, self.counts, consumer, self.even)

    def share(self, consumer: Consumer, epoch: int, counts: dict[int, int]) -> Share:
        """Return a consumer's share, which adds to the counts where there are none yet."""
        known = counts if self.counts is None else dict(enumerate(self.counts))
        slices = self.slices(consumer, epoch)
        seed = sample_seed(self.seed, epoch, ("buffer", *consumer))
        return Share(self.shards, slices, known, self.buffer, seed, self.reading)

    def sample_seed(self, sample: ShardSample, epoch: int) -> int:
        """Return what all random draws of a sample follow from: its place, and the epoch."""
        return sample_seed(self.seed, epoch, (sample.shard, sample.position), sample.time)

    def rank_length(self, rank: int, ranks: int) -> int | None:
        """Count the samples of a rank, if shards are counted."""
        if self.counts is None:
            return None
        start, stop = rank_range(sum(self.counts), rank, ranks, self.even)
        return stop - start

    def worker_lengths(
        self, rank: int, ranks: int, workers: int, epoch: int
    ) -> dict[int, int] | None:
        """Count the samples of each worker of a rank, if shards are counted."""
        counts = self.counts
        if counts is None:
            return None
        return {
            worker: sum(
                each.count(counts[each.shard])
                for each in self.slices(Consumer(rank, ranks, worker, workers), epoch)
            )
            for worker in range(workers)
        }

    def settings(self, rank: int, ranks: int) -> dict[str, Any]:
        """Return as plain values all that a rank's samples follow from."""
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


def assignment_of(
    shards: Locations,
    counts: Sequence[int] | None,
    *,
    shuffle: bool,
    buffer: int,
    seed: int,
    even: Even,
    reading: dict[str, Any],
) -> Assignment:
    """Check the arguments of a `ShardStream`, find the shards, and count them if that is needed."""
    if not is_int(buffer) or buffer < 1:
        raise ValueError(f"buffer must be an integer from 1, not {buffer!r}")
    if not is_int(seed):
        raise TypeError(f"seed must be an integer, not {seed!r}")
    if even not in (None, "drop", "repeat"):
        raise ValueError(f"even must be 'drop', 'repeat' or None, not {even!r}")
    options = {name: value for name, value in reading.items() if value is not None}
    found = _found(shards, reading["storage_options"])
    if counts is not None:
        counts = [int(count) for count in counts]
        if len(counts) != len(found) or min(counts, default=0) < 0:
            raise ValueError(f"counts must be a number for each of the {len(found)} shards")
    elif even is not None:
        counts = _counted(shards, found, options)
    size = int(buffer) if shuffle else 1
    return Assignment(found, counts, bool(shuffle), size, int(seed), even, options)


def _found(shards: Locations, storage_options: Mapping[str, Any] | None) -> list[str]:
    """List the shards, also of a folder of them."""
    if isinstance(shards, (str, os.PathLike)) and Path(shards).is_dir():
        shards = os.path.join(glob.escape(os.fspath(shards)), "*.tar")  # noqa: PTH118 - a pattern
    return shard_locations(shards, storage_options)


def _counted(shards: Locations, found: Sequence[str], options: dict[str, Any]) -> list[int]:
    """Count the samples of each shard: the manifest says it, or else the indexes."""
    if isinstance(shards, (str, os.PathLike)):
        listed = manifest_of(os.fspath(shards), options.get("storage_options"))
        if listed is not None and listed.items is not None and listed.shards == list(found):
            return listed.items
    return [_count(shard, options) for shard in found]


def _count(shard: str, options: dict[str, Any]) -> int:
    try:
        with open_store(shard, "tar", **options) as store:
            return len(store)
    except StoreError:  # its index is damaged, or missing on a server; a stream needs none
        return sum(1 for _ in stream_tar(shard, **options))


def have_targets(shards: Sequence[str], reading: Mapping[str, Any]) -> bool:
    """Whether one of the first samples of the first shards has a target.

    The first ones are those of the list, not of an epoch: all ranks and workers find the same. It
    is True, too, if that cannot be read: whoever goes on reading is told why.
    """
    empty = True
    for shard in shards[:_PROBED_SHARDS]:
        try:
            with closing(stream_tar(shard, **reading)) as samples:
                for sample in islice(samples, _PROBED_SAMPLES):
                    empty = False
                    if sample.target is not None:
                        return True
        except (OSError, StoreError):
            return True
    return empty


def agreed_classes(shards: Sequence[str]) -> list[str]:
    """Return the classes that the indexes beside local shards name.

    It is a ValueError if they name different ones: the same target would mean one thing here and
    another there.
    """
    known = []
    for shard in shards:
        if is_uri(shard):
            continue
        try:
            found = summary(local_path(shard) + SUFFIX)
        except (FileNotFoundError, StoreError):
            continue  # a stream needs none
        if found.items:
            known.append((shard, found.classes))
    return list(agreed(f"{shards[0]} and on", known)) if known else []


def assign_uncounted(order: Sequence[int], consumer: Consumer) -> list[ShardSlice]:
    """Assign shards of unknown length, in an epoch's order: no sample is missing or comes twice."""
    consumers = consumer.ranks * consumer.workers
    # Neighbouring consumers are of different ranks, so that ranks share the rest evenly, too.
    me = consumer.worker * consumer.ranks + consumer.rank
    whole = len(order) // consumers * consumers
    slices = [ShardSlice(shard) for shard in order[me:whole:consumers]]
    rest = order[whole:]
    if rest:
        group = me % len(rest)
        sharers = len(range(group, consumers, len(rest)))
        slices.append(ShardSlice(rest[group], me // len(rest), None, sharers))
    return slices


def assign_counted(
    order: Sequence[int], counts: Sequence[int], consumer: Consumer, even: Even = None
) -> list[ShardSlice]:
    """Assign shards of known length: each rank takes one stretch, and each worker a part of it."""
    begin, end = rank_range(sum(counts), consumer.rank, consumer.ranks, even)
    # The first workers have the samples that are over, so that they also have the more batches.
    each, over = divmod(end - begin, consumer.workers)
    start = begin + consumer.worker * each + min(consumer.worker, over)
    stop = start + each + (consumer.worker < over)
    return list(_stretch(order, counts, start, stop))


def rank_range(total: int, rank: int, ranks: int, even: Even) -> tuple[int, int]:
    """Return the first of all samples that a rank takes, and before which it ends.

    ``"drop"`` gives all ranks as many as there are for everyone, and leaves out the last ones;
    ``"repeat"`` as many as leave none out, and counts the first samples again from `total` on; with
    None ranks may differ by one.
    """
    if even is None:
        return total * rank // ranks, total * (rank + 1) // ranks
    each = total // ranks if even == "drop" else -(-total // ranks)
    return rank * each, (rank + 1) * each


def _stretch(
    order: Sequence[int], counts: Sequence[int], start: int, stop: int
) -> Iterator[ShardSlice]:
    """Cut a stretch of all samples, laid end to end again and again, at the shards' ends."""
    ends = list(accumulate(counts[shard] for shard in order))
    while start < stop:
        time, place = divmod(start, ends[-1])
        at = bisect_right(ends, place)
        before = ends[at - 1] if at else 0
        end = min(ends[at], place + stop - start)
        yield ShardSlice(order[at], place - before, end - before, 1, time)
        start += end - place


class Share:
    """The samples of one consumer in their order, from any place on.

    `counts` are samples of each shard, where they are known. Those of shards that are read to their
    end are added, unless they are known; if they differ from what is known, that is an error. The
    next sample is drawn among `buffer`, by `seed`; below 2 they keep their order. `reading` are
    options of `stream_tar`.
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
        """Read shards, and yield all samples but the first `begin`.

        Shards that only those come from are not read, if it is known how long they are. A shard
        that cannot be read is an OSError; one that is damaged, or has another number of samples
        than it should, a StoreError.
        """
        source = self._source(self._first_needed(begin))
        # What is left out has no sample where its shard was not read.
        kept = islice(shuffled(source, self._buffer, self._seed), begin, None)
        return (sample for sample in kept if sample is not None)

    def _source(self, needed: int) -> Iterator[ShardSample | None]:
        """Yield all samples in the order of the slices; None for what only precedes `needed`."""
        place = 0
        for each in self._slices:
            known = self.counts.get(each.shard)
            count = None if known is None else each.count(known)
            if count is not None and place + count <= needed:
                yield from repeat(None, count)
                place += count
                continue
            for sample in self._read(each):
                yield sample
                place += 1

    def _read(self, part: ShardSlice) -> Iterator[ShardSample]:
        known = self.counts.get(part.shard)
        count = 0
        with closing(stream_tar(self._shards[part.shard], **self._reading)) as samples:
            for sample in samples:
                if count == part.stop and count != known:
                    return  # the rest of the shard is for others
                if count == known:
                    raise self._miscounted(part.shard, f"more than the {known}")
                if count in range(part.start, count + 1, part.step):
                    yield ShardSample(part.shard, count, part.time, sample)
                count += 1
        if count < (known or 0):
            raise self._miscounted(part.shard, f"{count}, not the {known}")
        self.counts[part.shard] = count

    def _miscounted(self, shard: int, found: str) -> StoreError:
        return StoreError(
            f"{self._shards[shard]}: it holds {found} samples that it should have: has it been "
            "replaced? Make its index anew, or give the right counts"
        )

    def _first_needed(self, begin: int) -> int:
        """Return a place in the source before which all are among the first `begin` given out."""
        if self._buffer < 2 or not begin:
            return begin
        total, whole = self._known()
        if not whole:  # as long as the buffer is full, what comes later changes nothing
            begin = min(begin, max(0, total - self._buffer + 1))
        given = bytearray(total + 1)
        for place in islice(shuffled(range(total), self._buffer, self._seed), begin):
            given[place] = 1
        return given.index(0)

    def _known(self) -> tuple[int, bool]:
        """Count the samples of the first slices whose length is known; tell whether all are."""
        total = 0
        for each in self._slices:
            known = self.counts.get(each.shard)
            if known is None:
                return total, False
            total += each.count(known)
        return total, True


def shuffled(source: Iterable[_T], size: int, seed: int) -> Iterator[_T]:
    """Yield each item, drawn from a buffer of a size that is kept full as long as there are more.

    Below 2 there is no buffer. What is drawn follows from `seed`, and from how many items
    there are.
    """
    if size < 2:
        yield from source
        return
    # A string as the key, because its draws are the same on every machine and in every version.
    draw = random.Random(str(seed)).randrange  # noqa: S311
    held: list[_T] = []
    for item in source:
        held.append(item)
        if len(held) == size:
            yield _taken(held, draw(size))
    while held:
        yield _taken(held, draw(len(held)))


def _taken(held: list[_T], at: int) -> _T:
    held[at], held[-1] = held[-1], held[at]
    return held.pop()
