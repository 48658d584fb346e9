"""What the samples of a `ShardStream` and their order follow from."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fastdecode.arguments import is_int
from fastdecode.errors import StoreError
from fastdecode.stores import open_store
from fastdecode.stores.locations import manifest_of, shard_locations
from fastdecode.stores.tar import stream_tar
from fastdecode.torch._order import sample_seed
from fastdecode.torch.shard_deal import (
    Consumer,
    Even,
    Piece,
    deal_counted,
    deal_uncounted,
    rank_share,
)
from fastdecode.torch.shard_share import Entry, Share

__all__ = ["Plan", "plan_of"]


@dataclass(frozen=True)
class Plan:
    """The shards, and how they are put in order and dealt out.

    Attributes
    ----------
    shards : list of str
    counts : list of int or None
        Samples of each.
    shuffle : bool
    buffer : int
    seed : int
    even : {"drop", "repeat"} or None
    reading : dict
        Options of `stream_tar`.
    """

    shards: list[str]
    counts: list[int] | None
    shuffle: bool
    buffer: int
    seed: int
    even: Even
    reading: dict[str, Any]

    def pieces(self, consumer: Consumer, epoch: int) -> list[Piece]:
        """Deal out an epoch."""
        order = list(range(len(self.shards)))
        if self.shuffle:
            generator = torch.Generator("cpu").manual_seed(sample_seed(self.seed, epoch, "shards"))
            order = torch.randperm(len(order), generator=generator, device="cpu").tolist()
        if self.counts is None:
            return deal_uncounted(order, consumer)
        return deal_counted(order, self.counts, consumer, self.even)

    def share(self, consumer: Consumer, epoch: int, counts: dict[int, int]) -> Share:
        """Return a consumer's share, which adds to the counts where there are none yet."""
        known = counts if self.counts is None else dict(enumerate(self.counts))
        pieces = self.pieces(consumer, epoch)
        seed = sample_seed(self.seed, epoch, ("buffer", *consumer))
        return Share(self.shards, pieces, known, self.buffer, seed, self.reading)

    def sample_seed(self, entry: Entry, epoch: int) -> int:
        """Return what all random draws of a sample follow from: its place, and the epoch."""
        return sample_seed(self.seed, epoch, (entry.shard, entry.position), entry.time)

    def length(self, rank: int, ranks: int) -> int | None:
        """Count the samples of a rank, if shards are counted."""
        if self.counts is None:
            return None
        start, stop = rank_share(sum(self.counts), rank, ranks, self.even)
        return stop - start

    def most(self, rank: int, ranks: int, workers: int, epoch: int) -> dict[int, int] | None:
        """Count the samples of each worker of a rank, if shards are counted."""
        counts = self.counts
        if counts is None:
            return None
        return {
            worker: sum(
                piece.count(counts[piece.shard])
                for piece in self.pieces(Consumer(rank, ranks, worker, workers), epoch)
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


def plan_of(
    shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    counts: Sequence[int] | None,
    *,
    shuffle: bool,
    buffer: int,
    seed: int,
    even: Even,
    reading: dict[str, Any],
) -> Plan:
    """Check the arguments of a `ShardStream`, find the shards, and count them if that is needed.

    Raises
    ------
    OSError, StoreError
        If they are not there, or cannot be counted.
    TypeError, ValueError
        If an argument is wrong.
    """
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
    return Plan(found, counts, bool(shuffle), size, int(seed), even, options)


def _found(
    shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    storage_options: Mapping[str, Any] | None,
) -> list[str]:
    """List the shards, also of a folder of them."""
    if isinstance(shards, (str, os.PathLike)) and Path(shards).is_dir():
        shards = os.path.join(glob.escape(os.fspath(shards)), "*.tar")  # noqa: PTH118 - a pattern
    return shard_locations(shards, storage_options)


def _counted(
    shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    found: Sequence[str],
    options: dict[str, Any],
) -> list[int]:
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
