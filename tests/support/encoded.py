"""Encoded images and hand-made headers for the tests of `probe`."""

from __future__ import annotations

import io
import mmap
import struct
import zlib
from typing import Any

import pytest
from PIL import Image
from pngs import chunk, file, interlaced_header

from fastdecode.testing import encode
from fastdecode.types import Format

WIDTH, HEIGHT = 13, 7

# name of a case: (result of `sniff`, Pillow's format, mode, save options)
SAVED: dict[str, tuple[Format, str, str, dict[str, Any]]] = {
    "jpeg": ("jpeg", "JPEG", "RGB", {}),
    "jpeg-gray": ("jpeg", "JPEG", "L", {}),
    "png": ("png", "PNG", "RGB", {}),
    "png-rgba": ("png", "PNG", "RGBA", {}),
    "png-palette": ("png", "PNG", "P", {}),
    "png-gray-alpha": ("png", "PNG", "LA", {}),
    "png-16": ("png", "PNG", "I;16", {}),
    "gif": ("gif", "GIF", "P", {}),
    "bmp": ("bmp", "BMP", "RGB", {}),
    "bmp-palette": ("bmp", "BMP", "P", {}),
    "webp": ("webp", "WEBP", "RGB", {}),
    "webp-alpha": ("webp", "WEBP", "RGBA", {}),
    "webp-lossless": ("webp", "WEBP", "RGB", {"lossless": True}),
    "tiff": ("tiff", "TIFF", "RGB", {}),
    "tiff-cmyk": ("tiff", "TIFF", "CMYK", {}),
    "tiff-big": ("tiff", "TIFF", "L", {"big_tiff": True}),
    "avif": ("avif", "AVIF", "RGB", {}),
    "avif-alpha": ("avif", "AVIF", "RGBA", {}),
    "jp2": ("jpeg2000", "JPEG2000", "RGB", {}),
    "j2k": ("jpeg2000", "JPEG2000", "L", {"no_jp2": True}),
    "ppm": ("pnm", "PPM", "RGB", {}),
}
SHORT, LONG, ASCII = 3, 4, 2
_LETTERS = {SHORT: "H", LONG: "I", ASCII: "B"}
"""Types of TIFF's fields."""

CHANNELS = {"RGB": 3, "L": 1, "RGBA": 4, "P": 1, "LA": 2, "I;16": 1, "CMYK": 4}


def saved(pillow_format: str, mode: str = "RGB", **options: Any) -> bytes:
    """Encode a small image with Pillow."""
    if pillow_format == "AVIF":
        pytest.importorskip("PIL._avif")
    return encode(Image.new(mode, (WIDTH, HEIGHT)), pillow_format, **options)


def mapped(data: bytes) -> mmap.mmap:
    """Put bytes into memory that is mapped."""
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memory


INVERSE = {**{value: value for value in range(1, 9)}, 6: 8, 8: 6}
"""The orientation that turns an image as seen back into stored pixels."""


