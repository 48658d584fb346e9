"""Images that show how pixels are moved and mixed."""

from __future__ import annotations

from typing import Any

import numpy as np

KINDS = ("noise", "black and white", "chessboard", "ramp")


def pattern(kind: str, height: int, width: int, random: np.random.Generator) -> Any:
    """Return an image (height, width, 3) of bytes of one of the `KINDS`."""
    if kind == "noise":
        return random.integers(0, 256, (height, width, 3), np.uint8)
    if kind == "black and white":
        return random.integers(0, 2, (height, width, 3), np.uint8) * np.uint8(255)
    y, x = np.indices((height, width))
    plane = (x + y) % 2 * 255 if kind == "chessboard" else (3 * x + 5 * y) % 256
    return np.repeat(plane[..., None], 3, axis=2).astype(np.uint8)
