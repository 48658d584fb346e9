"""jpeg4py: the system's libturbojpeg through cffi; unmaintained since 2018, but still in use."""

from __future__ import annotations

import numpy as np

try:
    import jpeg4py
    from jpeg4py._cffi import TJPF_GRAY, TJPF_RGB, TJPF_RGBA
    from jpeg4py._cffi import initialize as _load_library
except OSError as error:  # pragma: no cover - cffi could not load the library it was built against
    raise ImportError(str(error)) from error

from fastdecode._backends.base import JPEG_TURBO_2, Backend, CodecWarning
from fastdecode._formats.jpeg import is_recoverable, with_plain_size
from fastdecode.errors import BackendUnavailable
from fastdecode.types import Box, Buffer, Header, Image, PixelLayout, Reduce

_PIXEL_FORMAT = {"RGB": (TJPF_RGB, 3), "L": (TJPF_GRAY, 1), "RGBA": (TJPF_RGBA, 4)}


class Jpeg4py(Backend):
    """JPEG only: ``jpeg4py.JPEG.decode``. With a smaller ``dst``, libturbojpeg scales."""

    distribution = "jpeg4py"
    supports = {"jpeg": (JPEG_TURBO_2,)}

    def __init__(self) -> None:
        try:
            _load_library()
        except OSError as error:
            raise BackendUnavailable(
                "jpeg4py finds no libturbojpeg. Install the library: apt-get install libturbojpeg0 "
                "(Debian, Ubuntu) or brew install jpeg-turbo (macOS)"
            ) from error

    def decode(
        self,
        data: Buffer,
        header: Header,
        *,
        reduce: Reduce,
        layout: PixelLayout,
        window: Box | None,
        out: Image | None,
        strict: bool,
    ) -> Image:
        pixel_format, channels = _PIXEL_FORMAT[layout]
        source, height, width = with_plain_size(data, header, reduce)
        # jpeg4py would zero its own array first. The size of the array determines the factor.
        into = out if source is data else None
        shape = (height, width, channels)
        image = np.empty(shape, np.uint8) if into is None else into.reshape(shape)
        jpeg = jpeg4py.JPEG(np.frombuffer(source, np.uint8))
        try:
            jpeg.decode(image, pixel_format)
        except jpeg4py.JPEGRuntimeError as error:
            # jpeg4py raises any warning as an error, after it has decoded as much as it can.
            if strict or not is_recoverable(str(error)):
                raise CodecWarning(str(error)) from error
        finally:
            # Its decompressor would go back into jpeg4py's pool, with the tables of this image for
            # the next one that lacks its own.
            if jpeg.decompressor is not None:
                jpeg.decompressor.release()
                jpeg.decompressor = None
        if source is not data:
            image = image[: -(-header.height // reduce), : -(-header.width // reduce)]
        return image[:, :, 0] if layout == "L" else image

    def codec(self) -> str:
        return "libturbojpeg of the system"
