"""Samples of a list of indices, with draws from torch's global generator, as one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from fastdecode.torch.draws import Draws
from fastdecode.torch.lane import LEFT

if TYPE_CHECKING:
    from fastdecode.resizing import ResizePlan
    from fastdecode.torch.lane import Lane
    from fastdecode.torch.way import Way

__all__ = ["fetch_in_order"]

_generator = torch.default_generator


class _Ended(Exception):
    """No more draws: an item has failed, or it would be the wrong ones."""


class _InOrder(Draws):
    """Draws from the global generator, and knows its state before each item.

    An item that is not for the lane is fetched when its turn comes, as it draws then, too.
    """

    def __init__(self, dataset: Any, indices: Sequence[Any]) -> None:
        super().__init__(())
        self._dataset = dataset
        self._indices = indices
        self.states = [_generator.get_state()]
        self.samples: dict[int, Any] = {}
        self.error: BaseException | None = None
        self.ended = False

    @property
    def seeds(self) -> None:
        return None

    def suits(self, way: Way) -> bool:
        """Only torch's generator can be put back to an earlier state here."""
        return not way.crop.from_python

    def plan(self, way: Way, at: int, width: int, height: int) -> ResizePlan:
        self._come_to(at)
        plan = way.crop.plan(width, height, None)
        for _ in range(way.draws):
            torch.rand(1, device="cpu")
        return plan

    def left(self, at: int) -> None:
        try:
            self._come_to(at)
            self.samples[at] = self._dataset.fetch(self._indices[at])
        except _Ended:
            return
        except BaseException as error:  # its turn to be raised comes after those before it
            self.error, self.ended = error, True

    def _come_to(self, at: int) -> None:
        """Be in the state that the item before has left."""
        if self.ended:
            raise _Ended
        if at < len(self.states) - 1:  # what it has drawn was for nothing
            _generator.set_state(self.states[at])
            return
        now = _generator.get_state()
        if at == 0 and not torch.equal(now, self.states[0]):  # reading has drawn
            self.ended = True
            raise _Ended
        self.states[at:] = [now, now]


def fetch_in_order(dataset: Any, indices: Sequence[Any], lane: Lane | None) -> list[Any]:
    """Fetch samples.

    Parameters
    ----------
    dataset : DecodeDataset
    indices : sequence of int
    lane : Lane or None
        By which to make those that it can.

    Returns
    -------
    list
        What ``[dataset.fetch(index) for index in indices]`` gives, and torch's global generator is
        in the same state after it.
    """
    if lane is None or not lane.fits:
        return [dataset.fetch(index) for index in indices]
    draws = _InOrder(dataset, indices)
    made = lane.make(indices, draws)
    if len(draws.states) == 1:  # it is not for the lane, or its reading draws
        _generator.set_state(draws.states[0])
        return [dataset.fetch(index) for index in indices]
    states = [*draws.states[:-1], _generator.get_state()]
    samples: list[Any] = []
    for at in range(len(states) - 1 - (draws.error is not None)):
        sample = draws.samples.get(at, made[at])
        if sample is LEFT:
            _generator.set_state(states[at])
            sample = dataset.fetch(indices[at])
            if not torch.equal(_generator.get_state(), states[at + 1]):
                # It drew for another in its place: those that follow had the wrong numbers.
                return [*samples, sample, *(dataset.fetch(index) for index in indices[at + 1 :])]
        samples.append(sample)
    _generator.set_state(states[-1])
    if draws.error is not None:
        try:
            raise draws.error
        finally:
            draws.error = None  # its traceback leads here
    return samples
