"""`imread`: what ``cv2.imread`` returns, with the pixels of the fastest decoder."""

from __future__ import annotations

import importlib
import os
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fastdecode import _formats
from fastdecode._arguments import as_path
from fastdecode._decode.api import decode, read_file
from fastdecode._error_policy import is_item_error
from fastdecode.errors import DecodeError, FastDecodeError, begin_with

if TYPE_CHECKING:
    from fastdecode.types import Header, Image, Mode, Reduce

_UNCHANGED = -1
_COLOR, _ANYDEPTH, _ANYCOLOR, _GDAL, _IGNORE_ORIENTATION, _RGB = 1, 2, 4, 8, 128, 256
_REDUCED: dict[int, Reduce] = {16: 2, 32: 4, 64: 8}
_ANY_REDUCED = 16 | 32 | 64


class _Wanted(NamedTuple):
    """What a number of cv2's ``ImreadModes`` asks for."""

    color: bool
    grey: bool
    """Grey stays grey."""
    alpha: bool
    """Alpha stays."""
    deep: bool
    """16 bits stay 16 bits."""
    orient: bool
    reduce: Reduce
    rgb: bool


def imread(
    path: str | os.PathLike[str],
    flags: int = _COLOR,
    *,
    on_error: Literal["raise", "none"] = "raise",
) -> Image | None:
    """Read an image as ``cv2.imread`` does: BGR, and upright by EXIF.

    Parameters
    ----------
    path : str or PathLike
    flags : int
        As for ``cv2.imread``: ``cv2.IMREAD_GRAYSCALE``, ``cv2.IMREAD_UNCHANGED`` and so on.
    on_error : {"raise", "none"}
        ``"none"`` returns None for a file that cannot be read, as OpenCV does.

    Returns
    -------
    ndarray or None
        (H, W, 3) in the order blue, green, red; (H, W) for grey; (H, W, 4) if the file has alpha
        and `flags` is ``cv2.IMREAD_UNCHANGED``. uint8, or uint16 where cv2 returns it.

    Raises
    ------
    OSError
        The file is missing, or cannot be read.
    FastDecodeError
        As from `decode_file`, for example if pixels are missing, of which OpenCV only warns.

    Notes
    -----
    JPEG (not CMYK), and PNG of up to 8 bits in colour or, if the file is grey, in grey, have
    OpenCV's own pixels. All else OpenCV reads itself, if it is installed. Without it, grey from
    colours and CMYK may differ from OpenCV's by some levels, and a reduced image that is not a JPEG
    is averaged; ``IMREAD_LOAD_GDAL`` has no effect.

    Examples
    --------
    >>> from fastdecode import imread
    >>> imread("cat.jpg").shape
    (480, 640, 3)
    >>> imread("missing.jpg", on_error="none") is None
    True
    """
    if on_error not in ("raise", "none"):
        raise ValueError(f"on_error must be 'raise' or 'none', not {on_error!r}")
    name, flags = as_path(path, function="imread"), int(flags)
    try:
        data = read_file(name)
        try:
            return _read(data, name, flags)
        except FastDecodeError as error:
            begin_with(error, name)
            raise
    except (OSError, FastDecodeError) as error:
        if on_error == "none" and is_item_error(error):
            return None
        raise


def _read(data: bytes, name: str, flags: int) -> Image:
    wanted = _wanted(flags)
    header = _formats.probe(data)
    cv2 = _cv2()
    gdal = flags != _UNCHANGED and bool(flags & _GDAL)
    if cv2 is not None and (gdal or not _has_its_pixels(header, data, wanted)):
        return _read_by_cv2(cv2, header, name, flags)
    image = _decode(data, header, wanted)
    return image if wanted.rgb or image.ndim == 2 else _as_bgr(image, cv2)


