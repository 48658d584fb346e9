"""Going through a tar from member to member, in a mapped file or in a stream."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from fastdecode.errors import StoreError
from fastdecode.stores.mapped import Mapped
from fastdecode.stores.tar_header import BLOCK, padded, parse_header
from fastdecode.types import Buffer

__all__ = ["FileSource", "MappedSource", "Member", "Readable", "Source", "members"]

_PIECE = 1 << 20
_MOST_READ = 64 << 20
"""What is asked for at once: a damaged header may promise more than memory holds."""

_MOST_NAME = 1 << 20
"""Longer "names" are those of a damaged header."""

_WITHOUT_DATA = b"123456"
"""Links, devices, folders, pipes: whatever size their headers have, none of it follows."""

_REGULAR = (b"0", b"\0", b"7")
_SPARSE = (
    "is sparse (holes are left out of it), which is not supported: pack it with --format=ustar"
)
_LINKED = "is a link to another member, without bytes of its own: pack it with --hard-dereference"
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}


class Readable(Protocol):
    """A file, a pipe or a decompressed stream."""

    def read(self, size: int, /) -> bytes | None:
        """Return some of the next bytes; none at the end."""


class Source(Protocol):
    """What members are read from, forwards.

    Attributes
    ----------
    location : str
        As errors name it.
    position : int
    """

    location: str
    position: int

    def take(self, size: int) -> Buffer:
        """Return the next bytes; fewer only at the end."""

    def move(self, position: int) -> bool:
        """Go on further behind; False if the end comes before it."""


class MappedSource:
    """A file that is mapped: what is not taken is not touched."""

    def __init__(self, file: Mapped) -> None:
        self.location = file.location
        self.position = 0
        self._file = file
        self._size = file.size
        self._window: Buffer = b""
        self._begin = 0

    def take(self, size: int) -> Buffer:
        """See `Source`."""
        start = self.position - self._begin
        end = start + size
        if end > len(self._window) or start < 0:
            # Small members come by the hundred in a piece, of which is asked once if it is there.
            rest = self._size - self.position
            size = min(size, rest)
            self._window = self._file.read(self.position, min(max(size, _PIECE), rest))
            self._begin, start, end = self.position, 0, size
        self.position += size
        return self._window[start:end]

    def move(self, position: int) -> bool:
        """See `Source`."""
        self.position = min(position, self._size)
        return position <= self._size


class FileSource:
    """Anything that can be read, pipes included: what is not taken is read and dropped."""

    def __init__(self, file: Readable, location: str) -> None:
        self.location = location
        self.position = 0
        self._file = file

    def take(self, size: int) -> Buffer:
        """See `Source`."""
        data = self._file.read(min(size, _MOST_READ)) or b""
        if len(data) < size:  # pipes and sockets give what they have
            parts = [data]
            got = len(data)
            while got < size and parts[-1]:
                parts.append(self._file.read(min(size - got, _MOST_READ)) or b"")
                got += len(parts[-1])
            data = b"".join(parts)
        self.position += len(data)
        return data

    def move(self, position: int) -> bool:
        """See `Source`."""
        while self.position < position:
            if not self.take(min(position - self.position, _PIECE)):
                return False
        return True


class Member(NamedTuple):
    """A regular file in a tar.

    Attributes
    ----------
    name : str
        What is no UTF-8 in it is written with backslashes.
    owner : bytes
        The user's name.
    offset, size : int
        Where its data lies.
    head : int
        How many bytes before its data are about it: its header, and what gives it a longer name.
    check : int
        The CRC-32 of these.
    """

    name: str
    owner: bytes
    offset: int
    size: int
    head: int
    check: int


def members(source: Source, *, ended: bool = True) -> Iterator[Member]:
    """Go through the regular files of a tar.

    Parameters
    ----------
    source : Source
        Whoever takes a member's data does so before asking for the next one.
    ended : bool
        A tar that stops without its end is cut short, even between two members. False for one that
        is still being written.

    Yields
    ------
    Member

    Raises
    ------
    StoreError
        If it is no tar, or damaged, or cut short. The message names the last member before that.

    Notes
    -----
    Names and sizes in GNU's and in POSIX.1-2001's (pax) extensions are heeded. What follows the
    first block of zeros is not read, as tar itself does.
    """
    walk = _Walk(source)
    while True:
        start = source.position
        block = bytes(source.take(BLOCK))
        if len(block) < BLOCK:
            if not block and not ended and not walk.pending:
                return
            raise walk.cut() if start else walk.damaged(start, block)
        header = parse_header(block)
        if header is None:
            if not any(block) and not walk.pending:
                return
            raise walk.damaged(start, block)
        if header.kind in b"LKxg":
            walk.extend(header.kind, header.size, block)
            continue
        if header.kind == b"S" or walk.sparse:
            raise walk.error(f"member {_text(header.name)!r} {_SPARSE}")
        name, size = _text(header.name), header.size
        if walk.head:
            name = name if walk.name is None else walk.name
            size = size if walk.size is None else walk.size
        head, check = walk.head + BLOCK, zlib.crc32(block, walk.check)
        offset = start + BLOCK
        walk.last = name
        if header.kind == b"1":
            raise walk.error(f"member {name!r} {_LINKED}")
        if header.kind in _REGULAR:
            yield Member(name, header.owner, offset, size, head, check)
        room = 0 if header.kind in _WITHOUT_DATA else padded(size)
        if source.position != offset + room and not source.move(offset + room):
            raise walk.cut()
        if walk.head:
            walk.reset()


class _Walk:
    """What is known between headers."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.last: str | None = None
        self.reset()

    def reset(self) -> None:
        """Forget what was said of one member alone."""
        self.pending = False
        self.name: str | None = None
        self.size: int | None = None
        self.sparse = False
        self.head = 0
        self.check = 0

    def extend(self, kind: bytes, size: int, block: bytes) -> None:
        """Read a header whose data is about the next member.

        One about all that follow ("g") has nothing in it that matters here.
        """
        if size > _MOST_NAME:
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
        """Return the error for a tar that ends too early."""
        return self.error(
            f"it is cut short at byte {self.source.position}; if nothing is missing but the end, "
            "`truncate -s +1024` makes one"
        )

    def damaged(self, start: int, block: bytes) -> StoreError:
        """Return the error for what is no header."""
        if start == 0:
            for magic, name in _COMPRESSED.items():
                if block.startswith(magic):
                    return StoreError(
                        f"{self.source.location} is compressed ({name}), so that nothing in it can "
                        "be found without reading all before it: decompress it; pictures are "
                        "compressed as they are"
                    )
            short = f"; it is cut short: it has {len(block)} bytes" if len(block) < BLOCK else ""
            return StoreError(f"{self.source.location} is no tar file{short}")
        return self.error(f"it is damaged: there is no header at byte {start}")

    def error(self, reason: str) -> StoreError:
        """Return an error that names the store and the last member."""
        where = "before its first member" if self.last is None else f"after member {self.last!r}"
        return StoreError(f"{self.source.location}, {where}: {reason}")


def _pax(data: bytes, walk: _Walk) -> dict[str, str]:
    """Read the records of a pax header: a length, a name, "=", a value and a line's end each."""
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
