"""Which items go into which batch: shuffling, sharding over ranks, and where an epoch stands."""

from __future__ import annotations

import hashlib
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Order", "Sharding", "sample_seed", "world"]


def sample_seed(seed: int, epoch: int, index: Any) -> int:
    """Derive 63 bits from which all random draws of one item of one epoch follow."""
    name = repr((seed, epoch, index)).encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") >> 1


def world(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return this process's rank and how many there are, from torch.distributed if not given.

    Raises
    ------
    ValueError
        If only one is given, or the rank is not below the number of ranks.
    """
    if (rank is None) != (world_size is None):
        raise ValueError("give both rank and world_size, or neither")
    if rank is None or world_size is None:
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return 0, 1
        return distributed.get_rank(), distributed.get_world_size()
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be from 0 to world_size - 1, not {rank} of {world_size}")
    return rank, world_size


@dataclass(frozen=True)
class Order:
    """The batches of one rank in one epoch.

    Attributes
    ----------
    items : tensor of int64, or list
        Indices (or keys, from a sampler), in order.
    batch_size : int
    count : int
        How many batches there are.
    """

    items: Any
    batch_size: int
    count: int

    def batch(self, number: int) -> list[Any]:
        """Return the items of a batch."""
        some = self.items[number * self.batch_size : (number + 1) * self.batch_size]
        return some.tolist() if isinstance(some, torch.Tensor) else list(some)


@dataclass(frozen=True)
class Sharding:
    """How items are put in order and dealt out.

    Attributes
    ----------
    length : int
        Of the dataset.
    batch_size : int
    shuffle : bool
    drop_last : bool
        Leave out an incomplete batch, and what would give one rank a batch more than another.
    seed : int
    """

    length: int
    batch_size: int
    shuffle: bool
    drop_last: bool
    seed: int

    def share(self, rank: int, ranks: int) -> int:
        """Count the items of a rank: no item twice, so that some ranks may have one more."""
        most = self.length // ranks if self.drop_last else -(-(self.length - rank) // ranks)
        return most - most % self.batch_size if self.drop_last else most

    def batches(self, items: int) -> int:
        """Count the batches of so many items."""
        return items // self.batch_size if self.drop_last else -(-items // self.batch_size)

    def order(self, epoch: int, rank: int, ranks: int) -> Order:
        """Deal out an epoch: every rank draws the same permutation and takes each ranks-th item."""
        if self.shuffle:
            generator = torch.Generator().manual_seed(sample_seed(self.seed, epoch, "order"))
            items = torch.randperm(self.length, generator=generator)
        else:
            items = torch.arange(self.length)
        share = self.share(rank, ranks)
        return Order(items[rank::ranks][:share], self.batch_size, self.batches(share))

    def of_items(self, items: list[Any]) -> Order:
        """Take the order that a sampler gave; it does its own sharding."""
        return Order(items, self.batch_size, self.batches(len(items)))

    def length_of(self, sampler: object) -> int:
        """Count the batches that a sampler gives."""
        if not isinstance(sampler, Sized):
            raise TypeError(f"the sampler {type(sampler).__name__} has no len()")
        return self.batches(len(sampler))
