"""An iterable dataset in a `Loader`: each process reads its own copy, and their batches take turns.

So does torch's DataLoader. The processes are worker processes, or the calling one alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from enum import Enum
from itertools import chain, repeat
from typing import Any, NamedTuple

from torch.utils.data import get_worker_info

from fastdecode.torch._loader.batch_builder import EpochConfig, stop_iteration_error
from fastdecode.torch._loader.collate import ReadyBatch, collate
from fastdecode.torch._loader.order import DrawnBatch, Order, Sharding
from fastdecode.torch._loader.sampler import (
    CallersSampler,
    is_resumable,
    plain_states,
    restore_states,
)
from fastdecode.torch._user_code import (
    global_states,
    preserve_generators,
    seed_global_generators,
    set_global_states,
)


class Nothing(Enum):
    """What comes from a process in place of a batch."""

    ENDED = "ended"
    NOT_ITS_TURN = "not its turn"


class Begin(NamedTuple):
    """How an epoch begins, for every process that reads the dataset."""

    epoch: int
    seed: int
    """A process seeds the global generators with this and its number."""
    size: int
    drop_last: bool
    turn: int
    """The process whose batch comes first."""
    states: tuple[Any, ...]
    """What each process goes on from: see `StreamReader.state`; None if it begins."""


class GivenStream(CallersSampler):
    """An iterable dataset: like a sampler of the caller's, it says itself what comes.

    `processes` read it, and do so in each epoch if they are `lasting`.
    """

    def __init__(self, dataset: Any, processes: int, *, lasting: bool) -> None:
        super().__init__(dataset)
        self._told = [one for one in self._told if one is dataset]
        self.both = (dataset,)
        self._processes, self._lasting = processes, lasting
        self._kept: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.sampler)

    def idle_state(self) -> dict[str, Any] | None:
        """Return what the dataset keeps between two epochs, where the same copy begins both."""
        return self._kept

    def keep(self, states: Sequence[Any]) -> None:
        """Keep the states with which all processes have ended an epoch."""
        if self._lasting and all("dataset" in state for state in states):
            self._kept = _resuming(0, [{"dataset": state["dataset"]} for state in states])

    def order(
        self, sharding: Sharding, epoch: int, number: int, saved: Mapping[str, Any] | None
    ) -> StreamOrder:
        """Return what comes in an epoch after its first batches; `saved` is from `save`."""
        how = {} if saved is None else saved["sampler"]
        states = tuple(how.get("processes", repeat(None, self._processes)))
        return StreamOrder(self, sharding, epoch, number, how.get("turn", 0), states)


class StreamOrder(Order):
    """The batches of an epoch, as they come: nothing of it is drawn.

    Each place in the chain holds the number of the next process, and the state of each after it.
    """

    def __init__(
        self,
        given: GivenStream,
        sharding: Sharding,
        epoch: int,
        number: int,
        turn: int,
        states: tuple[Any, ...],
    ) -> None:
        super().__init__(iter(()), sharding.seed, epoch, number=number, rank=sharding.rank)
        size, last = sharding.batch_size, sharding.drop_last
        self.how = Begin(epoch, sharding.worker_seed(epoch), size, last, turn, states)
        self._given = given
        self._states = list(states)
        self._reading = set(range(len(states)))
        self.last.indices = [turn, *states]

    def draw(self, count: int = 1) -> None:
        """Do nothing."""

    def requests(self, _place: DrawnBatch) -> Iterator[tuple[int, Begin | None]]:
        """Yield what the processes are asked for in turn, until all are at their ends."""
        for request in chain([self.how] * len(self._states), repeat(None)):
            if not self._reading:
                return
            yield 0, request

    def reached(self, place: DrawnBatch, number: int, made: Any, state: Any) -> DrawnBatch:
        """Note what a process has made, and its state; return the place after that."""
        if isinstance(made, ReadyBatch) or made is Nothing.ENDED:
            self._states[number] = state
        if made is Nothing.ENDED:
            self._reading.discard(number)
            if not self._reading:
                self._given.keep(self._states)
        if not isinstance(made, ReadyBatch):
            return place
        following = [(number + 1) % len(self._states), *self._states]
        self.last.follows = self.last = DrawnBatch(self.last.number + 1, following)
        return self.last

    def save(self, place: DrawnBatch) -> dict[str, Any] | None:
        """Return plain values that resume the epoch after a place, as a sampler's do."""
        turn, *states = place.indices
        if {} in states:
            name = type(self._given.sampler).__name__
            raise RuntimeError(
                f"where {name} is in the middle of an epoch is not known: give it state_dict "
                "and load_state_dict, or save the state between two epochs"
            )
        return _resuming(turn, copy.deepcopy(states)) if place.number else None