def with_orientation(value: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = value
    return tags


def box(kind: bytes, *contents: bytes) -> bytes:
    """Build an ISO base media file format box."""
    body = b"".join(contents)
    return struct.pack(">I4s", 8 + len(body), kind) + body


def png(
    bits: int, color_type: int, *chunks: bytes, width: int = WIDTH, height: int = HEIGHT,
    interlace: int = 0, data: bytes = b"",
) -> bytes:  # fmt: skip
    """Build a PNG, by default without compressed data."""
    made = file(width, height, color_type, bits, data, *chunks)
    return interlaced_header(made) if interlace else made


def gif(*blocks: bytes, screen: tuple[int, int] = (WIDTH, HEIGHT), flags: int = 0) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", *screen, flags, 0, 0) + b"".join(blocks)


def gif_image(left: int, top: int, width: int, height: int, flags: int = 0) -> bytes:
    return b"," + struct.pack("<HHHHB", left, top, width, height, flags) + b"\x02\x01\x00\x00"


def bmp(header: bytes) -> bytes:
    return b"BM" + bytes(12) + struct.pack("<I", 4 + len(header)) + header


def directory_last(
    pixels: bytes,
    *fields: tuple[int, int, tuple[int, ...]],
    order: str = "<",
    big: bool = False,
    following: int = 0,
) -> bytes:
    """Build a TIFF: pixels first, at offset 16, then the directory, then its longer values.

    `following` is the offset of the next directory.
    """
    head, letter, entry = (8, "Q", 20) if big else (2, "H", 12)
    room, pointer = (8, "Q") if big else (4, "I")
    values_at = 16 + len(pixels) + head + entry * len(fields) + room
    listed = values = b""
    for tag, kind, numbers in sorted(fields):
        packed = struct.pack(f"{order}{len(numbers)}{_LETTERS[kind]}", *numbers)
        where = packed.ljust(room, b"\0")
        if len(packed) > room:
            where = struct.pack(order + pointer, values_at + len(values))
            values += packed
        listed += struct.pack(order + "HH" + pointer, tag, kind, len(numbers)) + where
    at = 16 + len(pixels)
    start = struct.pack(order + "HHHQ", 43, 8, 0, at) if big else struct.pack(order + "HI", 42, at)
    begin = ((b"II" if order == "<" else b"MM") + start).ljust(16, b"\0") + pixels
    behind = struct.pack(order + pointer, following) + values
    return begin + struct.pack(order + letter, len(fields)) + listed + behind


class JxlBits:
    """A writer of JPEG XL headers: bit by bit, the least significant first."""

    def __init__(self) -> None:
        self.value = self.count = 0

    def put(self, value: int, bits: int) -> JxlBits:
        self.value |= value << self.count
        self.count += bits
        return self

    def size(self, width: int, height: int) -> JxlBits:
        """Write the size in the long form: not "small", 18 bits per side, no ratio."""
        self.put(0, 1).put(2, 2).put(height - 1, 18)
        return self.put(0, 3).put(2, 2).put(width - 1, 18)

    def bytes(self) -> bytes:
        return b"\xff\x0a" + self.value.to_bytes(self.count // 8 + 1, "little") + bytes(16)


def exif_of(*entries: tuple[int, int, bytes], order: str = "<", after: bytes = b"") -> bytes:
    """Build an EXIF block of (type, count, value or offset) for the orientation, without prefix."""
    body = b"".join(
        struct.pack(order + "HHI", 0x0112, kind, count) + value.ljust(4, b"\0")
        for kind, count, value in entries
    )
    start = b"II*\0" if order == "<" else b"MM\0*"
    count = struct.pack(order + "IH", 8, len(entries))
    return start + count + body + bytes(4) + after


def xmp_of(value: object, *, element: bool = False) -> bytes:
    """Build an XMP packet with an orientation."""
    inner = f">{value}</tiff:Orientation>" if element else f'="{value}"/>'
    return b"<x:xmpmeta><rdf:Description " + b"<" * element + b"tiff:Orientation" + inner.encode()


def raw_profile(block: bytes) -> bytes:
    """Write an EXIF block as text, as ImageMagick does for PNG."""
    return f"\nexif\n{len(block):8}\n{block.hex()}\n".encode()


def with_segments(jpeg: bytes, *segments: bytes) -> bytes:
    """Put APP1 segments into a JPEG, behind its first segment (JFIF)."""
    at = 4 + int.from_bytes(jpeg[4:6], "big")
    added = (struct.pack(">HH", 0xFFE1, 2 + len(body)) + body for body in segments)
    return b"".join((jpeg[:at], *added, jpeg[at:]))


def with_chunks(png: bytes, *chunks: bytes, behind: bool = False) -> bytes:
    """Put chunks into a PNG, before or behind its pixels."""
    at = png.index(b"IEND" if behind else b"IDAT") - 4
    return b"".join((png[:at], *chunks, png[at:]))


def with_riff(webp: bytes, flags: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """Put a header with flags before a WebP's only chunk, and chunks behind it."""
    sides = b"".join(struct.pack("<I", side - 1)[:3] for side in Image.open(io.BytesIO(webp)).size)
    body = webp[12:]
    for kind, content in ((b"VP8X", bytes([flags, 0, 0, 0]) + sides), *chunks):
        made = kind + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)
        body = made + body if kind == b"VP8X" else body + made
    return struct.pack("<4sI4s", b"RIFF", 4 + len(body), b"WEBP") + body


def turned(format: str, image: Image.Image) -> dict[str, bytes]:
    """Encode an image with orientation 6 in every place in which Pillow finds one."""
    data, block, packet = encode(image, format), exif_of((SHORT, 1, b"\x06")), xmp_of(6)
    long = exif_of((LONG, 1, b"\0\0\0\x06"), order=">")
    if format == "JPEG":
        xap = b"http://ns.adobe.com/xap/1.0/\0"
        return {
            "EXIF": with_segments(data, b"Exif\0\0" + block),
            "EXIF of type LONG": with_segments(data, b"Exif\0\0" + long),
            "XMP": with_segments(data, xap + packet),
        }
    if format == "WEBP":
        return {
            "EXIF of type LONG": with_riff(data, 0x08, (b"EXIF", long)),
            "XMP": with_riff(data, 0x04, (b"XMP ", packet)),
        }
    name, key = b"Raw profile type exif\0", b"XML:com.adobe.xmp\0"
    text = raw_profile(b"Exif\0\0" + block)
    pressed = zlib.compress(text)
    return {
        "EXIF of type LONG": with_chunks(data, chunk(b"eXIf", long)),
        "EXIF behind the pixels": with_chunks(data, chunk(b"eXIf", block), behind=True),
        "EXIF in tEXt": with_chunks(data, chunk(b"tEXt", name + text)),
        "EXIF in zTXt": with_chunks(data, chunk(b"zTXt", name + b"\0" + pressed)),
        "EXIF in iTXt": with_chunks(data, chunk(b"iTXt", name + b"\1\0\0\0" + pressed)),
        "XMP in iTXt": with_chunks(data, chunk(b"iTXt", key + b"\0\0\0\0" + packet)),
        "XMP in tEXt": with_chunks(data, chunk(b"tEXt", key + packet)),
    }
