"""The package's own crops in the native core's words: it then draws and decides by itself.

What the core is told is plain numbers, see ``fd_crop``. It decides as `Crop.seeded_plan` and
`Crop.core_resize` do, or not at all.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from fastdecode.native import library
from fastdecode.plan import DEFAULT_MAX_PIXELS, ResizePlan
from fastdecode.torch.transforms import seeded

if TYPE_CHECKING:
    from fastdecode.native.single import Resize
    from fastdecode.torch.transforms.base import Crop

__all__ = ["central_crop", "decides_as", "headroom_of", "plan_of", "random_crop"]

_RANDOM, _CENTRAL = 1, 2
_DECIDE = ("plan", "seeded_plan", "core_resize", "_jpegs_reduction", "described")


def decides_as(crop: Crop, kind: type[Crop]) -> bool:
    """Whether a transform does as its class, and the core: it may be of a subclass.

    Parameters
    ----------
    crop : Crop
    kind : type
        The package's own.
    """
    own = type(crop)
    if crop.interpolation != "bilinear":  # the core knows no other
        return False
    return crop.__dict__.keys().isdisjoint(_DECIDE) and all(
        getattr(own, name) is getattr(kind, name) for name in _DECIDE
    )


def headroom_of(crop: Crop) -> float:
    """Return the least headroom after a reduction; 0 where there is to be none."""
    return 0.0 if crop.quality == "exact" else crop.headroom


@cache
def random_crop(
    size: tuple[int, int],
    scale: tuple[float, float],
    ratio: tuple[float, float],
    flip: float,
    headroom: float,
    *,
    upright: bool,
) -> Any:
    """Describe what draws a box.

    Parameters
    ----------
    size : (height, width)
    scale, ratio, flip
        As of `RandomResizedCrop`.
    headroom : float
        From `headroom_of`.
    upright : bool
        Leave files alone that Exif data might turn.

    Returns
    -------
    cffi's ``fd_crop *``
        Not to be changed: it is the same one for the same arguments.
    """
    drawn = seeded.constants(scale, ratio)
    made = _made(_RANDOM, size, flip, headroom, upright=upright)
    made.area, made.area_step, made.aspect, made.aspect_step, made.unsure = drawn
    made.narrowest, made.widest = min(ratio), max(ratio)
    return made


@cache
def central_crop(
    resize: int | tuple[int, int],
    size: tuple[int, int],
    flip: float,
    headroom: float,
    *,
    upright: bool,
) -> Any:
    """Describe what shows the centre, or all, of the resized picture.

    Parameters
    ----------
    resize : int or (height, width)
        An int is the shorter side.
    size, flip, headroom, upright
        As for `random_crop`.

    Returns
    -------
    cffi's ``fd_crop *``
        As from `random_crop`.
    """
    made = _made(_CENTRAL, size, flip, headroom, upright=upright)
    made.resize_height, made.resize_width = (0, resize) if isinstance(resize, int) else resize
    return made


def _made(kind: int, size: tuple[int, int], flip: float, headroom: float, *, upright: bool) -> Any:
    made = library.ffi.new("fd_crop *")
    made.kind, made.upright = kind, upright
    made.height, made.width = size
    made.flip = seeded.as_float32(flip)
    made.headroom = headroom
    made.pixels = DEFAULT_MAX_PIXELS
    return made


def plan_of(resize: Resize) -> ResizePlan:
    """Return the plan of which `ResizePlan.for_core` makes this."""
    edges = (resize.left, resize.top, resize.right, resize.bottom)
    left, top, right, bottom = (int(edge * resize.reduce) for edge in edges)
    canvas = (resize.canvas_height, resize.canvas_width)
    size = (resize.height, resize.width)
    return ResizePlan(
        (left, top, right, bottom), canvas, resize.y, resize.x, size, bool(resize.flip)
    )