def _resuming(turn: int, states: list[Any]) -> dict[str, Any]:
    """Return the same plain values as for a sampler."""
    return {"items": [], "sampler": {"turn": turn, "processes": states}}


class StreamReader:
    """An iterable dataset while a process reads it."""

    def __init__(self, config: EpochConfig) -> None:
        self._dataset = config.source.dataset
        self._collate_fn, self._channels_last = config.collate_fn, config.channels_last
        self._iterator: Any = None
        self._how: Any = None
        self._saved: dict[str, Any] = {}
        self._ended = True

    def begin(self, how: Begin, process: int) -> None:
        """Begin an epoch, or what is left of it."""
        self._how, self._ended, self._iterator = how, True, None
        self._saved = saved = how.states[process] or {}
        if "dataset" in saved:
            self._dataset.load_state_dict(copy.deepcopy(saved["dataset"]))
            if hasattr(self._dataset, "set_epoch"):  # the state may be of the end of another
                self._dataset.set_epoch(how.epoch)
        if "ended" in saved:
            return
        self._iterator = iter(self._dataset)
        if "iterator" in saved:
            self._iterator.load_state_dict(copy.deepcopy(saved["iterator"]))
        if "generators" in saved:
            restore_states(saved["generators"])
        self._ended = False

    def make(self) -> ReadyBatch | Nothing:
        """Make the next batch."""
        size, samples = self._how.size, list[Any]()
        with suppress(StopIteration):
            while len(samples) < size and not self._ended:
                samples.append(next(self._iterator))
        self._ended = len(samples) < size
        if not samples or (self._ended and self._how.drop_last):
            self._ended = True
            return Nothing.ENDED
        try:
            return collate(samples, None, 0, self._collate_fn, channels_last=self._channels_last)
        except StopIteration as error:
            raise stop_iteration_error(error) from error

    def state(self) -> dict[str, Any]:
        """Return what resumes the rest of this process's share; empty if that is not known."""
        if self._iterator is None:
            return self._saved
        parts = {"dataset": self._dataset, "iterator": self._iterator}
        if self._iterator is self._dataset:
            del parts["dataset"]
        if self._ended:
            del parts["iterator"]
        states = {name: one.state_dict() for name, one in parts.items() if is_resumable(one)}
        if self._ended:
            return {**states, "ended": True}
        return {**states, "generators": plain_states()} if states else {}


def seed_worker(seed: int) -> None:
    """Seed this worker process for an epoch, and say so in `get_worker_info`."""
    info: Any = get_worker_info()
    object.__setattr__(info, "seed", seed + info.id)  # torch refuses a plain assignment
    seed_global_generators(info.seed)


class StreamHere:
    """Reads an iterable dataset in the thread that asks for batches."""

    def ahead(self) -> int:
        """Return 0: nothing is made ahead."""
        return 0

    def epoch(self, config: EpochConfig, order: Any, place: DrawnBatch) -> Iterator[ReadyBatch]:
        """Begin an epoch."""
        return _EpochHere(config, order, place)

    def end(self) -> None:
        """Do nothing: no thread waits here."""

    def close(self) -> None:
        """Do nothing: an iterator holds what it needs."""


class _EpochHere(Iterator[ReadyBatch]):
    """The batches that this process makes."""

    def __init__(self, config: EpochConfig, order: StreamOrder, place: DrawnBatch) -> None:
        self._stream = StreamReader(config)
        self._order, self._place = order, place
        self._begun = self._ended = False
        self._generators: Any = None
        self._kept = self._drawing if config.seed_all else nullcontext

    def __next__(self) -> ReadyBatch:
        if self._ended:
            raise StopIteration
        with self._kept():
            if not self._begun:
                self._stream.begin(self._order.how, 0)
                self._begun = True
            made = self._stream.make()
            state = copy.deepcopy(self._stream.state())
        self._place = self._order.reached(self._place, 0, made, state)
        if isinstance(made, Nothing):
            self._ended = True
            raise StopIteration
        return made._replace(position=self._place.number)

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Let the dataset draw from generators of its own, and not from those of the training."""
        with preserve_generators():
            if self._generators is None:
                seed_global_generators(self._order.how.seed)
            else:
                set_global_states(self._generators)
            try:
                yield
            finally:
                self._generators = global_states()
