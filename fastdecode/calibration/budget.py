"""How much of the time that measuring may take has gone."""

from __future__ import annotations

import time

__all__ = ["Budget"]


class Budget:
    """Seconds that begin to run when it is made.

    Parameters
    ----------
    seconds : float
    """

    def __init__(self, seconds: float) -> None:
        self._start = time.monotonic()
        self._seconds = seconds

    def left(self) -> float:
        """Return the seconds that are left; below 0 when they are over."""
        return self._start + self._seconds - time.monotonic()

    def share(self) -> float:
        """Return how much has gone, from 0 to 1."""
        return min(1.0, 1 - self.left() / self._seconds)
