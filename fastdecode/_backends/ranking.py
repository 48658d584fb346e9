"""The default order of backends, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastdecode.types import Format, Reduce

# Fastest first on real photos, from bench/results/default_order.json, and decoder_px500.json for
# `native`. There are two exceptions: PyTorch's decoders come last, because choosing one would
# import PyTorch into programs that do not need it otherwise; kornia_rs comes after Pillow, and
# Pillow comes last for JPEG 2000, because they hold the GIL.
_REDUCING = ("native", "simplejpeg", "turbojpeg", "jpeg4py", "opencv", "pillow")
DEFAULT: Mapping[tuple[Format, Reduce], tuple[str, ...]] = {
    ("jpeg", 1): (
        *("native", "simplejpeg", "turbojpeg", "jpeg4py", "imagecodecs", "opencv", "pillow"),
        *("kornia_rs", "torchcodec", "torchvision"),
    ),
    ("jpeg", 2): _REDUCING,
    ("jpeg", 4): _REDUCING,
    ("jpeg", 8): _REDUCING,
    ("png", 1): ("native", "opencv", "pillow", "torchcodec"),
    ("webp", 1): ("opencv", "pillow"),
    ("pnm", 1): ("opencv", "pillow"),
    ("jpeg2000", 1): ("imagecodecs", "pillow"),
}
"""Backends by format and reduction, fastest first. All others follow, in the registry's order."""


def default_order(format: Format, reduce: Reduce) -> tuple[str, ...]:
    """Return the backends for one kind of work; without an entry, those of the full size."""
    return DEFAULT.get((format, reduce)) or DEFAULT.get((format, 1), ())
