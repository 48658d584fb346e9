"""All other formats that Pillow's plugins open (ICO, PNM, TGA, PSD, QOI …)."""

from __future__ import annotations

import io
import re
import struct

from PIL import Image, ImageFile

from fastdecode.errors import DecodeError, FastDecodeError, ImageTooLarge, UnsupportedFormat
from fastdecode.types import Buffer, Color, Header

# These plugins start a program (Ghostscript), work on one system only, or cannot decode.
_SKIPPED = frozenset({"EPS", "WMF", "BUFR", "GRIB", "HDF5", "MPEG"})
# What a plugin raises if the file has another format, as in PIL.Image.open.
_NOT_MINE = (SyntaxError, IndexError, TypeError, struct.error)
_LAST_NUMBER = re.compile(rb"(?<!\d)(\d+)\Z")
_PLAIN_HEADER = re.compile(rb"P[23](?:\s|#[^\n\r]*)+\d+(?:\s|#[^\n\r]*)+\d+(?:\s|#[^\n\r]*)+(\d+)")
_MAX_DIGITS, _MAX_HEADER = 16, 4096
_DCX = b"\xb1\x68\xde\x3a"
_PCX_PALETTE = 769
# Pillow mode: (samples per pixel, bits per sample, colour model).
_MODES: dict[str, tuple[int, int, Color]] = {
    "1": (1, 1, "gray"),
    "L": (1, 8, "gray"),
    "LA": (2, 8, "gray"),
    "La": (2, 8, "gray"),
    "I": (1, 32, "gray"),
    "F": (1, 32, "gray"),
    "I;16": (1, 16, "gray"),
    "I;16L": (1, 16, "gray"),
    "I;16B": (1, 16, "gray"),
    "I;16N": (1, 16, "gray"),
    "P": (1, 8, "palette"),
    "PA": (2, 8, "palette"),
    "RGB": (3, 8, "rgb"),
    "RGBX": (4, 8, "rgb"),
    "RGBA": (4, 8, "rgb"),
    "RGBa": (4, 8, "rgb"),
    "CMYK": (4, 8, "cmyk"),
    "YCbCr": (3, 8, "ycc"),
}


def parse(data: Buffer) -> Header:
    """Read the header of any other format with Pillow.

    Raises `UnsupportedFormat` if no plugin knows the format. The modes are from Pillow's handbook,
    "Concepts".
    """
    with open_image(data) as image:
        width, height = image.size
        channels, bits, color = _MODES.get(image.mode, (3, 8, "other"))
    if width <= 0 or height <= 0:
        raise DecodeError(f"the {image.format} header says {width}x{height} pixels")
    return Header("other", width, height, channels, bits, color=color)


def missing(data: Buffer) -> str:
    """Return what is missing at the end of a file if Pillow does not notice it; else empty.

    This can happen in two formats. A plain PNM ends with digits, of which the last ones may be
    missing. A PCX ends with its palette: Pillow looks for it 769 bytes before the end, and if it is
    not there, shows the image as grey.
    """
    if bytes(data[:2]) in (b"P2", b"P3"):
        last = _LAST_NUMBER.search(bytes(data[-_MAX_DIGITS:]))
        most = _PLAIN_HEADER.match(bytes(data[:_MAX_HEADER]))
        if last and most and 0 < 10 * int(last[1]) <= int(most[1]):
            return f"the PNM may end within the number {last[1].decode()}: no white space follows"
    at = struct.unpack_from("<I", data, 4)[0] if bytes(data[:4]) == _DCX else 0
    if bytes(data[at : at + 4 : 3]) == b"\x0a\x08" and bytes(data[at + 65 : at + 66]) == b"\x01":
        return _pcx_missing(data)
    return ""


def _pcx_missing(data: Buffer) -> str:
    """Return the message if a PCX of one plane of 8 bits lacks all or part of its palette."""
    words = "the PCX lacks its palette of 256 colours, which ends the file"
    if bytes(data[-_PCX_PALETTE:][:1]) != b"\x0c":
        return words
    # It is the palette only if the pixels end before it, so that the image loads without it.
    try:
        open_image(bytes(data[:-_PCX_PALETTE])).load()
    except (OSError, ValueError):
        return words
    return ""


def open_image(data: Buffer) -> ImageFile.ImageFile:
    """Open an image with Pillow's plugins, without Pillow's process-wide limit on its size.

    The image is not loaded yet. The data is copied unless it is bytes. The errors are those of
    `parse`.

    This is the loop of PIL.Image.open: it tries the plugins of the common formats first, then all
    others. The plugins of ICO and ICNS decode while they open, and check the limit themselves.
    """
    prefix = bytes(data[:16])
    stream = io.BytesIO(data)
    tried: set[str] = set(_SKIPPED)
    for load_plugins in (Image.preinit, Image.init):
        load_plugins()
        for name in [name for name in Image.ID if name not in tried]:
            tried.add(name)
            image = _try_plugin(name, stream, prefix)
            if image is not None:
                return image
    raise UnsupportedFormat(
        f"data of length {len(data)} is not an image that fastdecode or Pillow knows: "
        f"it starts with {prefix.hex(' ').upper()}"
    )


def _try_plugin(name: str, stream: io.BytesIO, prefix: bytes) -> ImageFile.ImageFile | None:
    """Open the image with one plugin; return None if the file has another format."""
    factory, accept = Image.OPEN[name]
    try:
        accepted = not accept or accept(prefix)
        if not accepted or isinstance(accepted, str):  # a string: support is not compiled in
            return None
        stream.seek(0)
        return factory(stream, "")
    except _NOT_MINE:
        return None
    except FastDecodeError:
        raise
    except Image.DecompressionBombError as error:
        raise ImageTooLarge(f"Pillow's {name} plugin: {error}") from error
    except Exception as error:
        raise DecodeError(f"Pillow's {name} plugin: {error or type(error).__name__}") from error
