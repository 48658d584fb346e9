"""Reading and writing tar headers, the 512 bytes before each member."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from fastdecode.errors import StoreError
from fastdecode.stores._ranges import Ranges
from fastdecode.types import Buffer

BLOCK = 512
"""Headers and data begin at multiples of this, in bytes."""

END = bytes(2 * BLOCK)
"""The end of a tar: two blocks of zeros."""

_LONGEST_NAME = 100
_LONGEST_PREFIX = 155
_MAX_OCTAL = 8**11
_LONG_NAME = b"././@LongLink"
_FIELDS = struct.Struct("100s 24x 12s 12x 8s c 100x 6s 2x 32s 48x 155s 12x")
_BLOCK = struct.Struct("100s 8s 8s 8s 12s 12s 8s c 100x 6s 2s 64s 8s 8s 155s 12x")
_ADLER = 65521


_PIECE = 1 << 20
_REMOTE_PIECE = 4 << 20
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
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}


class TarHeader(NamedTuple):
    """The fields of a header."""

    name: bytes  # with its prefix, if it has one
    size: int  # of the data that follows, without padding
    kind: bytes  # the type flag, one byte
    owner: bytes  # the user's name


def parse_header(block: bytes) -> TarHeader | None:
    """Parse a header of 512 bytes; None if its checksum or its size is not that of a header.

    POSIX.1-1988 (ustar), with GNU's numbers in base 256 for sizes from 8 GiB.
    """
    short, size, told, kind, magic, owner, prefix = _FIELDS.unpack(block)
    try:
        try:
            # The form that nearly all programs write: eleven digits and an end.
            length = int(size[:11], 8) if size[11] in b" \0" else _number(size)
        except ValueError:
            length = _number(size)
        total = _number(told)
    except ValueError:
        return None
    if length < 0 or not _checksum_matches(block, told, total):
        return None
    name = short.partition(b"\0")[0]
    # GNU's own magic is "ustar  "; its headers have times in place of the prefix.
    if prefix[0] and magic == b"ustar\0":
        name = prefix.partition(b"\0")[0] + b"/" + name
    return TarHeader(name, length, kind, owner.partition(b"\0")[0] if owner[0] else b"")


def _checksum_matches(block: bytes, told: bytes, total: int) -> bool:
    """Return whether the bytes add up to the checksum, whose own field counts as blanks."""
    rest = total + sum(told) - 8 * 32
    # The low half of Adler-32 is one plus the sum of the bytes, and far faster than sum().
    if (zlib.adler32(block) & 0xFFFF) == (rest + 1) % _ADLER:
        return True
    # Old Suns summed signed bytes.
    return sum(block) - 256 * sum(byte > 127 for byte in block) == rest


def make_header(name: bytes, size: int, owner: bytes = b"") -> bytes:
    """Return the header of a regular file, which is always the same for the same file.

    It has owner id 0, mode 0644 and time 0; the owner's name may have 31 bytes. A name that does
    not fit into ustar's fields precedes the header as a GNU long name.
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


def _split(name: bytes) -> tuple[bytes, bytes | None]:
    """Split a name at a slash to fit ustar's two fields; the second is None if it cannot fit."""
    if len(name) <= _LONGEST_NAME:
        return b"", name
    at = name.find(b"/", len(name) - _LONGEST_NAME - 1)
    if 0 < at <= _LONGEST_PREFIX and at + 1 < len(name):
        return name[:at], name[at + 1 :]
    return b"", None


def _block(name: bytes, size: int, kind: bytes, owner: bytes, prefix: bytes) -> bytes:
    small = size < _MAX_OCTAL
    length = b"%011o\0" % size if small else b"\x80" + size.to_bytes(11, "big")
    zeros = b"0000000\0"  # owner and group, the numbers of a device
    about = length, b"00000000000\0", b" " * 8, kind, b"ustar\0", b"00", owner, zeros, zeros, prefix
    block = _BLOCK.pack(name, b"0000644\0", zeros, zeros, *about)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


