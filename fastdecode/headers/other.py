"""Everything else: whatever Pillow's plugins open (ICO, PNM, TGA, PSD, QOI …)."""

from __future__ import annotations

import io
import struct

from PIL import Image, ImageFile

from fastdecode.errors import DecodeError, FastDecodeError, ImageTooLarge, UnsupportedFormat
from fastdecode.types import Buffer, Color, Header

__all__ = ["open_image", "parse"]

# They launch a program (Ghostscript), work on one system only, or merely know the format by name.
_SKIPPED = frozenset({"EPS", "WMF", "BUFR", "GRIB", "HDF5", "MPEG"})
# What a plugin raises when the file is not its own, as in PIL.Image.open.
_NOT_MINE = (SyntaxError, IndexError, TypeError, struct.error)
# Pillow mode: (samples for each pixel, bits for each sample, colour model).
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
    """Read what Pillow says of an image of any other format.

    Parameters
    ----------
    data : bytes or memoryview

    Returns
    -------
    Header

    Raises
    ------
    UnsupportedFormat
        If no plugin knows the format.
    DecodeError
        If the plugin that does finds it damaged.

    Notes
    -----
    Pillow's handbook, "Concepts", has the modes.
    """
    with open_image(data) as image:
        width, height = image.size
        channels, bits, color = _MODES.get(image.mode, (3, 8, "other"))
    if width <= 0 or height <= 0:
        raise DecodeError(f"the {image.format} header says {width}x{height} pixels")
    return Header("other", width, height, channels, bits, color=color)


def open_image(data: Buffer) -> ImageFile.ImageFile:
    """Open an image with Pillow's plugins, without the process-wide limit on its size.

    Parameters
    ----------
    data : bytes or memoryview
        It is copied, unless it is bytes.

    Returns
    -------
    PIL.ImageFile.ImageFile
        Not loaded yet.

    Raises
    ------
    FastDecodeError
        As for `parse`.

    Notes
    -----
    This is the loop of PIL.Image.open: the plugins of the common formats first, all others if
    none of them opens it. ICO and ICNS decode while they open, and check the limit themselves.
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
        f"these {len(data)} bytes are not an image that fastdecode or Pillow knows: "
        f"they start with {prefix.hex(' ').upper()}"
    )


def _try_plugin(name: str, stream: io.BytesIO, prefix: bytes) -> ImageFile.ImageFile | None:
    """Let one plugin try; None if the file is not its own."""
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
