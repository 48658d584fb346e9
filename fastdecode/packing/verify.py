"""Whether a picture decodes, all of it; and in which words a failure is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdecode.api import decode_part, probe
from fastdecode.errors import FastDecodeError

if TYPE_CHECKING:
    from fastdecode.types import Buffer, Header

__all__ = ["plain", "reason", "verify"]


def verify(data: Buffer, header: Header | None = None) -> Header:
    """Decode a picture in full, and let go of the pixels.

    Parameters
    ----------
    data : bytes or memoryview
    header : Header, optional
        Of `data`, where it is known already.

    Returns
    -------
    Header

    Raises
    ------
    FastDecodeError
        As from `decode`: what decodes there, with every pixel in the file, is good.
    """
    header = probe(data) if header is None else header
    decode_part(data, header, 1, None)
    return header


def reason(error: BaseException) -> str:
    """Say in one line why an item is bad."""
    words = plain(" ".join(str(error).split()))
    known = isinstance(error, (FastDecodeError, OSError, ValueError))
    return words if known and words else f"{type(error).__name__}: {words}".rstrip(": ")


def plain(text: str) -> str:
    """Return text that every file takes: a name on a disk may be no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()
