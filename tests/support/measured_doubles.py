"""Backends for the tests of measuring: importable by name, as those of other packages are."""

from __future__ import annotations

import time
from typing import Any

from fastdecode import Backend, Support, decode


class Near(Backend):
    """Decodes with Pillow, and is off by one level in one value."""

    supports = {"jpeg": (Support(),)}

    def decode(self, data: Any, header: Any, **asked: Any) -> Any:
        pixels = decode(data, backend="pillow")
        pixels[0, 0, 0] ^= 1
        return pixels


class Hanging(Backend):
    """Never comes back."""

    supports = {"jpeg": (Support(),)}

    def decode(self, data: Any, header: Any, **asked: Any) -> Any:
        time.sleep(1000)
