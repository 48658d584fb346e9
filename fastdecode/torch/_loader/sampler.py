"""A sampler of the caller's: its epochs, what it gives in one, and how that is resumed."""

from __future__ import annotations

import copy
import hashlib
import random
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, nullcontext
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler

from fastdecode._arguments import is_int, is_iterable, wrong_kind
from fastdecode.torch._errors import plain_index
from fastdecode.torch._loader.order import (
    DrawnBatch,
    Order,
    Sharding,
    count_occurrences,
    occurrence_key,
)
from fastdecode.torch._user_code import (
    global_states,
    preserve_generators,
    seed_global_generators,
    set_global_states,
)

_EPOCH_NAMES = ("epoch", "_epoch", "current_epoch", "cur_epoch")
_GLOBAL: tuple[Any, ...] = (torch.default_generator, random, np.random)
_KINDS = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)


class CallersSampler:
    """The caller's sampler, if any; `batches` says that it gives batches of indices.

    As long as the loader counts the epochs, it tells the sampler each one by its ``set_epoch``.
    Once the caller has set another epoch of the sampler, which shows in an attribute such as
    ``epoch``, the caller counts: the loader takes over that epoch, and leaves the sampler alone.
    """

    def __init__(self, sampler: Any, batches: bool = False) -> None:
        self.sampler = sampler
        self.batches = batches
        inner = getattr(sampler, "sampler", None)  # the one inside a BatchSampler
        self.both = (sampler,) if inner is None else (sampler, inner)
        self._told = [one for one in self.both if callable(getattr(one, "set_epoch", None))]
        self._last: int | None = 0
        self._loader_counts = True

    def __len__(self) -> int:
        if not isinstance(self.sampler, Sized):
            raise TypeError(f"the sampler {type(self.sampler).__name__} has no len()")
        return len(self.sampler)

    def _epoch(self) -> int | None:
        held: Iterator[Any] = (
            getattr(one, name, None) for one in self._told for name in _EPOCH_NAMES
        )
        return next((int(epoch) for epoch in held if is_int(epoch) and epoch >= 0), None)

    def caller_epoch(self) -> int | None:
        """Return the epoch that the caller has set since the last one was drawn, if any."""
        epoch = self._epoch()
        return None if epoch == self._last else epoch

    def begin(self, epoch: int) -> None:
        """Begin an epoch; decide whether the loader or the caller counts, and tell the sampler."""
        if self.caller_epoch() is not None:
            self._loader_counts = False
        if self._loader_counts:
            for sampler in self._told:
                sampler.set_epoch(epoch)
        self.settle()

    def settle(self) -> None:
        """Take the epoch that the sampler holds for its own: the caller has not set it."""
        self._last = self._epoch()

    def resume_counting(self) -> None:
        """Let the loader set the sampler's epoch again, because the caller set the loader's."""
        self._loader_counts = True
        self.settle()

    def order(
        self, sharding: Sharding, epoch: int, number: int, saved: Mapping[str, Any] | None
    ) -> Order:
        """Return the order of an epoch after its first batches; `saved` is from `save`."""
        size, last = sharding.batch_size, sharding.drop_last
        source = SampledEpoch(self, epoch, size, drop_last=last, saved=saved)
        rank, counts = self._rank(sharding.rank), source.counts
        order = Order(source, sharding.seed, epoch, number=source.number, counts=counts, rank=rank)
        order.skip(number)
        return order

    def _rank(self, rank: int) -> int:
        """Return the rank that has the items: the sampler's own, if it says, or the loader's."""
        own = (getattr(one, "rank", None) for one in self.both)
        return next((given for given in own if isinstance(given, int)), rank)

    @property
    def resumable(self) -> Any:
        """The sampler, or the one inside torch's BatchSampler, if it can save where it is."""
        inside = self.both if isinstance(self.sampler, BatchSampler) else self.both[:1]
        return next(filter(is_resumable, inside), None)

    def idle_state(self) -> dict[str, Any] | None:
        """Return what to save between two epochs; None if the sampler saves nothing."""
        sampler = self.resumable
        if sampler is None:
            return None
        how = {"number": 0, "state": copy.deepcopy(sampler.state_dict())}
        return {"items": [[]], "sampler": how}


