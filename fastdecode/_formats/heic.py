"""HEIC: the header as libheif reads it, through pillow_heif."""

from __future__ import annotations

from typing import cast

from fastdecode._formats import boxes
from fastdecode.errors import UnsupportedFormat
from fastdecode.types import Buffer, Color, Header


def parse(data: Buffer) -> Header:
    """Read a HEIC's header: the pixels as seen, because libheif crops and turns them."""
    try:
        import pillow_heif
    except ImportError as error:
        raise UnsupportedFormat(
            f"HEIC is read by pillow_heif, which cannot be used here ({error}). "
            "Install it with: pip install 'fastdecode[pillow_heif]'"
        ) from error
    file = pillow_heif.open_heif(bytes(data), convert_hdr_to_8bit=False, hdr_to_16bit=False)
    image = file[file.primary_index]
    channels = len(image.mode.partition(";")[0])  # of "RGB;10", say
    color: Color = "gray" if channels < 3 else "ycc"
    bits = cast("int", image.info["bit_depth"])
    return Header("heic", *image.size, channels, bits, color=color)


def missing(data: Buffer, _: Header) -> str:
    """Return what the coded images lack; empty if nothing."""
    return boxes.missing(data)
