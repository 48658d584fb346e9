"""Where the random numbers of a batch's samples come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastdecode.resizing import ResizePlan
    from fastdecode.torch.way import Way

__all__ = ["Draws"]


class Draws:
    """Random numbers of the samples of one call: each item's follow from a seed of its own.

    Parameters
    ----------
    seeds : sequence of int
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self._seeds = seeds

    @property
    def seeds(self) -> Sequence[int] | None:
        """For each item what all draws follow from; None if they come from elsewhere."""
        return self._seeds

    def suits(self, way: Way) -> bool:  # noqa: ARG002 - for a subclass
        """Whether they can be drawn for samples that are made in that way."""
        return True

    def begin(self, at: int) -> None:
        """Prepare for code of the user's, which may draw from wherever it likes."""

    def plan(self, way: Way, at: int, width: int, height: int) -> ResizePlan:
        """Draw for the item at that place of the batch."""
        return way.crop.seeded_plan(width, height, self._seeds[at])

    def left(self, at: int) -> None:
        """Take note, in order, that the item is to be made in another way."""