class Readable(Protocol):
    """A file, a pipe or a decompressed stream."""

    def read(self, size: int, /) -> bytes | None:
        """Return at most `size` of the next bytes; empty at the end."""


class FileSource:
    """A file or pipe to read members from. Skipped bytes are read and dropped."""

    def __init__(self, file: Readable, location: str) -> None:
        self.location = location
        self.position = 0
        self._file = file

    def take(self, size: int) -> Buffer:
        data = self._file.read(min(size, _MAX_READ)) or b""
        if len(data) < size:  # pipes and sockets may return less than asked for
            parts = [data]
            got = len(data)
            while got < size and parts[-1]:
                parts.append(self._file.read(min(size - got, _MAX_READ)) or b"")
                got += len(parts[-1])
            data = b"".join(parts)
        self.position += len(data)
        return data

    def move(self, position: int) -> bool:
        while self.position < position:
            if not self.take(min(position - self.position, _PIECE)):
                return False
        return True


class RangeSource(FileSource):
    """A mapped or remote file to read members from. Skipped bytes are not touched."""

    def __init__(self, file: Ranges) -> None:
        self.location = file.location
        self.position = 0
        self._ranges = file
        self._size = file.size
        self._window: Buffer = b""
        self._begin = 0
        self._piece = _PIECE if file.is_local else _REMOTE_PIECE

    def take(self, size: int) -> Buffer:
        start = self.position - self._begin
        end = start + size
        if end > len(self._window) or start < 0:
            # One piece holds hundreds of small members: the length of the file is checked once.
            rest = self._size - self.position
            size = min(size, rest)
            self._window = self._ranges.read(self.position, min(max(size, self._piece), rest))
            self._begin, start, end = self.position, 0, size
        self.position += size
        return self._window[start:end]

    def move(self, position: int) -> bool:
        self.position = min(position, self._size)
        return position <= self._size


class Member(NamedTuple):
    """A regular file in a tar."""

    name: str  # bytes that are not UTF-8 are escaped with backslashes
    owner: bytes  # the user's name
    offset: int  # of its data
    size: int
    head: int  # bytes of its headers before the data, with those that extend its name or size
    check: int  # the CRC-32 of these headers
    archive: int  # which one of those that were concatenated, from 0


def members(source: FileSource) -> Iterator[Member]:
    """Yield the regular files of a tar. Take the data of a member before asking for the next one.

    A tar without its end is truncated, even if it stops between two members. Errors name the last
    member before the damage.

    GNU's and POSIX.1-2001's (pax) extensions for names and sizes are supported. The end of a tar is
    a block of zeros or more. Tars that were concatenated follow one another, as for ``tar -i``.
    Anything else after the end is an error.
    """
    walk = _Walk(source)
    for start, block, header in walk.headers():
        if header.kind in b"LKxg":
            walk.extend(header.kind, header.size, block)
            continue
        if header.kind == b"S" or walk.sparse:
            raise walk.error(f"member {_text(header.name)!r} {_SPARSE_MESSAGE}")
        name, size = _text(header.name), header.size
        if walk.head:
            name = name if walk.name is None else walk.name
            size = size if walk.size is None else walk.size
        head, check = walk.head + BLOCK, zlib.crc32(block, walk.check)
        offset = start + BLOCK
        walk.last = name
        if header.kind == b"1":
            raise walk.error(f"member {name!r} {_LINK_MESSAGE}")
        if header.kind in _REGULAR:
            yield Member(name, header.owner, offset, size, head, check, walk.archive)
        room = 0 if header.kind in _WITHOUT_DATA else padded(size)
        if source.position != offset + room and not source.move(offset + room):
            raise walk.cut()
        if walk.head:
            walk.reset()