class SampledEpoch(Iterator[list[Any]]):
    """The batches that a caller's sampler gives in an epoch, and what they are resumed from.

    A sampler that has ``state_dict`` goes on from its state. Any other is asked for the epoch's
    items again, with its generators as they were, up to those that are saved.

    `saved` is what `save` returned. The first batch is then batch `number`, and `counts` says how
    often each item was given before it.
    """

    def __init__(
        self,
        given: CallersSampler,
        epoch: int,
        size: int,
        *,
        drop_last: bool,
        saved: Mapping[str, Any] | None,
    ) -> None:
        self._given = given
        self._size = size
        self._drop_last = drop_last
        self._resumable = given.resumable
        self._items: Any = None
        self._generators: _Generators | None = None
        self.counts: Counter[Any] = Counter()
        how = {} if saved is None else saved["sampler"]
        self._batches: Iterator[list[Any]] = self._draw()
        self.number: int = how.get("number", 0)
        if "state" in how:
            self._load(copy.deepcopy(how["state"]))  # the sampler may go on changing it
        elif self._resumable is None or "generators" in how:
            self._generators = _Generators(given.both, epoch, how.get("generators"))
        if saved is not None:
            self._resume(saved["items"], how.get("counts"))

    def __next__(self) -> list[Any]:
        return next(self._batches)

    def _load(self, state: Any) -> None:
        """Let the sampler, or its iterator, go on from a state of its own."""
        if self._resumable is not None:
            self._resumable.load_state_dict(state)
            return
        self._iterate()
        if self._resumable is None:
            raise ValueError("the state has one of the sampler, which has no load_state_dict")
        self._resumable.load_state_dict(state)

    def _iterate(self) -> None:
        self._items = iter(self._given.sampler)
        if self._resumable is None and is_resumable(self._items):
            self._resumable, self._generators = self._items, None

    def _draw(self) -> Iterator[list[Any]]:
        """Draw batch after batch; indices become plain ints, with the same draws everywhere."""
        size = None if self._given.batches else self._size
        number = 0
        while True:
            set_by_caller = self._given.caller_epoch() is not None
            with nullcontext() if self._generators is None else self._generators.drawing():
                if self._items is None:
                    self._iterate()
                taken = islice(self._items, size) if size else next(self._items, None)
                batch = None if taken is None else _as_batch(taken)
            if not set_by_caller:  # a sampler may count its epochs itself
                self._given.settle()
            if batch is None or (size and len(batch) < (size if self._drop_last else 1)):
                return
            if not batch:
                raise ValueError(f"batch_sampler gave an empty batch: number {number}")
            yield batch
            if size and len(batch) < size:
                return
            number += 1

    def _resume(self, items: list[list[Any]], counts: Any) -> None:
        """Give the saved items first: those of the batches that had been drawn, but not used."""
        pending = items[1:]
        if counts is not None:
            self.counts.update(dict(counts))
        elif self._generators is not None:
            before: list[Any] = []
            for before in islice(self._batches, self.number):
                count_occurrences(self.counts, before)
            if [before, *islice(self._batches, len(pending))] != items:
                _warn_of_other_items(self._given.sampler)
        elif (first := next(self._batches, None)) is not None:  # it was saved between two epochs
            pending = [first]
        else:  # at its end
            self._items, self._batches = None, self._draw()
        self._batches = chain(pending, self._batches)

    def save(self, place: DrawnBatch) -> dict[str, Any]:
        """Return plain values that resume the epoch after a place in its order."""
        how: dict[str, Any]
        items, behind = [place.indices], place
        while behind.follows is not None:
            behind = behind.follows
            items.append(behind.indices)
        if self._generators is not None:
            how = {"number": place.number, "generators": self._generators.begin}
            return {"items": items, "sampler": how}
        counts = self.counts.copy()
        for pending in items[1:]:
            counts.subtract(map(occurrence_key, pending))
        given = [[key, n] for key, n in counts.items() if n]
        state = copy.deepcopy(self._resumable.state_dict())
        return {
            "items": items,
            "sampler": {"number": place.number, "counts": given, "state": state},
        }


