"""Backends for the tests of calibration: importable by name, as those of other packages are."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from fastdecode import Backend, Support

_PNG = {"png": (Support(),)}


class Slow(Backend):
    """Gives black images, exact as far as anybody knows, and takes its time."""

    supports = _PNG

    def decode(self, data: Any, header: Any, **asked: Any) -> Any:
        time.sleep(0.001)
        return np.zeros((header.height, header.width, 3), np.uint8)


class Inexact(Slow):
    """Has other pixels than the others, and says so."""

    exact = False


class Crashing(Backend):
    """Takes the whole process down."""

    supports = _PNG

    def decode(self, data: Any, header: Any, **asked: Any) -> Any:
        os.abort()
