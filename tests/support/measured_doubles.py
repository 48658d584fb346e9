"""Backends for the tests of measuring: importable by name, as those of other packages are."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from fastdecode import Backend, Support, decode


class Slow(Backend):
    """Gives black images, exact as far as anybody knows, and takes its time."""

    supports = {"png": (Support(),)}

    def decode(self, data: Any, header: Any, **asked: Any) -> Any:
        time.sleep(0.001)
        return np.zeros((header.height, header.width, 3), np.uint8)


class Inexact(Slow):
    """Has other pixels than the others, and says so."""

    exact = False


class Near(Backend):
    """Decodes with Pillow, and is off by one level in one value."""

    supports = {"jpeg": (Support(),)}

    def decode(self, data: Any, header: Any, **asked: Any) -> Any:
        pixels = decode(data, backend="pillow")
        pixels[0, 0, 0] ^= 1
        return pixels


class Crashing(Slow):
    """Takes the whole process down."""

    def decode(self, data: Any, header: Any, **asked: Any) -> Any:
        os.abort()


class Hanging(Slow):
    """Never comes back."""

    supports = {"jpeg": (Support(),)}

    def decode(self, data: Any, header: Any, **asked: Any) -> Any:
        time.sleep(1000)
