"""Tar's headers: what the 512 bytes before each member say, read and written."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

__all__ = ["BLOCK", "END", "Header", "make_header", "padded", "parse_header"]

BLOCK = 512
"""Headers and data begin at multiples of it."""

END = bytes(2 * BLOCK)
"""What a tar ends with."""

_LONGEST_NAME = 100
_LONGEST_PREFIX = 155
_MOST_OCTAL = 8**11
_LONG_NAME = b"././@LongLink"
_FIELDS = struct.Struct("100s 24x 12s 12x 8s c 100x 6s 2x 32s 48x 155s 12x")
_ADLER = 65521
_NONE = b"0000000\0"


class Header(NamedTuple):
    """What a header says.

    Attributes
    ----------
    name : bytes
        With its prefix, if it has one.
    size : int
        Of the data that follows, without padding.
    kind : bytes
        The type flag, one byte.
    owner : bytes
        The user's name.
    """

    name: bytes
    size: int
    kind: bytes
    owner: bytes


def parse_header(block: bytes) -> Header | None:
    """Read a header.

    Parameters
    ----------
    block : bytes
        512 of them.

    Returns
    -------
    Header or None
        None if its checksum does not fit, or its size is no number: it is no header.

    Notes
    -----
    POSIX.1-1988 (ustar), with GNU's numbers in base 256 for sizes from 8 GiB.
    """
    short, size, told, kind, magic, owner, prefix = _FIELDS.unpack(block)
    try:
        try:
            # As nearly all write it: eleven digits and an end.
            length = int(size[:11], 8) if size[11] in b" \0" else _number(size)
        except ValueError:
            length = _number(size)
        total = _number(told)
    except ValueError:
        return None
    if length < 0 or not _sums_up(block, told, total):
        return None
    name = short.partition(b"\0")[0]
    # GNU's own magic is "ustar  ", and its headers have no prefix there, but times.
    if prefix[0] and magic == b"ustar\0":
        name = prefix.partition(b"\0")[0] + b"/" + name
    return Header(name, length, kind, owner.partition(b"\0")[0] if owner[0] else b"")


def _sums_up(block: bytes, told: bytes, total: int) -> bool:
    """Whether the sum of all bytes is what is told, whose own field counts as blanks."""
    rest = total + sum(told) - 8 * 32
    # The low half of Adler-32 is the sum of the bytes and one: far faster than sum().
    if (zlib.adler32(block) & 0xFFFF) == (rest + 1) % _ADLER:
        return True
    return sum(block) - 256 * sum(byte > 127 for byte in block) == rest  # as old Suns summed


def make_header(name: bytes, size: int, owner: bytes = b"") -> bytes:
    """Write the header of a regular file: the same bytes for the same file, at any time, anywhere.

    Parameters
    ----------
    name : bytes
    size : int
    owner : bytes
        The user's name, of at most 31 bytes.

    Returns
    -------
    bytes
        A multiple of 512. Owner 0, mode 0644, time 0. Names that ustar has no room for come before
        it as a GNU long name.
    """
    prefix, short = _split(name)
    if short is not None:
        return _block(short, size, b"0", owner, prefix)
    long = name + b"\0"
    return b"".join(
        (
            _block(_LONG_NAME, len(long), b"L", b"", b""),
            long,
            bytes(-len(long) % BLOCK),
            _block(name[:_LONGEST_NAME], size, b"0", owner, b""),
        )
    )


def padded(size: int) -> int:
    """Return how much room data takes."""
    return size + -size % BLOCK


def _number(field: bytes) -> int:
    """Read a number in octal digits, or in base 256 as GNU writes what these do not hold."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    number = int(field.partition(b"\0")[0].rstrip() or b"0", 8)
    if number < 0:
        raise ValueError("a size below zero")
    return number


def _split(name: bytes) -> tuple[bytes, bytes | None]:
    """Find the slash at which a name fits ustar's two fields; None for the second if none does."""
    if len(name) <= _LONGEST_NAME:
        return b"", name
    at = name.find(b"/", len(name) - _LONGEST_NAME - 1)
    if 0 < at <= _LONGEST_PREFIX and at + 1 < len(name):
        return name[:at], name[at + 1 :]
    return b"", None


def _block(name: bytes, size: int, kind: bytes, owner: bytes, prefix: bytes) -> bytes:
    small = size < _MOST_OCTAL
    length = b"%011o\0" % size if small else b"\x80" + size.to_bytes(11, "big")
    block = b"".join(
        (
            name.ljust(_LONGEST_NAME, b"\0"),
            b"0000644\0",  # mode, owner, group
            _NONE,
            _NONE,
            length,
            b"00000000000\0",
            b" " * 8,
            kind.ljust(_LONGEST_NAME + 1, b"\0"),
            b"ustar\0",
            b"00",
            owner.ljust(64, b"\0"),
            _NONE,
            _NONE,
            prefix.ljust(_LONGEST_PREFIX, b"\0"),
            bytes(12),
        )
    )
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]
