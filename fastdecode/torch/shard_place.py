"""Where a `ShardStream` stands in an epoch, as plain values to be saved and taken up again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastdecode._arguments import is_int

__all__ = ["Place", "after_batches"]

_VERSION = 1
_PARTS = {"version", "epoch", "workers", "turn", "given", "counts", "settings"}


@dataclass
class Place:
    """How far the consumers of one rank have come.

    Attributes
    ----------
    epoch : int
    workers : int
        Consumers of the rank: worker processes, or the process itself.
    turn : int
        The consumer that the next batch is from.
    given : dict of int to int
        Samples that each consumer has given; none where it is not named.
    counts : dict of int to int
        Samples of the shards that were read to their end.
    """

    epoch: int = 0
    workers: int = 1
    turn: int = 0
    given: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def state(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain values, that JSON can hold too."""
        return {
            "version": _VERSION,
            "epoch": self.epoch,
            "workers": self.workers,
            "turn": self.turn,
            "given": [list(pair) for pair in sorted(self.given.items())],
            "counts": [list(pair) for pair in sorted(self.counts.items())],
            "settings": dict(settings),
        }

    @staticmethod
    def of_state(state: Any, settings: Mapping[str, Any]) -> Place:
        """Take up a state of a stream with the same settings.

        Raises
        ------
        ValueError
            If it is none, or what is left would be something else.
        """
        if not (isinstance(state, dict) and set(state) >= _PARTS and state["version"] == _VERSION):
            raise ValueError("this is no state of a fastdecode ShardStream (of this version)")
        try:
            place = Place(
                state["epoch"],
                state["workers"],
                state["turn"],
                dict(state["given"]),
                dict(state["counts"]),
            )
            before = dict(state["settings"])
        except (TypeError, ValueError) as error:
            raise _damaged() from error
        numbers = [*place.given.items(), *place.counts.items(), (place.epoch, place.workers)]
        if not all(is_int(number) and number >= 0 for pair in numbers for number in pair):
            raise _damaged()
        if place.workers < 1 or place.turn not in range(place.workers):
            raise _damaged()
        for name, value in settings.items():
            if before.get(name) != value:
                raise ValueError(
                    f"the state was saved with {name}={before.get(name)!r}, but this stream has "
                    f"{value!r}: the samples that are left would be others"
                )
        return place


def after_batches(
    place: Place, batches: int, batch_size: int, most: Mapping[int, int] | None
) -> Place:
    """Work out where a stream stands from what a DataLoader has handed out.

    Parameters
    ----------
    place : Place
        Where the DataLoader began.
    batches : int
        How many it has handed out.
    batch_size : int
    most : mapping of int to int, optional
        Samples of each consumer's share, if that is known.

    Returns
    -------
    Place

    Raises
    ------
    ValueError
        If one consumer would have given more than its share: another came in its turns, and nobody
        knows which.

    Notes
    -----
    A DataLoader takes batches from its workers in turn, as long as all have more.
    """
    given = dict(place.given)
    for number in range(min(place.workers, batches)):
        worker = (place.turn + number) % place.workers
        turns = len(range(number, batches, place.workers))
        now = given.get(worker, 0) + turns * batch_size
        if most is not None:
            if now - most[worker] >= batch_size:
                raise ValueError(
                    f"{batches} batches of {batch_size} are more than worker {worker} has had: its "
                    f"share are {most[worker]} samples. Save at the end of the epoch instead"
                )
            now = min(now, most[worker])
        given[worker] = now
    turn = (place.turn + batches) % place.workers
    return Place(place.epoch, place.workers, turn, given, dict(place.counts))


def _damaged() -> ValueError:
    return ValueError("this state of a ShardStream is damaged")
