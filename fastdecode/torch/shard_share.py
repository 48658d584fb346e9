"""One consumer's share of an epoch: its samples in their order, from any place of it on."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice, repeat
from typing import Any, NamedTuple, TypeVar

from fastdecode.errors import StoreError
from fastdecode.stores.tar import Sample, stream_tar
from fastdecode.torch.shard_deal import Piece

__all__ = ["Entry", "Share", "shuffled"]

_T = TypeVar("_T")


class Entry(NamedTuple):
    """A sample, and where it comes from.

    Attributes
    ----------
    shard : int
    position : int
        In its shard, counted from 0.
    time : int
        How often it has come before in this epoch.
    sample : Sample
    """

    shard: int
    position: int
    time: int
    sample: Sample


class Share:
    """The samples of one consumer.

    Parameters
    ----------
    shards : sequence of str
        Their locations.
    pieces : sequence of Piece
    counts : dict of int to int
        Samples of each shard, where they are known. Those of shards that are read to their end are
        added, unless they are known; if they differ from what is known, that is an error.
    buffer : int
        Samples among which the next one is drawn; below 2 they keep their order.
    seed : int
        Of these draws.
    reading : mapping
        Options of `stream_tar`.
    """

    def __init__(
        self,
        shards: Sequence[str],
        pieces: Sequence[Piece],
        counts: dict[int, int],
        buffer: int,
        seed: int,
        reading: Mapping[str, Any],
    ) -> None:
        self._shards = shards
        self._reading = reading
        self._pieces = pieces
        self._buffer = buffer
        self._seed = seed
        self.counts = counts

    def entries(self, begin: int = 0) -> Iterator[Entry]:
        """Read shards, and yield samples.

        Parameters
        ----------
        begin : int
            How many of them to leave out. Shards that only they come from are not read, if it is
            known how long they are.

        Raises
        ------
        OSError
            If a shard cannot be read.
        StoreError
            If it is damaged, or has another number of samples than it should.
        """
        source = self._source(self._first_needed(begin))
        # What is left out has no sample where its shard was not read.
        kept = islice(shuffled(source, self._buffer, self._seed), begin, None)
        return (entry for entry in kept if entry is not None)

    def _source(self, needed: int) -> Iterator[Entry | None]:
        """Yield all samples in the order of the pieces; None for what only precedes `needed`."""
        place = 0
        for piece in self._pieces:
            known = self.counts.get(piece.shard)
            count = None if known is None else piece.count(known)
            if count is not None and place + count <= needed:
                yield from repeat(None, count)
                place += count
                continue
            for entry in self._read(piece):
                yield entry
                place += 1

    def _read(self, piece: Piece) -> Iterator[Entry]:
        known = self.counts.get(piece.shard)
        count = 0
        with closing(_iterator(self._opened(piece.shard))) as samples:
            for sample in samples:
                if count == piece.stop and count != known:
                    return  # the rest of the shard is for others
                if count == known:
                    raise self._miscounted(piece.shard, f"more than the {known}")
                if count in range(piece.start, count + 1, piece.step):
                    yield Entry(piece.shard, count, piece.time, sample)
                count += 1
        if count < (known or 0):
            raise self._miscounted(piece.shard, f"{count}, not the {known}")
        self.counts[piece.shard] = count

    def _opened(self, shard: int) -> Iterator[Sample]:
        return stream_tar(self._shards[shard], **self._reading)

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
        """Count the samples of the first pieces whose length is known; tell whether all are."""
        total = 0
        for piece in self._pieces:
            known = self.counts.get(piece.shard)
            if known is None:
                return total, False
            total += piece.count(known)
        return total, True


def shuffled(source: Iterable[_T], size: int, seed: int) -> Iterator[_T]:
    """Yield each item, drawn from a buffer that is kept full as long as there are more.

    Parameters
    ----------
    source : iterable
    size : int
        Of the buffer; below 2 there is none.
    seed : int
        What is drawn follows from it, and from how many items there are.
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


def _iterator(samples: Iterable[Sample]) -> Generator[Sample, None, None]:
    """Make a generator of any iterable: that can be closed."""
    yield from samples
