"""A figure that was measured several times."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NOTHING", "Spread"]


@dataclass(frozen=True)
class Spread:
    """A median and the quartiles on its two sides."""

    median: float
    low: float
    high: float


NOTHING = Spread(0.0, 0.0, 0.0)
"""Of what was not measured."""
