"""WebP: the three kinds of first chunk, and the metadata that VP8X may announce."""

from __future__ import annotations

import struct
from collections.abc import Callable

from fastdecode._formats import NoFallback, exif
from fastdecode._formats.jpeg import ENDINGS, LEFT_OVER, changes
from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Color, Header, Image

_CHUNK = struct.Struct("<4sI")
_FIRST = 12  # after "RIFF", the size and "WEBP"
_ANIMATION, _ALPHA = 0x02, 0x10
_METADATA = {b"EXIF": 0x08, b"XMP ": 0x04}  # and the flag that announces it
_FRAME_HEADER = 16  # bytes of an ANMF chunk before its own chunks
_MAX_CHUNKS = 1024
_FEWEST_ZEROS = 16
# Bytes at the end of the data, of which some are not needed: of lossless data two at most.
_LAST, _LAST_LOSSLESS = 8, 3
_FLUSHED = 2  # bytes with which its coder may end, which may be zeros


def parse(data: Buffer) -> Header:
    """Read a WebP's header, which describes the stored canvas: Pillow does not turn it.

    `color` is ``"ycc"`` for lossy and ``"rgb"`` for lossless images.

    RFC 9649, 2.5 to 2.7 (chunks, VP8X), 3.4 (VP8L header); RFC 6386, 9.1 (VP8 frame header).
    """
    kind = bytes(data[_FIRST : _FIRST + 4])
    start = _FIRST + 8
    if kind == b"VP8 ":
        return _lossy(data, start)
    if kind == b"VP8L":
        return _lossless(data, start)
    if kind == b"VP8X":
        return _extended(data, start)
    raise DecodeError(f"the WebP starts with a {kind!r} chunk instead of VP8, VP8L or VP8X")


def _lossy(data: Buffer, start: int) -> Header:
    """Read a key frame's start code and its sides of 14 bits."""
    if data[start + 3 : start + 6] != b"\x9d\x01\x2a":
        raise DecodeError("the WebP contains no VP8 key frame")
    width, height = struct.unpack_from("<HH", data, start + 6)
    return _header(width & 0x3FFF, height & 0x3FFF, color="ycc")


def _lossless(data: Buffer, start: int) -> Header:
    """Read the lossless header: width - 1 and height - 1 in 14 bits each, and the alpha hint."""
    if data[start] != 0x2F:
        raise DecodeError("the WebP's VP8L signature is damaged")
    (packed,) = struct.unpack_from("<I", data, start + 1)
    width, height = (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
    return _header(width, height, alpha=bool(packed >> 28 & 1))


def _extended(data: Buffer, start: int) -> Header:
    """Read the canvas, then the chunks up to the first image, and to all announced metadata."""
    flags, sides = struct.unpack_from("<B3x6s", data, start)
    width = int.from_bytes(sides[:3], "little") + 1
    height = int.from_bytes(sides[3:], "little") + 1
    (length,) = struct.unpack_from("<I", data, start - 4)
    pos = start + length + (length & 1)
    color: Color = "ycc"
    announced = {kind for kind, flag in _METADATA.items() if flags & flag}
    found = dict.fromkeys(_METADATA, (0, 0))
    seen = False
    for _ in range(_MAX_CHUNKS):
        if pos + 8 > len(data):
            break
        kind, length = _CHUNK.unpack_from(data, pos)
        if kind in announced:  # after the images
            announced.remove(kind)  # the first one counts
            found[kind] = pos + 8, pos + 8 + length
        if not seen and kind in (b"VP8 ", b"VP8L", b"ANMF"):
            seen = True
            if kind == b"VP8L" or (kind == b"ANMF" and _is_lossless_frame(data, pos + 8)):
                color = "rgb"
        if seen and not announced:
            break
        pos += 8 + length + (length & 1)
    return _header(
        width,
        height,
        alpha=bool(flags & _ALPHA),
        color=color,
        animated=bool(flags & _ANIMATION),
        orientation=exif.orientation(
            data, *found[b"EXIF"], memoryview(data)[slice(*found[b"XMP "])]
        ),
    )


def _coded(data: Buffer) -> tuple[int, int]:
    """Return where the compressed data of the first image begins and ends; 0 and 0 if not found."""
    pos = _FIRST
    for _ in range(_MAX_CHUNKS):
        if pos + 8 > len(data):
            break
        kind, length = _CHUNK.unpack_from(data, pos)
        if kind in (b"VP8 ", b"VP8L"):
            return pos + 8, min(pos + 8 + length, len(data))
        pos += 8 + (_FRAME_HEADER if kind == b"ANMF" else length + (length & 1))
    return 0, 0


def _is_lossless(data: Buffer, start: int) -> bool:
    """Return whether the data that begins at `start`, from `_coded`, is lossless."""
    return data[start - 8 : start - 4] == b"VP8L"


def check_zeros(image: Image, data: Buffer, decode_again: Callable[[Buffer], Image]) -> None:
    """Check that zeros in a WebP are data, as those of a JPEG.

    Its coder may write flat areas as zeros, too, but ends where they do.
    """
    start, end = _coded(data)
    coded, many = bytes(data[start:end]), bytes(_FEWEST_ZEROS)
    if many not in coded:
        return
    needed = coded.rstrip(b"\0")
    if many not in needed:  # but behind it, where they may be more than the pixels need
        spare = end - start - len(needed) - _FLUSHED
        others = ((ending * spare)[:spare] for ending in ENDINGS)
        longer = (b"".join((data[: end - spare], other, data[end:])) for other in others)
        if not any(changes(image, decode_again, other) for other in longer):
            return
    last = _LAST_LOSSLESS if _is_lossless(data, start) else _LAST
    for ending in ENDINGS:
        other = b"".join((data[: end - last], ending[:last], data[end:]))
        if changes(image, decode_again, other):
            return
    raise NoFallback(LEFT_OVER)


def _is_lossless_frame(data: Buffer, start: int) -> bool:
    return data[start + _FRAME_HEADER : start + _FRAME_HEADER + 4] == b"VP8L"


def _header(
    width: int,
    height: int,
    *,
    alpha: bool = False,
    color: Color = "rgb",
    animated: bool = False,
    orientation: int = 1,
) -> Header:
    if not width or not height:
        raise DecodeError(f"the WebP header says {width}x{height} pixels")
    channels = 4 if alpha else 3
    return Header("webp", width, height, channels, 8, orientation, color=color, animated=animated)
