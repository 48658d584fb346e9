"""The position of a loader: the epoch, and how many of its batches have been handed out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastdecode._arguments import is_int
from fastdecode.torch._loader.order import DrawnBatch, Order, Sharding
from fastdecode.torch._loader.sampler import CallersSampler

_VERSION = 2


@dataclass(frozen=True)
class Position:
    """A position in the sequence of all batches of all epochs."""

    epoch: int = 0
    batch: int = 0
    """How many batches of the epoch have been handed out."""
    sampled: Mapping[str, Any] | None = None
    """What resumes the caller's sampler there; None if it begins the epoch."""
    order: Order | None = None
    """The order that has begun, and `place` in it, from which `sampled` follows."""
    place: DrawnBatch | None = None

    def begin(self, sharding: Sharding, given: CallersSampler) -> tuple[Order, DrawnBatch]:
        """Begin the epoch here; return its order, and the place in it."""
        if given.sampler is None:
            order = sharding.order(self.epoch, self.batch)
            return order, order.last
        given.begin(self.epoch)
        order = given.order(sharding, self.epoch, self.batch, self.sampled)
        return order, order.last

    def at(self, order: Order, place: DrawnBatch) -> Position:
        """Return the position at a place in an order."""
        return Position(order.epoch, place.number, None, order, place)

    def after(self, number: int) -> Position:
        """Return the position after a batch that has been drawn."""
        place = self.place
        while place is not None and place.number < number:
            place = place.follows
        return replace(self, batch=number, place=place)

    def detached(self, given: CallersSampler) -> Position:
        """Return the same position without its order: what a state or a copy of a loader holds."""
        sampled = self.sampled
        if self.order is not None and self.place is not None:
            sampled = self.order.save(self.place)
        elif sampled is None and not self.batch:
            sampled = given.idle_state()
        return replace(self, sampled=sampled, order=None, place=None)

    def state(self, settings: dict[str, Any], given: CallersSampler) -> dict[str, Any]:
        """Return plain values from which the rest of the epoch can be restored."""
        sampled = self.detached(given).sampled or {"items": None, "sampler": None}
        place = {"epoch": self.epoch, "batch": self.batch, **sampled}
        return {"version": _VERSION, **place, "settings": settings}

    @staticmethod
    def from_state(state: dict[str, Any], settings: dict[str, Any]) -> Position:
        """Restore the state of a loader with the same settings; refuse any other."""
        check_state(state, "Loader", _VERSION, ("epoch", "batch"), "sampler")
        refuse_other(state["settings"], settings, "loader", "batches")
        epoch, batch, items = state["epoch"], state["batch"], state["items"]
        if items is None:
            return Position(epoch, batch)
        if not (isinstance(items, list) and isinstance(state["sampler"], dict)):
            raise ValueError("this state of a Loader is damaged: it has no sampled items")  # noqa: TRY004
        return Position(epoch, batch, {"items": items, "sampler": state["sampler"]})


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
