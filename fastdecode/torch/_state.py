"""The position of a loader: the epoch, and how many of its batches have been handed out."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastdecode._arguments import is_int
from fastdecode.torch._errors import plain_index
from fastdecode.torch._order import Order, Sharding

_VERSION = 1
_EPOCH_NAMES = ("epoch", "_epoch", "current_epoch", "cur_epoch")


class _LoaderEpoch(int):
    """An epoch number set by a loader; its type tells it apart from one that the caller set."""

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


class _EpochWatcher:
    """A sampler with a ``set_epoch``, and the epoch that it had when the loader last looked.

    The epoch is read from an attribute of the sampler. While the loader counts epochs, it stores a
    `_LoaderEpoch` there, so it also notices when the caller sets the same epoch again.
    """

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self._left: int | None = None
        if self._epoch()[1] in (0, None):  # a new sampler; the caller has set any other epoch
            self.remember(counting=True)

    def _epoch(self) -> tuple[str, int | None]:
        """Return the name and value of the sampler's epoch; ("", None) if it shows none."""
        held = {name: getattr(self.sampler, name, None) for name in _EPOCH_NAMES}
        return next((both for both in held.items() if is_int(both[1])), ("", None))

    def remember(self, *, counting: bool) -> None:
        """Remember the sampler's present epoch."""
        name, self._left = self._epoch()
        if counting and self._left is not None:
            counted = _LoaderEpoch(self._left)
            with suppress(AttributeError):  # a read-only property: compare its value instead
                setattr(self.sampler, name, counted)
                self._left = counted

    def caller_epoch(self) -> int | None:
        """Return the epoch that the caller has set since the last look, or None."""
        now = self._epoch()[1]
        if now is None or now < 0 or type(now) is _LoaderEpoch:  # possibly set by another loader
            return None
        return int(now) if type(self._left) is _LoaderEpoch or now != self._left else None


class CallersSampler:
    """The caller's sampler, if any, and whether the loader or the caller sets its epoch.

    The loader does so until the caller calls the sampler's ``set_epoch``. From then on the loader
    does not change the sampler, and takes its own epoch from it. It reads an attribute such as
    ``epoch``, which torch's samplers and similar ones have. `batches` says that the sampler gives
    batches of indices.
    """

    def __init__(self, sampler: Any, batches: bool = False) -> None:
        self.sampler = sampler
        self.batches = batches
        both = (sampler, getattr(sampler, "sampler", None))  # the one inside a BatchSampler
        self._followed = [
            _EpochWatcher(one) for one in both if callable(getattr(one, "set_epoch", None))
        ]
        self._callers = False

    def __len__(self) -> int:
        if not isinstance(self.sampler, Sized):
            raise TypeError(f"the sampler {type(self.sampler).__name__} has no len()")
        return len(self.sampler)

    def caller_epoch(self) -> int | None:
        """Return the epoch that the caller has set since the last one was drawn, if any."""
        epochs = (followed.caller_epoch() for followed in self._followed)
        return next((epoch for epoch in epochs if epoch is not None), None)

    def resume_counting(self) -> None:
        """Let the loader set the sampler's epoch again, because the caller set the loader's."""
        self._callers = False
        for followed in self._followed:
            followed.remember(counting=True)

    def begin(self) -> None:
        """Decide, at the beginning of an epoch, whether the loader or the caller counts epochs."""
        if self.caller_epoch() is not None:
            self._callers = True
        for followed in self._followed:
            followed.remember(counting=not self._callers)

    def draw(self, epoch: int) -> list[Any]:
        """Return everything that the sampler gives in an epoch.

        Integer indices become plain ints, which can be saved and give the same random numbers
        everywhere.
        """
        if not self._callers:
            for followed in self._followed:
                followed.sampler.set_epoch(epoch)
        if self.batches:
            drawn = [[plain_index(item) for item in batch] for batch in self.sampler]
        else:
            drawn = [plain_index(item) for item in self.sampler]
        for followed in self._followed:
            followed.remember(counting=not self._callers)
        return drawn


