"""PNG: the header, the metadata that turns the image, and a check that its pixels are whole."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice

from fastdecode._formats import NoFallback, exif
from fastdecode.native._library import COLORS, header
from fastdecode.types import Buffer, Header

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHUNK = struct.Struct(">I4s")
_NAME = re.compile(rb"[A-Za-z]{4}")
_IHDR = struct.Struct(">IIBBBBB")
_SPARE_BYTES = 1 << 16  # for an encoder that compresses badly; inflated, they cost 0.2 s
_MAX_CHUNKS = 1024  # without pixels: real files have a dozen
_MOST_TEXT = 1 << 20  # bytes that text is decompressed to, as in Pillow
_MOST_COLOURS = 256
# Texts in which an orientation may be: as hexadecimal EXIF (ImageMagick), in XMP.
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_MOST_KEY = 80  # bytes, with the zero that follows it
_PROFILE, _PACKET = _KEYS = b"Raw profile type exif", b"XML:com.adobe.xmp"
_AT_ONCE = 1 << 18  # bytes to inflate
# Bytes of the colour that tRNS makes transparent, by colour model and channels.
_KEY_BYTES = {("gray", 1): 2, ("rgb", 3): 6}
_PASSES = (  # of Adam7: (first column, first row, distance of columns, distance of rows)
    *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)),
    *((0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)),
)


def parse(data: Buffer) -> Header:
    """Read a PNG's header, which describes the stored pixels: Pillow does not turn them.

    PNG specification, third edition: 5.2 (signature), 5.6 (chunk order), 11.2.1 (IHDR), 11.3.4.5
    (eXIf), APNG's acTL.
    """
    width, height, channels, bits, _, _, turns, _, color, interlaced, animated, *_ = header(
        data, "PNG"
    )
    return Header(
        "png", width, height, channels, bits, _orientation(data) if turns else 1,
        interlaced == 1, "", 0, COLORS[color], "", animated == 1,
    )  # fmt: skip


def excess(data: Buffer, header: Header) -> str:
    """Return how much compressed data there is beyond any need of the image; empty if there is not.

    libpng inflates all of it, up to a thousand times its size, although the image has ended.
    """
    row = 1 + -(-header.width * header.channels * header.bits // 8)
    most = _SPARE_BYTES + 2 * row * header.height
    if len(data) <= most:
        return ""
    compressed = sum(end - begin for kind, begin, end in _chunks(data) if kind == b"IDAT")
    if compressed <= most:
        return ""
    return f"there are {compressed} compressed bytes for {header.width}x{header.height} pixels"


def only_pixels(data: Buffer, header: Header, *, strict: bool) -> bytes:
    """Return a PNG of only the chunks that hold pixels; with `strict`, all others must be right.

    Libraries differ in which damage they accept, in which mode, and even in which metadata. So
    they get a file in which all is right, or none: this raises `NoFallback` if IHDR, PLTE, tRNS,
    or the compressed data is not whole. Its own checksum shows that, whatever those of its chunks
    say. This costs about half as much as decoding.
    """
    view = memoryview(data)
    kept: dict[bytes, bytes] = {}
    pixels: list[memoryview] = []
    odd, behind, kind = "", False, b""
    for kind, begin, end in _chunks(data):
        crc = zlib.crc32(view[begin - 4 : end])
        whole = crc == int.from_bytes(view[end : end + 4], "big") and end + 4 <= len(view)
        if kind == b"IDAT" and not behind:
            pixels.append(view[begin:end])
            odd = odd if whole else "a chunk of the PNG's pixels is damaged"
        elif pixels:  # what follows the pixels does not matter
            behind = True
            if not whole or kind == b"IDAT":
                odd = f"the {kind!r} chunk after the pixels is damaged, or out of place"
        elif kind in (b"IHDR", b"PLTE", b"tRNS") and _holds_pixels(kind, header):
            if not whole or kind in kept:
                raise NoFallback(f"the PNG's {kind!r} chunk is damaged, or there are two")
            kept[kind] = bytes(view[begin:end])
        elif not _NAME.fullmatch(kind) or (kind[0] < ord("a") and kind != b"PLTE"):
            raise NoFallback(f"the PNG's {kind!r} chunk is unknown, or out of place")
        elif not whole:
            odd = f"the PNG's {kind!r} chunk is damaged"
    if kind != b"IEND":
        odd = odd or "the PNG has no end (IEND)"
    chunks = _checked(kept, header)
    missing = _missing(pixels, header)
    if missing:
        raise NoFallback(f"pixels are missing: {missing}")
    if strict and odd:
        raise NoFallback(odd)
    chunks += [*((b"IDAT", part) for part in pixels), (b"IEND", b"")]
    return b"".join((_SIGNATURE, *(part for chunk in chunks for part in _chunk(*chunk))))


def _holds_pixels(kind: bytes, header: Header) -> bool:
    """Return whether pixels depend on such a chunk; a PLTE may also be a suggestion."""
    if kind == b"IHDR" or header.color == "palette":
        return True
    return kind == b"tRNS" and (header.color, header.channels) in _KEY_BYTES


def _checked(kept: dict[bytes, bytes], header: Header) -> list[tuple[bytes, Buffer]]:
    """Return the chunks before the pixels as all libraries read them, if they are right."""
    chunks: list[tuple[bytes, Buffer]] = [(b"IHDR", kept[b"IHDR"][: _IHDR.size])]
    key = kept.get(b"tRNS")
    if header.color == "palette":
        palette = kept.get(b"PLTE", b"")
        if len(palette) % 3 or not 0 < len(palette) <= 3 * _MOST_COLOURS:
            raise NoFallback(f"the PNG's palette has {len(palette)} bytes")
        chunks.append((b"PLTE", palette))
        key = key and key[: len(palette) // 3]
    elif key is not None:
        size = _KEY_BYTES[header.color, header.channels]
        if len(key) < size:
            raise NoFallback(f"the PNG's tRNS chunk has {len(key)} of {size} bytes")
        high, low = divmod((1 << header.bits) - 1, 256)  # the other bits do not count
        key = bytes(value & (low if at % 2 else high) for at, value in enumerate(key[:size]))
    if key:
        chunks.append((b"tRNS", key))
    return chunks


def _chunk(kind: bytes, body: Buffer) -> tuple[bytes, Buffer, bytes]:
    crc = zlib.crc32(body, zlib.crc32(kind))
    return _CHUNK.pack(len(body), kind), body, crc.to_bytes(4, "big")


def _missing(pixels: Sequence[memoryview], header: Header) -> str:
    """Return what the compressed data lacks of the image; empty if it is complete.

    Of a chunk that is cut, what follows may pass for a part: only the checksum shows that.
    """
    needed = left = sum(
        rows * (1 + -(-columns * header.channels * header.bits // 8))
        for columns, rows in _sizes(header)
    )
    stream = zlib.decompressobj()
    try:
        for part in pixels:
            rest: Buffer = part
            # Read on to the checksum, but not for ever.
            while len(rest) and not stream.eof and left > -_AT_ONCE:
                left -= len(stream.decompress(rest, _AT_ONCE))
                rest = stream.unconsumed_tail
        if left > 0:  # what zlib still holds
            left -= len(stream.decompress(b"", left))
    except zlib.error as error:
        return str(error)
    if left > 0:
        return f"there are {needed - left} of {needed} bytes"
    return "" if stream.eof else "the compressed data has no end"


def _sizes(header: Header) -> Iterator[tuple[int, int]]:
    """Yield (columns, rows) of each part of the image that is compressed on its own."""
    for left, top, across, down in _PASSES if header.progressive else ((0, 0, 1, 1),):
        columns = max(0, -(-(header.width - left) // across))
        if columns:
            yield columns, max(0, -(-(header.height - top) // down))


def _chunks(data: Buffer) -> Iterator[tuple[bytes, int, int]]:
    """Yield (kind, begin, end) of the contents of each chunk, up to IEND or the end of the file."""
    pos, size = len(_SIGNATURE), len(data)
    kind = b""
    while pos + _CHUNK.size <= size and kind != b"IEND":
        length, kind = _CHUNK.unpack_from(data, pos)
        yield kind, pos + 8, pos + 8 + length
        pos += 12 + length


def _orientation(data: Buffer) -> int:
    """Read the orientation.

    As in Pillow, what comes last counts, and eXIf before a raw profile.
    """
    block, texts = None, dict.fromkeys(_KEYS, b"")
    others = (chunk for chunk in _chunks(data) if chunk[0] != b"IDAT")
    for kind, begin, end in islice(others, _MAX_CHUNKS):
        if kind == b"eXIf":
            block = bytes(data[begin:end])
        elif kind in _TEXTS:
            key = bytes(data[begin : min(end, begin + _MOST_KEY)]).partition(b"\0")[0]
            if key in _KEYS:
                texts[key] = _text(kind, bytes(data[begin + len(key) + 1 : end]))
    block = _raw_profile(texts[_PROFILE]) if block is None else block
    return exif.orientation(block, 0, len(block), texts[_PACKET])


def _text(kind: bytes, rest: bytes) -> bytes:
    """Return the text of a chunk, given what follows its key; empty if it is damaged."""
    if kind == b"iTXt":  # a flag and a method, then language, key and text
        pressed, rest = rest[:1] != b"\0", rest[2:].split(b"\0", 2)[-1]
    else:
        pressed, rest = kind == b"zTXt", rest[kind == b"zTXt" :]
    try:
        return zlib.decompressobj().decompress(rest, _MOST_TEXT) if pressed else rest
    except zlib.error:
        return b""


def _raw_profile(text: bytes) -> bytes:
    """Return what the hexadecimal digits after the third line break mean; empty if damaged."""
    try:
        return bytes.fromhex("".join(text.decode("latin-1").split("\n")[3:]))
    except ValueError:
        return b""
