"""Reading and writing tar headers, the 512 bytes before each member."""

from __future__ import annotations

import struct
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fastdecode.errors import StoreError

BLOCK = 512
"""Headers and data begin at multiples of this, in bytes."""

END = bytes(2 * BLOCK)
"""The end of a tar: two blocks of zeros."""

_FIELDS = struct.Struct("100s 24x 12s 12x 8s c 100x 6s 82x 155s 12x")
_ADLER = 65521

_PIECE = 1 << 20
_MAX_READ = 64 << 20
"""Most bytes of one read, because a damaged header may promise more than memory holds."""

_MAX_NAME = 1 << 20
"""A longer name means that its header is damaged."""

_WITHOUT_DATA = b"123456"
"""Links, devices, folders and pipes: no data follows, whatever size their headers have."""

_REGULAR = (b"0", b"\0", b"7")
_SPARSE_MESSAGE = (
    "is sparse (holes are left out of it), which is not supported: pack it with --format=ustar"
)
_LINK_MESSAGE = (
    "is a link to another member, without bytes of its own: pack it with --hard-dereference"
)


class TarHeader(NamedTuple):
    """The fields of a header."""

    name: bytes  # with its prefix, if it has one
    size: int  # of the data that follows, without padding
    kind: bytes  # the type flag, one byte


def parse_header(block: bytes) -> TarHeader | None:
    """Parse a header of 512 bytes; None if its checksum or its size is not that of a header.

    POSIX.1-1988 (ustar), with GNU's numbers in base 256 for sizes from 8 GiB.
    """
    short, size, told, kind, magic, prefix = _FIELDS.unpack(block)
    try:
        try:
            # The form that nearly all programs write: eleven digits and an end.
            length = int(size[:11], 8) if size[11] in b" \0" else _number(size)
        except ValueError:
            length = _number(size)
        total = _number(told)
    except ValueError:
        return None
    # The bytes add up to the checksum, whose own field counts as blanks. The low half of Adler-32
    # is one plus the sum of the bytes, and far faster than sum().
    if length < 0 or (zlib.adler32(block) & 0xFFFF) != (total + sum(told) - 8 * 32 + 1) % _ADLER:
        return None
    name = short.partition(b"\0")[0]
    # GNU's own magic is "ustar  "; its headers have times in place of the prefix.
    if prefix[0] and magic == b"ustar\0":
        name = prefix.partition(b"\0")[0] + b"/" + name
    return TarHeader(name, length, kind)


def make_header(name: str, size: int) -> bytes:
    """Return the header of a regular file, which is always the same for the same file.

    It has owner id 0, mode 0644 and time 0. A name or size that does not fit into ustar's fields
    has GNU's form.
    """
    about = tarfile.TarInfo(name)
    about.size = size
    try:
        return about.tobuf(tarfile.USTAR_FORMAT, "utf-8", "surrogateescape")
    except ValueError:
        return about.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def padded(size: int) -> int:
    """Return the size of data with its padding, in bytes."""
    return size + -size % BLOCK


