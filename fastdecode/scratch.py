"""Memory that each thread keeps for pixels which live for one call only.

Notes
-----
A fresh array of some megabytes is fresh pages from the system, which costs as much as a good part
of the decoding; the same memory used again costs nothing.
"""

from __future__ import annotations

import math
import threading

import numpy as np
from numpy.typing import NDArray

__all__ = ["borrow"]

_MOST_KEPT = 64 << 20


class _Kept(threading.local):
    def __init__(self) -> None:
        self.buffers: dict[str, NDArray[np.uint8]] = {}


_kept = _Kept()


def borrow(purpose: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return an array that is overwritten when this thread next asks for the same purpose.

    Parameters
    ----------
    purpose : str
        What it is for: two arrays in use at once need two names.
    shape : tuple of int

    Returns
    -------
    ndarray of uint8
        Not initialised. Of more than 64 MiB it is new each time, so that a thread that met one
        huge picture does not hold its memory for ever.
    """
    needed = math.prod(shape)
    if needed > _MOST_KEPT:
        return np.empty(shape, np.uint8)
    buffer = _kept.buffers.get(purpose)
    if buffer is None or buffer.size < needed:
        # A little more, so that pictures that grow slowly do not each need a new one.
        buffer = np.empty(min(_MOST_KEPT, needed + needed // 4), np.uint8)
        _kept.buffers[purpose] = buffer
    return buffer[:needed].reshape(shape)
