"""Where a loader stands: which epoch, and how many of its batches have been handed out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastdecode.arguments import is_int
from fastdecode.torch.order import Order, Sharding
from fastdecode.torch.tolerant import plain_index

__all__ = ["Position"]

_VERSION = 1


@dataclass
class Position:
    """A place in the sequence of all batches of all epochs.

    Attributes
    ----------
    epoch : int
    batch : int
        How many batches of it have been handed out.
    running : bool
        An iterator has begun the epoch; the next one begins the epoch after it.
    items : list or None
        The epoch's order, where only a sampler knows it.
    """

    epoch: int = 0
    batch: int = 0
    running: bool = False
    items: list[Any] | None = None

    def begun(self) -> Position:
        """Return where an iterator begins."""
        if self.running:
            return Position(self.epoch + 1, 0, running=True)
        return Position(self.epoch, self.batch, running=True, items=self.items)

    def moved_to(self, epoch: int) -> Position:
        """Return the beginning of an epoch, or this place if it is that epoch's and not begun.

        The usual loop calls `set_epoch` at each epoch, also at the one that is resumed.
        """
        if epoch == self.epoch and not self.running:
            return self
        return Position(epoch)

    def order(self, sharding: Sharding, sampler: Any, rank: int, ranks: int) -> Order:
        """Deal out the epoch, or take what the sampler gives, or what it gave before a resume."""
        if sampler is None:
            return sharding.order(self.epoch, rank, ranks)
        if self.items is None:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(self.epoch)
            # Plain ints have the same random numbers everywhere, and can be saved.
            self.items = [plain_index(item) for item in sampler]
        return sharding.of_sampler(self.epoch, self.items)

    def end(self) -> None:
        """Go on to the next epoch."""
        self.epoch, self.batch, self.running, self.items = self.epoch + 1, 0, False, None

    def state(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return plain values from which the rest of the epoch can be had again."""
        place = {"epoch": self.epoch, "batch": self.batch, "items": self.items}
        return {"version": _VERSION, **place, "settings": settings}

    @staticmethod
    def of_state(state: dict[str, Any], settings: dict[str, Any]) -> Position:
        """Take up a state of a loader with the same settings.

        Raises
        ------
        ValueError
            If it is none, or the batches would be others.
        """
        parts = {"version", "epoch", "batch", "items", "settings"}
        if not (isinstance(state, dict) and parts <= set(state) and state["version"] == _VERSION):
            raise ValueError("this is no state of a fastdecode Loader (of this version)")
        place = (state["epoch"], state["batch"])
        if not all(is_int(number) and number >= 0 for number in place) or not isinstance(
            state["settings"], dict
        ):
            raise ValueError(f"this state is damaged: epoch and batch are {place}")
        for name, value in settings.items():
            before = state["settings"].get(name)
            if before != value:
                raise ValueError(
                    f"the state was saved with {name}={before!r}, but this loader has {value!r}: "
                    "the batches that are left would be others"
                )
        return Position(state["epoch"], state["batch"], items=state["items"])
