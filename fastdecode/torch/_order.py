"""The order of items and batches: shuffling, and sharding over ranks."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import Any, NamedTuple

import torch
from torch.utils.data import get_worker_info

from fastdecode._arguments import is_int


class Item(NamedTuple):
    """A sample to be made: its index (or a sampler's key), and the seed of all its draws."""

    index: Any
    seed: int


def sample_seed(seed: int, epoch: int, index: Any, time: int = 0) -> int:
    """Return the seed (63 bits) of all random draws of one item in one epoch.

    A sampler that draws with replacement gives an item several times in an epoch. `time` counts
    these occurrences, so that their draws differ.
    """
    name = repr((seed, epoch, index, time) if time else (seed, epoch, index))
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def world(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return this process's rank and the world size, from torch.distributed if not given."""
    if (rank is None) != (world_size is None):
        raise ValueError("give both rank and world_size, or neither")
    if rank is None or world_size is None:
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return 0, 1
        return distributed.get_rank(), distributed.get_world_size()
    if not (is_int(rank) and is_int(world_size) and 0 <= rank < world_size):
        raise ValueError(f"rank must be from 0 to world_size - 1, not {rank!r} of {world_size!r}")
    return rank, world_size


_shared = 0  # seeds that this process has shared; ranks that make the same loaders count alike


class Seed:
    """The seed that the caller has given, or one that is drawn; ranks agree on it by `share`.

    `given` says that it is the caller's own.
    """

    def __init__(self, given: int | None, generator: torch.Generator | None = None) -> None:
        self.given = given is not None
        self.value = _draw(generator) if given is None else int(given)
        self._settled = self.given

    def take_over(self, value: int) -> None:
        """Take over a seed that was saved."""
        self.value, self._settled = value, True

    def share(self, ranks: tuple[int | None, int | None], what: str, *, shuffle: bool) -> None:
        """Take over the seed of rank 0, once, if ranks share the items.

        Rank 0 leaves it in the store of torch.distributed, with `what` it is for, and waits for
        nobody. Where torch.distributed does not run, only ranks that `shuffle` must agree.
        """
        global _shared
        rank, size = world(*ranks)
        if self._settled or size == 1:
            return
        if (rank, size) != world(None, None):
            if shuffle:
                raise ValueError(
                    f"each of the {size} ranks would shuffle with its own seed, so items would be "
                    "lost: give all ranks the same seed="
                )
            return
        if get_worker_info() is not None:  # a forked process must not use the store
            raise ValueError(
                "the ranks have not agreed on a seed: give seed=, or initialise torch.distributed "
                "before this is made"
            )
        store: Any = torch.distributed.distributed_c10d._get_default_store()
        key = f"fastdecode/seed/{_shared}"
        _shared += 1
        self._settled = True
        if rank == 0:
            store.set(key, f"{self.value} {what}")
            return
        value, _, other = store.get(key).decode().partition(" ")
        if other != what:
            raise ValueError(
                f"rank {rank} makes {what} where rank 0 makes {other}, so they cannot agree on a "
                "seed: make the same ones in the same order on all ranks, or give seed="
            )
        self.value = int(value)


def _draw(generator: torch.Generator | None) -> int:
    """Draw a seed, by default from torch's global generator."""
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**62, (), generator=generator, device=device))


@dataclass(frozen=True)
class Order:
    """The batches of one rank in one epoch."""

    indices: Any
    """All indices in order: an int64 array or a list."""
    batch_size: int
    """With `bounds`, the size of the largest batch."""
    count: int
    """The number of batches."""
    seed: int
    epoch: int
    times: list[int] | None = None
    """How often each index has occurred before; None if every index occurs once."""
    bounds: list[int] | None = None
    """The start of each batch, then the end of the last one; None if all have `batch_size`."""

    def batch(self, number: int) -> list[Item]:
        """Return the items of a batch."""
        start, stop = number * self.batch_size, (number + 1) * self.batch_size
        if self.bounds is not None:
            start, stop = self.bounds[number : number + 2]
        some = self.indices[start:stop]
        indices = some if isinstance(some, list) else some.tolist()
        times = repeat(0) if self.times is None else self.times[start:stop]
        return [
            Item(index, sample_seed(self.seed, self.epoch, index, time))
            for index, time in zip(indices, times, strict=False)
        ]


def _occurrences(indices: list[Any]) -> list[int]:
    """Count for each index how often it has occurred before."""
    seen: Counter[Hashable] = Counter()
    times = []
    for index in indices:
        key = index if isinstance(index, Hashable) else repr(index)
        times.append(seen[key])
        seen[key] += 1
    return times


@dataclass(frozen=True)
class Sharding:
    """How items are ordered and divided among ranks.

    `drop_last` leaves out an incomplete batch, and the items that would give one rank more batches
    than another.
    """

    length: int
    batch_size: int
    shuffle: bool
    drop_last: bool
    seed: int
    rank: int = 0
    ranks: int = 1

    @property
    def share(self) -> int:
        """How many items this rank has; no item is repeated, so some ranks may have one more."""
        if not self.drop_last:
            return -(-(self.length - self.rank) // self.ranks)
        most = self.length // self.ranks
        return most - most % self.batch_size

    def batches(self, items: int) -> int:
        """Return the number of batches for a number of items."""
        return items // self.batch_size if self.drop_last else -(-items // self.batch_size)

    def order(self, epoch: int) -> Order:
        """Return an epoch's order: all ranks draw the same permutation and take turns in it."""
        if self.shuffle:
            generator = torch.Generator("cpu").manual_seed(sample_seed(self.seed, epoch, "order"))
            indices = torch.randperm(self.length, generator=generator, device="cpu")
        else:
            indices = torch.arange(self.length, device="cpu")
        mine = indices.numpy()[self.rank :: self.ranks][: self.share]
        return Order(mine, self.batch_size, self.batches(len(mine)), self.seed, epoch)

    def from_sampler(self, epoch: int, indices: list[Any]) -> Order:
        """Return the order from the indices of a sampler, which must shard by itself."""
        count = self.batches(len(indices))
        return Order(indices, self.batch_size, count, self.seed, epoch, _occurrences(indices))

    def from_batches(self, epoch: int, batches: list[list[Any]]) -> Order:
        """Return the order from the batches of a batch sampler, which may differ in size."""
        sizes = [len(batch) for batch in batches]
        if 0 in sizes:
            raise ValueError(f"batch_sampler gave an empty batch: number {sizes.index(0)}")
        indices = [index for batch in batches for index in batch]
        bounds = [0, *accumulate(sizes)]
        largest = max(sizes, default=1)
        times = _occurrences(indices)
        return Order(indices, largest, len(batches), self.seed, epoch, times, bounds)

    def settings(self, *, sampled: bool | str) -> dict[str, Any]:
        """Return everything that determines the batches, for `Position.state`.

        The items from a sampler are those of one rank, and are stored in the state, so the settings
        then include the rank.
        """
        return {
            "sampler": sampled,
            **({"rank": self.rank} if sampled else {}),
            "length": self.length,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "seed": self.seed,
            "world_size": self.ranks,
        }