def _read_by_cv2(cv2: Any, header: Header, name: str, flags: int) -> Image:
    """Call ``cv2.imread``, which raises an error of its own if a side would become 0 pixels."""
    reduce = _wanted(flags).reduce
    if header.format == "jpeg" or min(header.width, header.height) >= reduce:
        reduce = 1  # by OpenCV itself
    try:
        made: Image | None = cv2.imread(name, flags if reduce == 1 else flags & ~_ANY_REDUCED)
        if made is not None and reduce > 1:
            size = [max(1, side // reduce) for side in (made.shape[1], made.shape[0])]
            made = cv2.resize(made, size, interpolation=cv2.INTER_LINEAR_EXACT)
    except cv2.error as error:
        raise DecodeError(f"cv2.imread: {error}") from error
    if made is None:
        raise DecodeError("cv2.imread returned None")
    return made


def _wanted(flags: int) -> _Wanted:
    if flags == _UNCHANGED:  # has all bits
        return _wanted(_COLOR | _ANYDEPTH | _ANYCOLOR | _IGNORE_ORIENTATION)
    unchanged = flags & 7 == _COLOR | _ANYDEPTH | _ANYCOLOR
    rgb = bool(flags & _RGB)
    any_color = bool(flags & _ANYCOLOR)
    return _Wanted(
        color=bool(flags & (_COLOR | _ANYCOLOR)) or rgb,
        grey=unchanged or (any_color and not (flags & _COLOR or rgb)),
        alpha=unchanged,
        deep=bool(flags & _ANYDEPTH),
        orient=not flags & _IGNORE_ORIENTATION,
        reduce=next((by for bit, by in _REDUCED.items() if flags & bit), 1),
        rgb=rgb,
    )


def _has_its_pixels(header: Header, data: bytes, wanted: _Wanted) -> bool:
    """Return whether OpenCV would return the pixels that `decode` does."""
    turned = header.orientation != 1 and wanted.orient
    if turned and b"tiff:Orientation" in data[: header.scan_offset or None]:
        return False  # OpenCV looks into EXIF only, `decode` also into XMP
    if header.format == "jpeg":
        return header.bits == 8 and header.color != "cmyk" and header.coding == "baseline"
    grey = header.color == "gray" and header.channels == 1
    return (
        header.format == "png"
        and header.bits <= 8
        and wanted.reduce == 1
        and not header.animated
        and (wanted.color or grey)
        and not (wanted.alpha and (not grey or b"tRNS" in data))
    )


def _decode(data: bytes, header: Header, wanted: _Wanted) -> Image:
    """Return the pixels as cv2 would, but with red first."""
    reduces = header.format == "jpeg"
    image = decode(
        data,
        wanted.reduce if reduces else 1,
        mode=_mode(header, wanted),
        orient=wanted.orient,
    )
    if image.dtype == np.bool_:
        image = image.astype(np.uint8) * 255
    if image.ndim == 2 and wanted.color and not wanted.grey:
        image = np.repeat(image[:, :, None], 3, axis=2)
    if wanted.reduce > 1 and not reduces:
        from PIL import Image as PillowImage

        size = (max(1, image.shape[1] // wanted.reduce), max(1, image.shape[0] // wanted.reduce))
        image = np.array(PillowImage.fromarray(image).resize(size, PillowImage.Resampling.BOX))
    return image


def _mode(header: Header, wanted: _Wanted) -> Mode:
    grey = header.color == "gray" and header.channels == 1
    if wanted.deep and header.bits > 8 and (wanted.color or grey):
        return "stored"
    if not wanted.color or (wanted.grey and grey):
        return "L"
    return (
        "RGBA" if wanted.alpha and header.channels in (2, 4) and header.color != "cmyk" else "RGB"
    )


def _as_bgr(image: Image, cv2: Any) -> Image:
    """Swap red and blue, with OpenCV if it is there, because NumPy takes ten times as long."""
    if cv2 is None:
        return image[:, :, [2, 1, 0, 3][: image.shape[2]]]
    codes = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}
    swapped: Image = cv2.cvtColor(image, codes[image.shape[2]], dst=image)
    return swapped


@cache
def _cv2() -> Any:
    """Return OpenCV, or None if it cannot be imported."""
    try:
        return importlib.import_module("cv2")
    except ImportError:
        return None
