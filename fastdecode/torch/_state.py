"""The position of a loader: the epoch, and how many of its batches have been handed out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

from fastdecode._arguments import is_int
from fastdecode.torch._errors import plain_index
from fastdecode.torch._order import Order, Sharding

_VERSION = 1
_EPOCH_NAMES = ("epoch", "_epoch", "current_epoch", "cur_epoch")


class CallersSampler:
    """The caller's sampler, if any; `batches` says that it gives batches of indices.

    As long as the loader counts the epochs, it tells the sampler each one by its ``set_epoch``.
    Once the caller has set another epoch of the sampler, which shows in an attribute such as
    ``epoch``, the caller counts: the loader takes over that epoch, and leaves the sampler alone.
    """

    def __init__(self, sampler: Any, batches: bool = False) -> None:
        self.sampler = sampler
        self.batches = batches
        both = (sampler, getattr(sampler, "sampler", None))  # the one inside a BatchSampler
        self._told: list[Any] = [one for one in both if callable(getattr(one, "set_epoch", None))]
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

    def begin(self) -> None:
        """Decide, at the beginning of an epoch, whether the loader or the caller counts epochs."""
        if self.caller_epoch() is not None:
            self._loader_counts, self._last = False, self._epoch()

    def resume_counting(self) -> None:
        """Let the loader set the sampler's epoch again, because the caller set the loader's."""
        self._loader_counts, self._last = True, self._epoch()

    def draw(self, epoch: int) -> list[Any]:
        """Return everything that the sampler gives in an epoch.

        Integer indices become plain ints, which can be saved and give the same random numbers
        everywhere.
        """
        if self._loader_counts:
            for sampler in self._told:
                sampler.set_epoch(epoch)
        if self.batches:
            drawn = [[plain_index(item) for item in batch] for batch in self.sampler]
        else:
            drawn = [plain_index(item) for item in self.sampler]
        self._last = self._epoch()
        return drawn


@dataclass(frozen=True)
class EpochPlan:
    """An epoch as it was decided when it began, at the position `begin`."""

    begin: Position
    order: Order

    def position(self, batch: int) -> Position:
        """Return the position after a batch, from which the epoch can be resumed."""
        return replace(self.begin, batch=batch)


@dataclass(frozen=True)
class Position:
    """A position in the sequence of all batches of all epochs."""

    epoch: int = 0
    batch: int = 0
    """How many batches of the epoch have been handed out."""
    items: list[Any] | None = None
    """The items of the epoch, if they come from a sampler."""

    def plan(self, sharding: Sharding, sampler: CallersSampler) -> EpochPlan:
        """Plan the epoch from here on; a sampler is only asked if its items were not saved."""
        items = self.items
        if sampler.sampler is None:
            order = sharding.order(self.epoch)
        else:
            items = sampler.draw(self.epoch) if items is None else items
            take = sharding.from_batches if sampler.batches else sharding.from_sampler
            order = take(self.epoch, items)
        return EpochPlan(replace(self, items=items), order)

    def state(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return plain values from which the rest of the epoch can be restored."""
        place = {"epoch": self.epoch, "batch": self.batch, "items": self.items}
        return {"version": _VERSION, **place, "settings": settings}

    @staticmethod
    def from_state(state: dict[str, Any], settings: dict[str, Any]) -> Position:
        """Restore the state of a loader with the same settings; refuse any other."""
        check_state(state, "Loader", _VERSION, ("epoch", "batch"), "items")
        refuse_other(state["settings"], settings, "loader", "batches")
        return Position(state["epoch"], state["batch"], state["items"])


def check_state(state: Any, whose: str, version: int, numbers: Sequence[str], other: str) -> None:
    """Refuse what is no state of this version; `numbers` and `other` name what it must hold."""
    parts = {"version", "settings", *numbers, other}
    if not (isinstance(state, dict) and parts <= set(state) and state["version"] == version):
        raise ValueError(f"this is not a state of a fastdecode {whose} (of this version)")
    for name in numbers:
        if not is_int(state[name]) or state[name] < 0:
            raise ValueError(f"this state of a {whose} is damaged: {name} is {state[name]!r}")
    if not isinstance(state["settings"], dict) or not is_int(state["settings"].get("seed")):
        raise ValueError(f"this state of a {whose} is damaged: it has no seed")


def refuse_other(
    before: Mapping[str, Any], settings: Mapping[str, Any], whose: str, what: str
) -> None:
    """Refuse a state that was saved with other settings."""
    for name, value in settings.items():
        if before.get(name) != value:
            raise ValueError(
                f"the state was saved with {name}={before.get(name)!r}, but this {whose} has "
                f"{value!r}: the remaining {what} would differ"
            )
