"""Backends that are wrong, each in its own way; other processes find them as this module's."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import fastdecode
from fastdecode import Backend, Header, Support


class Wrong(Backend):
    """Pillow's pixels, spoilt."""

    supports = {"jpeg": (Support(reduces=frozenset({1, 2, 4, 8})),)}

    def decode(self, data: Any, header: Header, **asked: Any) -> Any:
        """Decode, and spoil."""
        pixels = fastdecode.decode(data, asked["reduce"], backend="pillow")
        return np.ascontiguousarray(self.spoil(pixels))

    def spoil(self, pixels: Any) -> Any:
        """Change what is right."""
        raise NotImplementedError


class Swapped(Wrong):
    """Blue for red."""

    def spoil(self, pixels: Any) -> Any:
        """Turn the channels round."""
        return pixels[:, :, ::-1]


class Fullsize(Swapped):
    """Blue for red, and no reductions of its own: the package averages what it gives."""

    supports = {"jpeg": (Support(),)}


class Shifted(Wrong):
    """Off by one row."""

    def spoil(self, pixels: Any) -> Any:
        """Begin with the last row."""
        return np.roll(pixels, 1, axis=0)


class Smaller(Wrong):
    """One row short."""

    def spoil(self, pixels: Any) -> Any:
        """Leave the first row out."""
        return pixels[1:]


class Broken(Wrong):
    """Refuses everything."""

    def spoil(self, pixels: Any) -> Any:
        """Raise."""
        raise ValueError("out of order")


class Crashing(Wrong):
    """Takes its process down."""

    def spoil(self, pixels: Any) -> Any:
        """Abort, as a C library does that finds its heap damaged."""
        os.abort()


class Unstable(Wrong):
    """Right, until its process has decoded a dozen pictures; then it takes that down."""

    calls = 0

    def spoil(self, pixels: Any) -> Any:
        """Count, and abort."""
        self.calls += 1
        if self.calls > 12:
            os.abort()
        return pixels


class Averaging(Wrong):
    """Right, but it reduces nothing inside its decoder."""

    supports = {"jpeg": (Support(),)}

    def spoil(self, pixels: Any) -> Any:
        """Leave them as they are."""
        return pixels
