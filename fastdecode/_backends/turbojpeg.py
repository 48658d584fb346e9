"""PyTurboJPEG: the system's libturbojpeg, version 2 or 3, through ctypes."""

from __future__ import annotations

import threading

import numpy as np
import turbojpeg

from fastdecode._backends.base import JPEG_TURBO_2, JPEG_TURBO_3, Backend, CodecWarning
from fastdecode._formats.jpeg import is_recoverable, with_plain_size
from fastdecode.errors import BackendUnavailable
from fastdecode.types import Box, Buffer, Header, Image, PixelLayout, Reduce

# TJPF_* of turbojpeg.h, the same in every version.
_PIXEL_FORMAT = {"RGB": (0, 3), "L": (6, 1), "RGBA": (7, 4)}
_MISSING_LIBRARY = """\
PyTurboJPEG finds no libturbojpeg. Install the library:
  apt-get install libturbojpeg0   (Debian, Ubuntu)
  brew install jpeg-turbo         (macOS)
or use a backend that brings its own: pip install 'fastdecode[simplejpeg]'"""
_OLD_LIBRARY = """\
PyTurboJPEG {version} needs libjpeg-turbo 3.0, and the libturbojpeg found here is older
(Debian 12 has 2.1.5). Either install the PyTurboJPEG for it:
  pip install 'PyTurboJPEG<2'
or install libjpeg-turbo 3: https://github.com/libjpeg-turbo/libjpeg-turbo/releases"""


class _Reporting(turbojpeg.TurboJPEG):  # type: ignore[misc]  # untyped library
    """PyTurboJPEG that records the codec's warnings instead of passing them to `warnings`.

    To learn from `warnings.warn` whether one call warned would take a filter that is process-wide
    and not thread-safe. As in PyTurboJPEG, decoding continues after a warning.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.local()

    def _TurboJPEG__report_error(self, handle: object) -> None:  # noqa: N802 - its mangled name
        message = self._TurboJPEG__get_error_string(handle)
        if not is_recoverable(message):
            raise CodecWarning(message)
        self._thread.warning = message

    def decode_into(self, image: Image, data: Buffer, pixel_format: int, reduce: Reduce) -> str:
        """Decode, and return the codec's warning; empty if there was none."""
        self._thread.warning = ""
        scaling_factor = None if reduce == 1 else (1, reduce)
        self.decode(data, pixel_format=pixel_format, scaling_factor=scaling_factor, dst=image)
        return str(self._thread.warning)


class Turbojpeg(Backend):
    """JPEG only: ``TurboJPEG.decode``, one object per process (each call makes its own handle)."""

    distribution = "PyTurboJPEG"

    def __init__(self) -> None:
        try:
            self._library = _Reporting()
        except RuntimeError as error:
            if "3.0" in str(error):
                raise BackendUnavailable(_OLD_LIBRARY.format(version=self.version())) from error
            raise BackendUnavailable(_MISSING_LIBRARY) from error
        except OSError as error:
            raise BackendUnavailable(f"{_MISSING_LIBRARY}\n({error})") from error
        # PyTurboJPEG 2 needs libjpeg-turbo 3, but 1.x works with both versions and does not say
        # which it found. For 1.x, declare only what both can do.
        self._generation = 3 if int(self.version().split(".")[0]) >= 2 else 2
        self.supports = {"jpeg": (JPEG_TURBO_3 if self._generation == 3 else JPEG_TURBO_2,)}

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
        # PyTurboJPEG passes the size to an old library, not the factor.
        source, height, width = with_plain_size(data, header, reduce)
        into = out if source is data else None
        shape = (height, width, channels)
        image = np.empty(shape, np.uint8) if into is None else into.reshape(shape)
        warning = self._library.decode_into(image, source, pixel_format, reduce)
        if warning and strict:
            raise CodecWarning(warning)
        if source is not data:
            image = image[: -(-header.height // reduce), : -(-header.width // reduce)]
        return image[:, :, 0] if channels == 1 else image

    def codec(self) -> str:
        return "libjpeg-turbo >= 3.0" if self._generation == 3 else "libturbojpeg of the system"
