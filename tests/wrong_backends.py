"""Backends that are wrong, each in its own way; other processes find them as this module's."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

import fastdecode
from fastdecode import Backend, Header, Support


class Wrong(Backend):
    """Pillow's pixels, spoilt."""

    supports = {"jpeg": (Support(reduces=frozenset({1, 2, 4, 8})),)}
    spoil: Callable[[Wrong, Any], Any]

    def decode(self, data: Any, header: Header, **asked: Any) -> Any:
        """Decode, and spoil."""
        pixels = fastdecode.decode(data, asked["reduce"], backend="pillow")
        return np.ascontiguousarray(self.spoil(pixels))


class Swapped(Wrong):
    """Blue for red."""

    spoil = lambda self, pixels: pixels[:, :, ::-1]  # noqa: E731


class Fullsize(Swapped):
    """Blue for red, and no reductions of its own: the package averages what it gives."""

    supports = {"jpeg": (Support(),)}


class Shifted(Wrong):
    """Off by one row."""

    spoil = lambda self, pixels: np.roll(pixels, 1, axis=0)  # noqa: E731


class Smaller(Wrong):
    """One row short."""

    spoil = lambda self, pixels: pixels[1:]  # noqa: E731


class Broken(Wrong):
    """Refuses everything."""

    def spoil(self, pixels: Any) -> Any:
        """Raise."""
        raise ValueError("out of order")


class Crashing(Wrong):
    """Takes its process down, as a C library does that finds its heap damaged."""

    spoil = lambda self, pixels: os.abort()  # noqa: E731


class Unstable(Wrong):
    """Right, until its process has decoded a dozen images; then it takes that down."""

    calls = 0

    def spoil(self, pixels: Any) -> Any:
        """Count, and abort."""
        self.calls += 1
        return os.abort() if self.calls > 12 else pixels


class Averaging(Wrong):
    """Right, but it reduces nothing inside its decoder."""

    supports = {"jpeg": (Support(),)}
    spoil = lambda self, pixels: pixels  # noqa: E731