def is_resumable(one: Any) -> bool:
    """Return whether an object saves where it is, and goes on from there."""
    return hasattr(one, "state_dict") and hasattr(one, "load_state_dict")


def _warn_of_other_items(sampler: Any) -> None:
    warnings.warn(
        f"{type(sampler).__name__} gives other items of this epoch than when the state was saved. "
        "Those that had been drawn come first; what follows may repeat items or leave some out. A "
        "sampler with state_dict and load_state_dict goes on exactly",
        RuntimeWarning,
        stacklevel=2,
    )


def _as_batch(given: Any) -> list[Any]:
    """Return the indices that a sampler gave for a batch, as plain ints where they are numbers."""
    if isinstance(given, (str, bytes)) or getattr(given, "ndim", 1) == 0 or not is_iterable(given):
        raise wrong_kind("batch_sampler", "an iterable of lists of indices", given)
    return [plain_index(item) for item in given]


class _Generators:
    """The random generators that a sampler draws from: those it holds, and the global ones.

    The first batch draws from the global generators, as in DataLoader. Later ones draw from streams
    that follow from these, so that other draws in between do not change the items, and the items
    can be drawn again from the states at the `begin`.
    """

    def __init__(self, samplers: Sequence[Any], epoch: int, begin: Any) -> None:
        values = (value for one in samplers for value in getattr(one, "__dict__", {}).values())
        held = [value for value in values if isinstance(value, _KINDS)]
        self._epoch = epoch
        self._restores = begin is not None
        self._streams: Any = None
        if begin is not None:
            for generator, state in zip(held, begin["held"], strict=False):
                _restore(generator, state)
        self.begin = begin or {
            "held": [_plain_state(generator) for generator in held],
            "global": plain_states(),
        }

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Draw from the sampler's streams."""
        if self._streams is None:
            with preserve_generators() if self._restores else nullcontext():
                if self._restores:
                    restore_states(self.begin["global"])
                yield
                self._streams = self._following()
            return
        with preserve_generators():
            set_global_states(self._streams)
            yield
            self._streams = global_states()

    def _following(self) -> Any:
        """Return states that follow from those of the global generators and from the epoch."""
        name = repr((self._epoch, plain_states()))
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        with preserve_generators():
            seed_global_generators(int.from_bytes(digest, "little") >> 1)
            return global_states()


def plain_states() -> list[Any]:
    """Return the states of the global generators as values that JSON can store."""
    return [_plain_state(generator) for generator in _GLOBAL]


def restore_states(states: Sequence[Any]) -> None:
    """Restore the global generators from `plain_states`."""
    for generator, state in zip(_GLOBAL, states, strict=True):
        _restore(generator, state)


def _plain_state(generator: Any) -> Any:
    """Return the state of a generator as values that JSON can store."""
    if isinstance(generator, torch.Generator):
        return bytes(generator.get_state().numpy()).hex()
    if isinstance(generator, np.random.Generator):
        return _plain(generator.bit_generator.state)
    if hasattr(generator, "getstate"):  # the module `random` or a Random
        return _plain(generator.getstate())
    return _plain(generator.get_state(legacy=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _restore(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(torch.frombuffer(bytearray.fromhex(state), dtype=torch.uint8))
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif hasattr(generator, "getstate"):
        version, numbers, following = state
        generator.setstate((version, tuple(numbers), following))
    else:
        generator.set_state(state)
