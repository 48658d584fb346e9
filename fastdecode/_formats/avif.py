"""AVIF: the header as libavif reads it, through Pillow."""

from __future__ import annotations

import io

from PIL import AvifImagePlugin

from fastdecode._formats import exif
from fastdecode._formats.boxes import missing as missing  # noqa: PLC0414
from fastdecode.errors import UnsupportedFormat
from fastdecode.types import Buffer, Header


def parse(data: Buffer) -> Header:
    """Read an AVIF's header: the stored pixels, without cropping, of the image or first frame.

    `orientation` comes from the irot and imir properties; Pillow puts it into the EXIF block.
    """
    if not AvifImagePlugin.SUPPORTED:
        raise UnsupportedFormat("this build of Pillow does not read AVIF: pip install -U pillow")
    image = AvifImagePlugin.AvifImageFile(io.BytesIO(data))
    block = image.info.get("exif", b"")
    return Header(
        "avif",
        *image.size,
        len(image.mode),
        _bits(data),
        exif.orientation(block, 0, len(block)),
        color="ycc",
        animated=image.n_frames > 1,
    )


def _bits(data: Buffer) -> int:
    """Return the bits of a sample: Pillow does not say them, but the first av1C box does."""
    at = bytes(data).find(b"av1C")
    flags = data[at + 6] if at >= 0 else 0
    return (12 if flags & 0x20 else 10) if flags & 0x40 else 8
