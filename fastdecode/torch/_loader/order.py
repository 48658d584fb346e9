"""The order of items and batches: shuffling, and sharding over ranks."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, cast

import torch
from torch.utils.data import get_worker_info

from fastdecode._arguments import is_int
from fastdecode._system.process import raised_by_signal


class Item(NamedTuple):
    """A sample to be made: its index (or a sampler's key), and the seed of all its draws."""

    index: Any
    seed: int


def sample_seed(seed: int, epoch: int, index: Any, time: int = 0, rank: int = 0) -> int:
    """Return the seed (63 bits) of all random draws of one item in one epoch.

    A sampler may give an item several times in an epoch, on one rank or on several. `time` counts
    its occurrences on a `rank`, so that the draws of all of them differ.
    """
    name = (seed, epoch, index, time, rank) if rank else (seed, epoch, index, time)
    text = repr(name if time or rank else name[:3])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
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


class DrawnBatch:
    """A batch of an order, or the place before the first one, and the batch that `follows`, if any.

    `number` batches of the epoch end with it.
    """

    __slots__ = ("follows", "indices", "number", "times")

    def __init__(self, number: int, indices: list[Any], times: list[int] | None = None) -> None:
        self.number = number
        self.indices = indices
        self.times = times
        """How often each index has occurred before; None if every index occurs once."""
        self.follows: DrawnBatch | None = None


class _Slices(Iterator[list[Any]]):
    """Slices of an array, which go on after a signal's handler has raised, unlike a generator."""

    def __init__(self, indices: Any, size: int, start: int, stop: int) -> None:
        self._indices, self._size, self._at, self._stop = indices, size, start, stop

    def __next__(self) -> list[Any]:
        if self._at >= self._stop:
            raise StopIteration
        taken: list[Any] = self._indices[self._at : self._at + self._size].tolist()
        self._at += self._size
        return taken


class Order:
    """The batches of one rank in one epoch: a chain that `draw` makes longer, up to `last`.

    As with torch's DataLoader, only the thread that asks for batches draws them from a sampler, and
    no further ahead than is needed. All others go along the chain. Each keeps its own place, and
    what all have passed is freed, so an endless sampler needs no more memory with time.

    `batches` gives the indices of each batch, from batch `number` on. `counts` says how often each
    index has occurred before, if they may occur more than once.
    """

    def __init__(
        self,
        batches: Iterator[list[Any]],
        seed: int,
        epoch: int,
        *,
        number: int = 0,
        counts: Counter[Any] | None = None,
        rank: int = 0,
    ) -> None:
        self.batches = batches
        self.seed = seed
        self.epoch = epoch
        self.counts = counts
        self.rank = rank
        self.last = DrawnBatch(number, [])
        self.ended = False
        self._error: BaseException | None = None

    def draw(self, count: int = 1) -> None:
        """Draw some more batches; an error of the sampler is kept for `raise_error`."""
        for _ in range(count):
            if self.ended:
                return
            try:
                indices = next(self.batches)
            except StopIteration:
                self.ended = True
                return
            except BaseException as error:
                if isinstance(self.batches, _Slices) and raised_by_signal(error):
                    raise
                self.ended, self._error = True, error
                if not isinstance(error, Exception):  # Ctrl-C
                    raise
                return
            times = None if self.counts is None else count_occurrences(self.counts, indices)
            self.last.follows = self.last = DrawnBatch(self.last.number + 1, indices, times)

    def raise_error(self) -> None:
        """Raise the error with which the sampler ended, if any: in place of the next batch."""
        if self._error is not None:
            raise self._error

    def skip(self, number: int) -> None:
        """Leave out the batches before a number."""
        while self.last.number < number and not self.ended:
            self.draw()

    def requests(self, place: DrawnBatch) -> Iterator[tuple[int, Any]]:
        """Yield what worker processes are asked for after a place: batches, by their items."""
        while not self.is_at_end(place):
            place = cast(DrawnBatch, place.follows)
            yield place.number, self.items(place)

    def reached(self, place: DrawnBatch, number: int, made: Any, state: Any) -> DrawnBatch:  # noqa: ARG002
        """Return the place after a batch that a worker process has sent."""
        while place.number < number and place.follows is not None:
            place = place.follows
        return place

    def save(self, place: DrawnBatch) -> dict[str, Any] | None:
        """Return what resumes the order after a place, if its number does not."""
        save = getattr(self.batches, "save", None)
        saved: dict[str, Any] | None = None if save is None else save(place)
        return saved

    def is_at_end(self, place: DrawnBatch) -> bool:
        """Return whether there is nothing after a place in the chain, and will not be."""
        return self.ended and place.follows is None

    def items(self, batch: DrawnBatch) -> list[Item]:
        """Return the items of a batch, with their seeds."""
        return [
            Item(index, sample_seed(self.seed, self.epoch, index, time, self.rank))
            for index, time in zip(batch.indices, batch.times or repeat(0), strict=False)
        ]


def occurrence_key(index: Any) -> int | str:
    """Return what tells an index from others: as in `sample_seed`, what it is in writing."""
    return index if type(index) is int else repr(index)


def count_occurrences(counts: Counter[Any], indices: list[Any]) -> list[int]:
    """Count indices, and return how often each has occurred before."""
    times = []
    for key in map(occurrence_key, indices):
        times.append(counts[key])
        counts[key] += 1
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

    def worker_seed(self, epoch: int) -> int:
        """Return from what worker processes get their seeds in an epoch."""
        return sample_seed(self.seed, epoch, "workers", rank=self.rank)

    def indices(self, epoch: int) -> Any:
        """Return this rank's indices: all ranks draw the same permutation and take turns in it."""
        if self.shuffle:
            generator = torch.Generator("cpu").manual_seed(sample_seed(self.seed, epoch, "order"))
            indices = torch.randperm(self.length, generator=generator, device="cpu")
        else:
            indices = torch.arange(self.length, device="cpu")
        return indices.numpy()[self.rank :: self.ranks][: self.share]

    def order(self, epoch: int, start: int = 0) -> Order:
        """Return an epoch's order from a batch on."""
        mine, size = self.indices(epoch), self.batch_size
        batches = _Slices(mine, size, start * size, self.batches(len(mine)) * size)
        return Order(batches, self.seed, epoch, number=start)

    def settings(self, *, sampled: bool | str) -> dict[str, Any]:
        """Return everything that determines the batches, for `Position.state`.

        The items from a sampler are those of one rank, so the settings then include the rank.
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
