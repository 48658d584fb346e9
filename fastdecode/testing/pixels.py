"""The part of the contract that speaks of pixels: which they are, and how many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image as PillowImage

from fastdecode.adapters.base import Backend
from fastdecode.api import decode
from fastdecode.errors import UnsupportedFormat
from fastdecode.testing.base import DeclarationContract
from fastdecode.testing.pictures import KINDS, LOSSLESS, SIZES, encode, picture
from fastdecode.types import MODES, REDUCES, Format, Image, Mode, Reduce

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PixelContract"]


class PixelContract(DeclarationContract):
    """The same pixels, of the promised size, whichever backend gives them."""

    @pytest.mark.parametrize("size", SIZES, ids=str)
    @pytest.mark.parametrize("reduce", REDUCES)
    def test_size_is_the_ceiling(
        self, backend: Backend, size: tuple[int, int], reduce: Reduce
    ) -> None:
        """Every reduction of every size gives ceil(side / reduce), 1x1 included."""
        format = next(f for f in ("jpeg", *backend.supports) if f in backend.supports)
        if format not in ("jpeg", *LOSSLESS, "webp"):
            pytest.skip(f"Pillow does not write {format}")
        data = encode(picture(*size), format)

        image = decode(data, reduce, backend=self.name)

        assert image.shape == (-(-size[1] // reduce), -(-size[0] // reduce), 3)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("reduce", REDUCES)
    @pytest.mark.parametrize("mode", MODES)
    def test_jpeg_pixels_are_the_same(
        self, backend: Backend, kind: str, reduce: Reduce, mode: Mode
    ) -> None:
        """An exact backend gives Pillow's pixels at every reduction that it makes itself."""
        support = self.support(backend, "jpeg")
        if not backend.exact or reduce not in support.reduces:
            pytest.skip(f"{self.name} does not declare exact JPEG at reduce {reduce}")
        data = encode(picture(101, 67), **KINDS[kind])

        image = decode(data, reduce, mode=mode, backend=self.name)

        np.testing.assert_array_equal(image, self.reference(data, reduce, mode))

    @pytest.mark.parametrize("reduce", REDUCES)
    @pytest.mark.parametrize("mode", MODES)
    def test_grey_jpeg(self, backend: Backend, reduce: Reduce, mode: Mode) -> None:
        """A grey JPEG repeats its channel in RGB, and is (H, W) as L and native."""
        support = self.support(backend, "jpeg")
        if not backend.exact or reduce not in support.reduces:
            pytest.skip(f"{self.name} does not declare exact JPEG at reduce {reduce}")
        data = encode(picture(50, 30, "L"))

        image = decode(data, reduce, mode=mode, backend=self.name)

        np.testing.assert_array_equal(image, self.reference(data, reduce, mode))

    def test_cmyk_jpeg(self, backend: Backend) -> None:
        """A CMYK JPEG becomes RGB within 1 level of Pillow, or is refused in clear words."""
        self.support(backend, "jpeg")
        data = encode(picture(50, 30, "CMYK"))
        if not any("CMYK" in support.layouts for support in backend.supports["jpeg"]):
            with pytest.raises(UnsupportedFormat, match=self.name):
                decode(data, backend=self.name)
            return

        image = decode(data, backend=self.name)

        difference = np.abs(image.astype(int) - self.reference(data).astype(int))

        assert difference.max() <= 1

    @pytest.mark.parametrize("format", LOSSLESS)
    @pytest.mark.parametrize("source", ["RGB", "L", "P"])
    def test_lossless_formats_are_exact(
        self, backend: Backend, format: Format, source: str
    ) -> None:
        """Formats that lose nothing come back as they were written."""
        self.support(backend, format)
        if format == "gif" and source == "RGB":
            source = "P"
        original = picture(37, 23, source)

        image = decode(encode(original, format), backend=self.name)

        np.testing.assert_array_equal(image, np.asarray(original.convert("RGB")))

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_orientation_is_applied_only_when_asked(
        self, backend: Backend, orientation: int
    ) -> None:
        """Stored pixels by default; with orient=True the picture as Pillow shows it upright."""
        self.support(backend, "jpeg")
        exif = PillowImage.Exif()
        exif[0x0112] = orientation
        plain = encode(picture(40, 24))
        data = encode(picture(40, 24), exif=exif)
        stored = decode(plain, backend=self.name)

        seen = decode(data, backend=self.name, orient=True)

        np.testing.assert_array_equal(decode(data, backend=self.name), stored)
        np.testing.assert_array_equal(seen, _upright(stored, orientation))

    @pytest.mark.parametrize("reduce", REDUCES)
    @pytest.mark.parametrize("orient", [False, True])
    def test_region_equals_a_slice(self, backend: Backend, reduce: Reduce, orient: bool) -> None:
        """A region is the slice of the whole result, of the picture as seen with orient=True."""
        self.support(backend, "jpeg")
        exif = PillowImage.Exif()
        exif[0x0112] = 6
        data = encode(picture(101, 67), exif=exif)
        whole = decode(data, reduce, orient=orient, backend=self.name)
        for region in _regions(67, 101) if orient else _regions(101, 67):
            left, top, right, bottom = region

            part = decode(data, reduce, orient=orient, region=region, backend=self.name)

            rows = slice(top // reduce, -(-bottom // reduce))
            columns = slice(left // reduce, -(-right // reduce))
            np.testing.assert_array_equal(part, whole[rows, columns])


def _upright(stored: Image, orientation: int) -> Image:
    """Turn pixels as `PIL.ImageOps.exif_transpose` turns pictures."""
    turns = {
        2: PillowImage.Transpose.FLIP_LEFT_RIGHT,
        3: PillowImage.Transpose.ROTATE_180,
        4: PillowImage.Transpose.FLIP_TOP_BOTTOM,
        5: PillowImage.Transpose.TRANSPOSE,
        6: PillowImage.Transpose.ROTATE_270,
        7: PillowImage.Transpose.TRANSVERSE,
        8: PillowImage.Transpose.ROTATE_90,
    }
    image = PillowImage.fromarray(stored)
    return np.asarray(image.transpose(turns[orientation]) if orientation in turns else image)


def _regions(width: int, height: int) -> Sequence[tuple[int, int, int, int]]:
    """Choose the whole, a corner, a pixel, and parts that begin and end between blocks."""
    return (
        (0, 0, width, height),
        (width - 1, height - 1, width, height),
        (0, 0, 1, 1),
        (13, 9, 54, 41),
        (width // 2, 3, width, 8),
    )