@dataclass
class Position:
    """A position in the sequence of all batches of all epochs."""

    epoch: int = 0
    batch: int = 0
    """How many batches of the epoch have been handed out."""
    running: bool = False
    """An iterator has begun the epoch; the next iterator begins the following epoch."""
    items: list[Any] | None = None
    """The items of the epoch, if they come from a sampler."""
    asked: bool = False
    """The iterator was asked for a batch; some libraries make iterators only to inspect them."""
    _again: bool = False
    """The caller has set this epoch as the next one before a batch was asked for."""
    _moved: Position | None = None
    """The start of another epoch, which the caller has set before a batch was asked for."""

    def begin_iterator(self) -> Position:
        """Return the position at which a new iterator begins."""
        if self.running and not self._again:
            return Position(self.epoch + 1, 0, running=True)
        return Position(self.epoch, self.batch, running=True, items=self.items)

    def move_to(self, epoch: int) -> Position:
        """Return the start of an epoch, or this position if it is in that epoch and not begun.

        The usual training loop calls `set_epoch` for each epoch, also for the one it resumes.
        """
        if self.asked:
            return Position(epoch)
        if epoch != self.epoch:
            self._moved = Position(epoch)
            return self._moved
        self._again = True
        return self

    def latest(self) -> Position:
        """Return the position to which the caller has moved this one before asking for a batch."""
        return self if self._moved is None else self._moved.latest()

    def undo_start(self) -> None:
        """Undo the start of an epoch whose iterator was dropped before a batch was asked for."""
        self.running = self.asked

    def order(self, sharding: Sharding, sampler: CallersSampler) -> Order:
        """Return the epoch's order; a sampler is only asked if its items were not saved."""
        if sampler.sampler is None:
            return sharding.order(self.epoch)
        if self.items is None:
            self.items = sampler.draw(self.epoch)
        take = sharding.from_batches if sampler.batches else sharding.from_sampler
        return take(self.epoch, self.items)

    def end(self) -> None:
        """Go on to the next epoch."""
        self.epoch, self.batch, self.items = self.epoch + 1, 0, None
        self.running = self.asked = self._again = False

    def state(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return plain values from which the rest of the epoch can be restored."""
        place = {"epoch": self.epoch, "batch": self.batch, "items": self.items}
        return {"version": _VERSION, **place, "settings": settings}

    @staticmethod
    def from_state(state: dict[str, Any], settings: dict[str, Any], length: int | None) -> Position:
        """Restore the state of a loader with the same settings; refuse any other.

        `length` is the number of items, if the dataset is indexed with integers below it.
        """
        parts = {"version", "epoch", "batch", "items", "settings"}
        if not (isinstance(state, dict) and parts <= set(state) and state["version"] == _VERSION):
            raise ValueError("this is not a state of a fastdecode Loader (of this version)")
        place, saved = (state["epoch"], state["batch"]), state["settings"]
        if not all(is_int(number) and number >= 0 for number in place):
            raise ValueError(f"this state is damaged: epoch and batch are {place}")
        if not isinstance(saved, dict) or not is_int(saved.get("seed")):
            raise ValueError("this state is damaged: it has no seed")
        refuse_other(saved, settings, "loader", "batches")
        if not _are_items(state["items"], settings["sampler"], state["batch"], length):
            raise ValueError("this state is damaged: its items are not those of an epoch")
        return Position(state["epoch"], state["batch"], items=state["items"])


def _are_items(items: Any, sampled: bool | str, done: int, length: int | None) -> bool:
    """Return whether saved items may be those of an epoch of which `done` batches are done."""
    if items is None:
        return not sampled or not done
    if not sampled or not isinstance(items, list):
        return False
    if sampled == "batches":
        whole = all(isinstance(batch, list) and batch for batch in items)
        return whole and all(_is_index(index, length) for batch in items for index in batch)
    return all(_is_index(index, length) for index in items)


def _is_index(index: Any, length: int | None) -> bool:
    """Return whether a dataset may be indexed with this."""
    if is_int(index):
        return length is None or -length <= index < length
    return isinstance(index, (str, bytes, tuple)) or (length is None and isinstance(index, list))


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
