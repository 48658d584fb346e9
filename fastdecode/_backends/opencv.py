"""OpenCV: ``cv2.imdecode``, from any of its four distributions."""

from __future__ import annotations

import re
from dataclasses import replace

import cv2
import numpy as np

from fastdecode._backends.base import JPEG, Backend, Support, installed_version
from fastdecode._formats import jpeg, simple
from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Header, Image, PixelLayout, Reduce

_DISTRIBUTIONS = (
    "opencv-python-headless",
    "opencv-python",
    "opencv-contrib-python-headless",
    "opencv-contrib-python",
)
_REDUCED_GRAY, _REDUCED_BGR = (
    {
        n: getattr(cv2, f"IMREAD_REDUCED_{kind}_{n}" if n > 1 else f"IMREAD_{kind}")
        for n in (1, 2, 4, 8)
    }
    for kind in ("GRAYSCALE", "COLOR")
)
# Since 5.0 the decoder can write RGB. IMREAD_REDUCED_COLOR_n | IMREAD_COLOR_RGB raises, because
# both contain the COLOR bit. The GRAYSCALE constant with the RGB bit means "reduced RGB".
_WRITES_RGB = int(cv2.__version__.split(".")[0]) >= 5
_REDUCED_RGB = (
    {n: flag | cv2.IMREAD_COLOR_RGB for n, flag in _REDUCED_GRAY.items()}
    if _WRITES_RGB
    else _REDUCED_BGR
)


_PASSED_OVER = bytes((0xFF, *range(0xD0, 0xD8)))  # fill bytes, and restart markers


def _ends(data: Buffer, header: Header) -> bool:
    """Return whether the end marker follows the only scan; several are read before any pixel."""
    if header.progressive or not jpeg.in_one_scan(data, header):
        return True
    end = jpeg.read(data).scans[0].end
    return bytes(data[end : end + 64]).lstrip(_PASSED_OVER)[:1] == jpeg.EOI[1:]


class Opencv(Backend):
    """JPEG, which the decoder can reduce; PNG, WebP, and kinds of BMP and PNM in full size.

    Animated PNG and WebP are not declared: OpenCV returns another first frame than other libraries,
    and 5.0 crashes on some damaged files.
    """

    distribution = "opencv-python-headless"
    supports = {
        # CMYK is not declared: OpenCV's formula differs from Pillow's by up to 2 levels.
        "jpeg": (replace(JPEG, reduces=frozenset({1, 2, 4, 8})),),
        # No reductions: OpenCV would round down and alias these with a 2-tap filter.
        # No palettes: an index without a colour would be black.
        "png": (
            Support(
                animated=False,
                bits=frozenset({1, 2, 4, 8, 16}),
                colors=frozenset({"gray", "rgb"}),
            ),
        ),
        "webp": (Support(animated=False),),
        "bmp": (
            Support(
                layouts=frozenset({"RGB", "stored"}),
                bits=frozenset({4, 8}),
                codings=frozenset({"rle"}),
            ),
        ),
        "pnm": (
            Support(
                layouts=frozenset({"stored"}), bits=frozenset(range(2, 17)), codings=frozenset({""})
            ),
            # It widens digits up to 255, but not larger ones.
            Support(
                layouts=frozenset({"stored"}),
                bits=frozenset(range(9, 17)),
                codings=frozenset({"plain"}),
            ),
        ),
    }

    def decode(
        self, data: Buffer, header: Header, *, reduce: Reduce, layout: PixelLayout, **_: object
    ) -> Image:
        if header.format == "jpeg" and not _ends(data, header):
            raise DecodeError("OpenCV ignores errors behind the scan, where there is more data")
        stored = layout == "stored"
        if stored and header.color == "palette":
            data = simple.with_grey_palette(data)  # whose colours are the indices
        elif header.coding == "plain":
            data = bytes(data) + b"\n"  # it wants white space behind the last number
        # Its libpng and libjpeg write to stderr by themselves: OpenCV's log level is no switch.
        flags = (_REDUCED_GRAY if layout == "L" else _REDUCED_RGB)[reduce]
        if stored:
            flags = cv2.IMREAD_UNCHANGED
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags | cv2.IMREAD_IGNORE_ORIENTATION)
        if image is None:
            raise DecodeError("cv2.imdecode returned None")
        if image.ndim == 3 and (stored or not _WRITES_RGB):
            swap = cv2.COLOR_BGR2RGB if image.shape[2] == 3 else cv2.COLOR_BGRA2RGBA
            cv2.cvtColor(image, swap, dst=image)
        if stored and image.ndim == 3:
            image = image[..., : header.channels] if header.channels > 1 else image[..., 0]
        return image

    def version(self) -> str:
        return installed_version(*_DISTRIBUTIONS) or str(cv2.__version__)

    def codec(self) -> str:
        found = re.search(r"JPEG:\s+(.*)", cv2.getBuildInformation())
        if not found:
            return ""
        words = found[1]
        name = "libjpeg-turbo" if "turbo" in words else "libjpeg"
        number = re.search(r"\d+\.\d+\.\d+", words)
        version = re.search(r"ver (\S+?)\)?$", words)
        return f"{name} {number[0]}" if number else (version[1] if version else name)
