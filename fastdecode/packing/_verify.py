"""Checks that an item decodes in full, and words the reason if it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdecode.api import decode_part
from fastdecode.errors import FastDecodeError, without_advice

if TYPE_CHECKING:
    from fastdecode.types import Buffer, Header


def verify(data: Buffer, header: Header) -> None:
    """Decode an image in full, however large it is, and discard the pixels."""
    decode_part(data, header, 1, None, max_pixels=None)


def reason(error: BaseException) -> str:
    """Return the reason why an item is bad, in one line."""
    words = printable(" ".join(without_advice(error).split()))
    known = isinstance(error, (FastDecodeError, OSError, ValueError))
    return words if known and words else f"{type(error).__name__}: {words}".rstrip(": ")


def printable(text: str) -> str:
    """Return text that can be written as UTF-8, which the name of a file may not be."""
    return text.encode("utf-8", "backslashreplace").decode()
