"""What the native core does of a transform in one pass: which files, which plans, into what memory.

Whether it does, depends on the file, the plan and the options alone: so a sample is the same, to
the bit, whether it is made by itself or in a batch.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from fastdecode import _headers
from fastdecode._preference import preferred
from fastdecode._selection import disabled
from fastdecode.api import DEFAULT_MAX_PIXELS
from fastdecode.errors import BackendUnavailable, UnknownBackend
from fastdecode.native import library, single

if TYPE_CHECKING:
    import torch

    from fastdecode.torch.transforms.base import Plan
    from fastdecode.torch.transforms.normalize import Normalize
    from fastdecode.types import Buffer, Reduce

__all__ = ["available", "fits", "numbers_of", "pixels_of", "sides", "upright", "usable", "write"]

_NAME = "native"
_BASELINE, _EXTENDED, _PROGRESSIVE = 0xC0, 0xC1, 0xC2


def available() -> bool:
    """Whether the core is there, and not left out by ``FASTDECODE_DISABLE``."""
    return library.lib is not None and _NAME not in disabled()


def usable(backend: str | None) -> bool:
    """Whether the core may decode for somebody who asked for this backend, or for none."""
    if library.lib is None:
        return False
    try:
        asked = preferred() if backend is None else backend
    except (BackendUnavailable, UnknownBackend):
        return False  # whoever decodes in another way says so
    return asked == _NAME if isinstance(asked, str) else _NAME not in disabled()


def fits(header: Any) -> Any:
    """Whether the core decodes such a file as every other backend would.

    Parameters
    ----------
    header : cffi's ``fd_header``, or Headers
        Of one file, or of many.

    Returns
    -------
    bool, or ndarray of bool

    Notes
    -----
    Left to the others are four inks, arithmetic coding (which cannot run out of data, so that what
    is missing has to be searched for), and files without an end marker.
    """
    sof, components = header.sof, header.components
    return (
        ((sof == _BASELINE) | (sof == _EXTENDED) | (sof == _PROGRESSIVE))
        & ((components == 1) | (components == 3))
        & (header.bits == 8)
        & (header.ended == 1)
        # No side is over 65535, but their product need not fit 32 bits.
        & (header.width * 1.0 * header.height <= DEFAULT_MAX_PIXELS)
    )


def upright(data: Buffer) -> bool:
    """Whether a JPEG's Exif data leaves it as it is stored."""
    return _headers.probe(data).orientation == 1


def sides(data: Buffer, backend: str | None, *, orient: bool) -> tuple[int, int] | None:
    """Return (width, height) of a file that the core is to decode; None for any other."""
    if not usable(backend):
        return None
    header = single.probe(data)
    if header is None or not fits(header) or (orient and header.has_exif and not upright(data)):
        return None
    return header.width, header.height


def numbers_of(plan: Plan, width: int, height: int, reduce: Reduce) -> tuple[float, ...] | None:
    """Return a plan as the core's numbers, see `fastdecode.native.single`.

    Returns
    -------
    tuple, or None
        None where the plan is not for the core: it is bicubic, pads, reaches out of the picture, or
        makes a giant of it.
    """
    left, top, right, bottom = plan.box
    down, across = plan.canvas
    rows, columns = plan.size
    if (
        plan.interpolation != "bilinear"
        or plan.top < 0
        or plan.left < 0
        or plan.top + rows > down
        or plan.left + columns > across
        or max(plan.canvas) > single.LARGEST_SIDE
        or not (0 <= left < right <= width and 0 <= top < bottom <= height)
    ):
        return None
    # fmt: off
    return (
        reduce, left / reduce, top / reduce, right / reduce, bottom / reduce,
        int(left // reduce), int(top // reduce), ceil(right / reduce), ceil(bottom / reduce),
        across, down, plan.left, plan.top, columns, rows, plan.flip,
    )
    # fmt: on


def pixels_of(normalize: Normalize | None, *, channels_first: bool) -> Any:
    """Return what the core is told of how values are stored: as `normalize` has them, or bytes."""
    affine = None if normalize is None else normalize.affine
    return single.stored(affine, channels_first=channels_first)


def write(
    data: Buffer, numbers: tuple[float, ...] | None, normalize: Normalize | None, out: torch.Tensor
) -> bool:
    """Write one picture.

    Parameters
    ----------
    data : bytes or memoryview
    numbers : tuple or None
        From `numbers_of`.
    normalize : Normalize or None
    out : tensor, (3, H, W)
        Of the right shape and type, with any strides.

    Returns
    -------
    bool
        False where it is for others to do, and to say what is wrong.
    """
    if numbers is None or out.requires_grad:
        return False
    direct = out
    first = out.is_contiguous()
    if not first and not out.permute(1, 2, 0).is_contiguous():
        direct, first = out.new_empty(out.shape), True
    pixels = pixels_of(normalize, channels_first=first)
    if not single.decode_resized(data, numbers, pixels, direct.data_ptr()):
        return False
    if direct is not out:
        out.copy_(direct)
    return True
