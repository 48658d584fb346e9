"""Checking one item: whether it decodes in full, and why not, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdecode.api import decode_part
from fastdecode.errors import FastDecodeError, without_advice

if TYPE_CHECKING:
    from fastdecode.types import Buffer, Header


def verify(data: Buffer, header: Header) -> None:
    """Decode an image in full, as `decode` does, and drop the pixels."""
    decode_part(data, header, 1, None)


def reason(error: BaseException) -> str:
    """Return in one line why an item is bad."""
    words = plain(" ".join(without_advice(error).split()))
    known = isinstance(error, (FastDecodeError, OSError, ValueError))
    return words if known and words else f"{type(error).__name__}: {words}".rstrip(": ")


def plain(text: str) -> str:
    """Return text that every file takes: a name on a disk may be no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()