def _number(field: bytes) -> int:
    """Parse a number in octal digits, or in GNU's base 256 for numbers too large for these."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    number = int(field.partition(b"\0")[0].rstrip() or b"0", 8)
    if number < 0:
        raise ValueError("a size below zero")
    return number


class Readable(Protocol):
    """A file, a pipe or a decompressed stream."""

    def read(self, size: int, /) -> bytes | None:
        """Return at most `size` of the next bytes; empty at the end."""


class TarSource:
    """A file or pipe to read members from; skipped bytes are read, unless its size is known."""

    def __init__(self, file: Any, location: str, size: int | None = None) -> None:
        self.location = location
        self.position = 0
        self.last: str | None = None  # the name of the last member
        self._file = file
        self.size = size

    def take(self, size: int) -> bytes:
        data: bytes = self._file.read(min(size, _MAX_READ)) or b""
        if len(data) < size:  # pipes and sockets may return less than asked for
            parts = [data]
            got = len(data)
            while got < size and parts[-1]:
                parts.append(self._file.read(min(size - got, _MAX_READ)) or b"")
                got += len(parts[-1])
            data = b"".join(parts)
        self.position += len(data)
        return data

    def move(self, position: int) -> None:
        """Skip bytes; raise a StoreError if the file ends before that position."""
        if self.size is not None:
            if position > self.size:
                self.position = self.size
                raise self.cut()
            self.position = self._file.seek(position)
        while self.position < position:
            if not self.take(min(position - self.position, _PIECE)):
                raise self.cut()

    def cut(self) -> StoreError:
        return self.error(
            f"it is truncated at byte {self.position}; if only the end is missing, "
            "`truncate -s +1024` adds it"
        )

    def error(self, reason: str) -> StoreError:
        """Return an error that names the store and the last member."""
        where = "before its first member" if self.last is None else f"after member {self.last!r}"
        return StoreError(f"{self.location}, {where}: {reason}")


class Member(NamedTuple):
    """A regular file in a tar."""

    name: str  # bytes that are not UTF-8 are escaped with backslashes
    offset: int  # of its data
    size: int
    head: int  # bytes of its headers before the data, with those that extend its name or size
    check: int  # the CRC-32 of these headers


@dataclass
class _Extension:
    """What the headers before that of a member say about it."""

    pending: bool = False  # whether a member must follow
    name: str | None = None
    size: int | None = None
    sparse: bool = False
    head: int = 0
    check: int = 0

    def add(self, source: TarSource, kind: bytes, size: int, block: bytes) -> None:
        """Read a header whose data describes the next member.

        A header about all members that follow ("g") holds nothing that is needed here.
        """
        if size > _MAX_NAME:
            raise source.error(f"there is a name of {size} bytes: it is damaged")
        data = source.take(padded(size))
        if len(data) < padded(size):
            raise source.cut()
        self.head += BLOCK + len(data)
        self.check = zlib.crc32(data, zlib.crc32(block, self.check))
        self.pending = self.pending or kind != b"g"
        if kind == b"L":
            self.name = _text(data[:size].partition(b"\0")[0])
        elif kind == b"x":
            records = _pax(data[:size])
            length = None if records is None else records.get("size", "0")
            if records is None or length is None or not length.isdecimal() or len(length) > 20:
                raise source.error("its pax header is damaged")
            self.sparse = any(name.startswith("GNU.sparse.") for name in records)
            self.name = records.get("path", self.name)
            self.size = int(length) if "size" in records else self.size


def members(source: TarSource) -> Iterator[Member]:
    """Yield the regular files of a tar. Take the data of a member before asking for the next one.

    A tar without its end is truncated, even if it stops between two members. Errors name the last
    member before the damage.

    GNU's and POSIX.1-2001's (pax) extensions for names and sizes are supported. The end of a tar is
    a block of zeros or more, behind which nothing else may be.
    """
    before = _Extension()
    while True:
        start = source.position
        block = source.take(BLOCK)
        header = parse_header(block) if len(block) == BLOCK else None
        if header is None:
            break
        if header.kind in b"LKxg":
            before.add(source, header.kind, header.size, block)
            continue
        name = _text(header.name) if before.name is None else before.name
        size = header.size if before.size is None else before.size
        if header.kind == b"S" or before.sparse:
            raise source.error(f"member {name!r} {_SPARSE_MESSAGE}")
        source.last = name
        if header.kind == b"1":
            raise source.error(f"member {name!r} {_LINK_MESSAGE}")
        if header.kind in _REGULAR:
            head, check = before.head + BLOCK, zlib.crc32(block, before.check)
            yield Member(name, start + BLOCK, size, head, check)
        end = start + BLOCK + (0 if header.kind in _WITHOUT_DATA else padded(size))
        if source.position != end:
            source.move(end)
        if before.head:
            before = _Extension()
    _check_end(source, start, block, pending=before.pending)


def _check_end(source: TarSource, start: int, block: bytes, *, pending: bool) -> None:
    """Raise a StoreError unless a tar ends with this block, which is no header, and more zeros."""
    if start == 0 and (any(block) or len(block) < BLOCK):
        short = f"; it is truncated: it has {len(block)} bytes" if len(block) < BLOCK else ""
        raise StoreError(
            f"{source.location} is not a tar file{short}; if it is compressed, decompress it: the "
            "images in it are compressed already"
        )
    if len(block) < BLOCK:
        raise source.cut()
    if any(block) or pending:
        raise source.error(f"it is damaged: there is no header at byte {start}")
    end = source.position
    while block:
        if any(block):
            raise source.error(
                f"it ends at byte {end}, and then something else follows; if that is not needed, "
                f"`truncate -s {end}` removes it"
            )
        block = source.take(_PIECE)


def _pax(data: bytes) -> dict[str, str] | None:
    """Parse a pax header; None if it is damaged.

    Each of its records has a length, a name, "=", a value and a line end.
    """
    found = {}
    at = 0
    while at < len(data) and data[at]:
        digits, _, _ = data[at : at + 20].partition(b" ")
        if not digits.isdigit() or not len(digits) + 2 < int(digits) <= len(data) - at:
            return None
        name, _, value = data[at + len(digits) + 1 : at + int(digits) - 1].partition(b"=")
        found[_text(name)] = _text(value)
        at += int(digits)
    return found


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