class _Walk:
    """The state between two headers."""

    def __init__(self, source: FileSource) -> None:
        self.source = source
        self.last: str | None = None
        self.archive = 0
        self.reset()

    def headers(self) -> Iterator[tuple[int, bytes, TarHeader]]:
        """Yield each header with its position and its block, to the end of the source."""
        end = 0  # the offset behind the first block of zeros, which is the end of an archive
        while True:
            start = self.source.position
            block = bytes(self.source.take(BLOCK))
            if len(block) < BLOCK and not end:
                raise self.cut() if start else self.damaged(start, block)
            header = parse_header(block) if len(block) == BLOCK else None
            if header is not None:
                self.archive += bool(end)
                end = 0
                yield start, block, header
            elif any(block) or self.pending:
                raise self.damaged(start, block, end)
            elif len(block) < BLOCK:
                return
            else:
                self.reset()
                end = end or start + BLOCK

    def reset(self) -> None:
        """Forget what concerned a single member."""
        self.pending = False
        self.name: str | None = None
        self.size: int | None = None
        self.sparse = False
        self.head = 0
        self.check = 0

    def extend(self, kind: bytes, size: int, block: bytes) -> None:
        """Read a header whose data describes the next member.

        A header about all members that follow ("g") holds nothing that is needed here.
        """
        if size > _MAX_NAME:
            raise self.error(f"there is a name of {size} bytes: it is damaged")
        data = bytes(self.source.take(padded(size)))
        if len(data) < padded(size):
            raise self.cut()
        self.head += BLOCK + len(data)
        self.check = zlib.crc32(data, zlib.crc32(block, self.check))
        self.pending = self.pending or kind != b"g"
        if kind == b"L":
            self.name = _text(data[:size].partition(b"\0")[0])
        elif kind == b"x":
            self._records(_pax(data[:size], self))

    def _records(self, records: dict[str, str]) -> None:
        self.sparse = any(name.startswith("GNU.sparse.") for name in records)
        self.name = records.get("path", self.name)
        size = records.get("size")
        if size is not None:
            if not size.isdecimal() or len(size) > 20:
                raise self.error("its pax header is damaged")
            self.size = int(size)

    def cut(self) -> StoreError:
        return self.error(
            f"it is truncated at byte {self.source.position}; if only the end is missing, "
            "`truncate -s +1024` adds it"
        )

    def damaged(self, start: int, block: bytes, end: int = 0) -> StoreError:
        """Return the error of a block that is no header; `end` is that of the tar before it."""
        if end:
            return self.error(
                f"it has an end at byte {end}, and then something else than another tar from byte "
                f"{start} on; if that is not needed, `truncate -s {start}` removes it"
            )
        if start == 0:
            for magic, name in _COMPRESSED.items():
                if block.startswith(magic):
                    return StoreError(
                        f"{self.source.location} is compressed ({name}), so that nothing in it can "
                        "be found without reading all before it: decompress it; the images in it "
                        "are compressed already"
                    )
            short = f"; it is truncated: it has {len(block)} bytes" if len(block) < BLOCK else ""
            return StoreError(f"{self.source.location} is not a tar file{short}")
        return self.error(f"it is damaged: there is no header at byte {start}")

    def error(self, reason: str) -> StoreError:
        """Return an error that names the store and the last member."""
        where = "before its first member" if self.last is None else f"after member {self.last!r}"
        return StoreError(f"{self.source.location}, {where}: {reason}")


def _pax(data: bytes, walk: _Walk) -> dict[str, str]:
    """Parse a pax header. Each of its records has a length, a name, "=", a value and a line end."""
    found = {}
    at = 0
    while at < len(data) and data[at]:
        digits, _, _ = data[at : at + 20].partition(b" ")
        if not digits.isdigit() or not len(digits) + 2 < int(digits) <= len(data) - at:
            raise walk.error("its pax header is damaged")
        name, _, value = data[at + len(digits) + 1 : at + int(digits) - 1].partition(b"=")
        found[_text(name)] = _text(value)
        at += int(digits)
    return found


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
