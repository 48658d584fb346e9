"""Where a loader stands: which epoch, and how many of its batches have been handed out."""

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


class _Counted(int):
    """An epoch that a loader has counted, told by its type from one that the caller has set."""

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


class _Followed:
    """A sampler with a ``set_epoch``, and the epoch that it had when the loader last looked.

    That is told by an attribute. While the loader counts, it leaves its own kind of number there,
    so that even the same epoch, set by the caller, is another object.
    """

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self._left: int | None = None
        if self._epoch()[1] in (0, None):  # a new one's; any other the caller has set already
            self.look(counting=True)

    def _epoch(self) -> tuple[str, int | None]:
        """Return what the sampler calls its epoch, and that; None where it does not show any."""
        held = {name: getattr(self.sampler, name, None) for name in _EPOCH_NAMES}
        return next((both for both in held.items() if is_int(both[1])), ("", None))

    def look(self, *, counting: bool) -> None:
        """Take the epoch that the sampler has as known."""
        name, self._left = self._epoch()
        if counting and self._left is not None:
            counted = _Counted(self._left)
            with suppress(AttributeError):  # a property is compared by its value
                setattr(self.sampler, name, counted)
                self._left = counted

    def told(self) -> int | None:
        """Return the epoch that the caller has set since; None if it has not."""
        now = self._epoch()[1]
        if now is None or now < 0 or type(now) is _Counted:  # and be it another loader's
            return None
        return int(now) if type(self._left) is _Counted or now != self._left else None


class CallersSampler:
    """The sampler of the caller's, of items or of whole batches, if any, and who counts its epochs.

    The loader does, until the caller calls the sampler's ``set_epoch``: from then on the sampler is
    left alone, and the loader's epoch is the one that the caller has set. That shows in the
    sampler's attribute ``epoch``, which torch's and its like have. `batches` says that it gives
    batches of indices.
    """

    def __init__(self, sampler: Any, batches: bool = False) -> None:
        self.sampler = sampler
        self.batches = batches
        both = (sampler, getattr(sampler, "sampler", None))  # a BatchSampler's own
        self._followed = [
            _Followed(one) for one in both if callable(getattr(one, "set_epoch", None))
        ]
        self._callers = False

    def __len__(self) -> int:
        if not isinstance(self.sampler, Sized):
            raise TypeError(f"the sampler {type(self.sampler).__name__} has no len()")
        return len(self.sampler)

    def told(self) -> int | None:
        """Return the epoch that the caller has set since the last one was drawn, if any."""
        told = (followed.told() for followed in self._followed)
        return next((epoch for epoch in told if epoch is not None), None)

    def counted(self) -> None:
        """Take it that the loader was told the epoch: it counts the sampler's again."""
        self._callers = False
        for followed in self._followed:
            followed.look(counting=True)

    def begin(self) -> None:
        """Settle at the beginning of an epoch who counts."""
        if self.told() is not None:
            self._callers = True
        for followed in self._followed:
            followed.look(counting=not self._callers)

    def draw(self, epoch: int) -> list[Any]:
        """Return all that the sampler gives in an epoch.

        Indices that are integers become plain ints, which have the same random numbers everywhere,
        and can be saved.
        """
        if not self._callers:
            for followed in self._followed:
                followed.sampler.set_epoch(epoch)
        if self.batches:
            drawn = [[plain_index(item) for item in batch] for batch in self.sampler]
        else:
            drawn = [plain_index(item) for item in self.sampler]
        for followed in self._followed:
            followed.look(counting=not self._callers)
        return drawn


@dataclass
class Position:
    """A place in the sequence of all batches of all epochs."""

    epoch: int = 0
    batch: int = 0
    """How many batches of it have been handed out."""
    running: bool = False
    """An iterator has begun the epoch; the next one begins the epoch after it."""
    items: list[Any] | None = None
    """The epoch's order, where only a sampler knows it."""
    asked: bool = False
    """The iterator was asked for a batch. Libraries also make iterators to look at them."""
    _again: bool = False
    """While nothing was asked for, the caller has named this epoch as the next one."""
    _moved: Position | None = None
    """While nothing was asked for, the caller has named another epoch, which begins there."""

    def begun(self) -> Position:
        """Return where an iterator begins."""
        if self.running and not self._again:
            return Position(self.epoch + 1, 0, running=True)
        return Position(self.epoch, self.batch, running=True, items=self.items)

    def moved_to(self, epoch: int) -> Position:
        """Return the beginning of an epoch, or this place if it is that epoch's and not begun.

        The usual loop calls `set_epoch` at each epoch, also at the one that is resumed.
        """
        if self.asked:
            return Position(epoch)
        if epoch != self.epoch:
            self._moved = Position(epoch)
            return self._moved
        self._again = True
        return self

    def last(self) -> Position:
        """Return where the caller has moved this place to before anything was asked for."""
        return self if self._moved is None else self._moved.last()

    def unasked(self) -> None:
        """Take back the beginning of an epoch whose iterator was dropped as it was made."""
        self.running = self.asked

    def order(self, sharding: Sharding, sampler: CallersSampler) -> Order:
        """Deal out the epoch, or take what the sampler gives, or what it gave before a resume."""
        if sampler.sampler is None:
            return sharding.order(self.epoch)
        if self.items is None:
            self.items = sampler.draw(self.epoch)
        take = sharding.of_batches if sampler.batches else sharding.of_sampler
        return take(self.epoch, self.items)

    def end(self) -> None:
        """Go on to the next epoch."""
        self.epoch, self.batch, self.items = self.epoch + 1, 0, None
        self.running = self.asked = self._again = False

    def state(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return plain values from which the rest of the epoch can be had again."""
        place = {"epoch": self.epoch, "batch": self.batch, "items": self.items}
        return {"version": _VERSION, **place, "settings": settings}

    @staticmethod
    def of_state(state: dict[str, Any], settings: dict[str, Any]) -> Position:
        """Take up a state of a loader with the same settings, or refuse it."""
        parts = {"version", "epoch", "batch", "items", "settings"}
        if not (isinstance(state, dict) and parts <= set(state) and state["version"] == _VERSION):
            raise ValueError("this is not a state of a fastdecode Loader (of this version)")
        place = (state["epoch"], state["batch"])
        if not all(is_int(number) and number >= 0 for number in place) or not isinstance(
            state["settings"], dict
        ):
            raise ValueError(f"this state is damaged: epoch and batch are {place}")
        refuse_other(state["settings"], settings, "loader", "batches")
        return Position(state["epoch"], state["batch"], items=state["items"])


def refuse_other(
    before: Mapping[str, Any], settings: Mapping[str, Any], whose: str, what: str
) -> None:
    """Refuse a state that was saved with other settings."""
    for name, value in settings.items():
        if before.get(name) != value:
            raise ValueError(
                f"the state was saved with {name}={before.get(name)!r}, but this {whose} has "
                f"{value!r}: the {what} that are left would be others"
            )
