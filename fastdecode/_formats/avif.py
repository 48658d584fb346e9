"""AVIF: the header as libavif reads it, through Pillow."""

from __future__ import annotations

import io

from PIL import AvifImagePlugin

from fastdecode._formats import boxes, exif
from fastdecode.errors import UnsupportedFormat
from fastdecode.types import Buffer, Header

_DELIMITER, _SEQUENCE = b"\x12\0", b"\x0a"  # the first bytes of OBUs
_FILLING = b"\xff"


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


def missing(data: Buffer, header: Header) -> str:
    """Return what the coded images lack; empty if nothing.

    libavif scales the first image to the size that the container promises, which may be gigabytes.
    """
    words = boxes.missing(data)
    if words:
        return words
    sides = _coded_sides(boxes.primary(data))
    if sides is None or (header.width <= sides[0] and header.height <= sides[1]):
        return ""
    return f"{header.width}x{header.height} are promised, {sides[0]}x{sides[1]} are coded"


def _coded_sides(coded: bytes) -> tuple[int, int] | None:
    """Return the width and height of an AV1 sequence header; None if it is of a rare kind.

    AV1 bitstream specification, 5.3 (OBUs) and 5.5 (sequence header).
    """
    coded = coded.removeprefix(_DELIMITER)
    if coded[:1] != _SEQUENCE:
        return None
    bits = f"{int.from_bytes(coded[2:34].ljust(32, _FILLING), 'big'):0256b}"
    at = 10  # the profile, still_picture, reduced_still_picture_header, the level
    if bits[4] == "0":
        if bits[5:7] != "00":  # timing_info, initial_display_delay
            return None
        at = 12
        for _ in range(int(bits[7:12], 2) + 1):  # operating points: a level above 7 has a tier
            at += 17 + (int(bits[at + 12 : at + 17], 2) > 7)
    across, down = (1 + int(bits[place : place + 4], 2) for place in (at, at + 4))
    at += 8
    width, height = bits[at : at + across], bits[at + across : at + across + down]
    return int(width, 2) + 1, int(height, 2) + 1
