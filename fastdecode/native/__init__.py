"""The native core: decodes JPEG and PNG to pixels, or to resized and normalised tensors, in C.

`decode` uses it automatically, as the backend ``"native"``. Importing this package does not load
it.
"""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["add_restart_markers"]

_LARGEST = (1 << 63) - 1


def add_restart_markers(jpeg: Any, *, max_pixels: int | None = 178_956_970) -> bytes:
    """Rewrite a JPEG so that any part of it can be decoded without the rows above it.

    The rewrite is lossless: the coefficients stay the same, and so does every pixel. The result is
    a baseline JPEG with optimised Huffman tables and a restart marker after each row of MCUs (8 or
    16 rows of pixels). A later `decode` with a `region` starts at the first row that it needs.

    Parameters
    ----------
    jpeg : bytes, bytearray, memoryview, mmap, 1-D uint8 ndarray or 1-D uint8 CPU tensor
        The whole file. All APPn and COM segments, such as Exif and ICC profiles, are kept. Data
        after the end marker, such as the other images of an MPO, is dropped.
    max_pixels : int or None
        The largest number of pixels that the header may promise. None lifts the limit.

    Returns
    -------
    bytes
        The new file.

    Raises
    ------
    DecodeError
        The bytes are damaged, or scans are missing.
    UnsupportedFormat
        The bytes are not a JPEG, or a kind of JPEG that the core does not decode: CMYK, arithmetic
        coding, unusual chroma subsampling.
    ImageTooLarge
        The header promises more than `max_pixels`.
    TypeError, ValueError
        An argument is wrong.

    Notes
    -----
    Restart markers follow ITU-T T.81, B.2.1 and E.2.4: after a marker, the decoder needs none of
    the data before it. Progressive files become baseline files, which are often larger.

    Examples
    --------
    >>> from fastdecode import decode, probe
    >>> from fastdecode.native import add_restart_markers
    >>> again = add_restart_markers(data)
    >>> probe(again).restart_interval  # in MCUs: one row of them
    40
    >>> part = decode(again, region=(100, 300, 324, 400))  # starts to read at row 288
    """
    from fastdecode._arguments import as_buffer
    from fastdecode._formats import jpeg as structure
    from fastdecode._formats import probe
    from fastdecode.errors import DecodeError
    from fastdecode.native import _library

    given = as_buffer(jpeg, function="add_restart_markers")
    most = _checked(max_pixels)
    ffi, lib = _library.ffi, _library.lib
    limits = ffi.new("fd_limits *", {"pixels": most, "scans": lib.FD_SCANS})
    out, size = ffi.new("uint8_t **"), ffi.new("size_t *")
    # An error must not find the view held by cffi: CPython 3.11 crashes if it collects both.
    with ffi.from_buffer("uint8_t[]", given) as data:
        status = lib.fd_add_restart_markers(data, len(data), limits, out, size)
    if status != lib.FD_OK:
        header = probe(given)
        if header.format == "jpeg" and not structure.read(given).ended:
            raise DecodeError("the JPEG is truncated: it has no end marker (EOI)")
        words = "it is no JPEG that the core decodes: unusual, or damaged"
        if status == lib.FD_TOO_LARGE:
            words = f"it has more pixels than max_pixels={max_pixels}"
        raise _library.failure(status, words)
    try:
        return bytes(ffi.buffer(out[0], size[0]))
    finally:
        lib.fd_free(out[0])


def _checked(max_pixels: int | None) -> int:
    """Check the limit, and return it for the core, where 0 means no limit."""
    if max_pixels is None:
        return 0
    single = hasattr(max_pixels, "__index__") and getattr(max_pixels, "ndim", 0) == 0
    if isinstance(max_pixels, bool) or not single:
        raise TypeError(f"max_pixels must be an integer or None, not {max_pixels!r}")
    most = operator.index(max_pixels)
    if most < 1:
        raise ValueError(f"max_pixels must be at least 1, not {most}")
    return min(most, _LARGEST)
