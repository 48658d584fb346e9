"""Reading and writing tar headers and members, and the samples that members of one stem are.

The rule for names is WebDataset's; keys that break it have another name in the tar.
"""

from __future__ import annotations

import re
import struct
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fastdecode._error_policy import mark_fatal
from fastdecode._formats import sniff
from fastdecode.errors import StoreError, with_advice
from fastdecode.stores._scan import EXTENSIONS
from fastdecode.stores.base import check_key, parse_target, relative
from fastdecode.types import Buffer

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

IMAGES = frozenset((*(each[1:] for each in EXTENSIONS), "ico", "img", "pcx", "tga"))
"""Extensions of images, in lower case; "img" is for images of an unknown format."""

_META = re.compile(r"__[^/]*__($|/)")
_SUFFIXES = {"jpeg": "jpg", "jpeg2000": "jp2"}  # else the format's own name

_TARGETS = ("cls", "json", "txt")
_NUMBERS = ("cls", "cls2", "index", "inx", "id")
"""Extensions of whole numbers, as WebDataset decodes them."""


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


# ---- samples


def split(name: str) -> tuple[str, str] | None:
    """Split a member's name into stem and extension; None if it belongs to no sample.

    A name belongs to no sample if its last part has no dot or begins with one, or if WebDataset
    uses the name itself ("__name__").

    The rule is WebDataset's (``base_plus_ext`` in its ``tariterators.py``): a name is split at the
    first dot after the last slash. WebDataset keeps a leading "./"; keys here do not have it.
    """
    if name[:1] in ("/", "."):
        while name.startswith(("./", "/")):
            name = name[1:] if name.startswith("/") else name[2:]
    folder, slash, last = name.rpartition("/")
    base, dot, extension = last.partition(".")
    if not base or not dot or (name[:2] == "__" and _META.match(name)):
        return None
    return folder + slash + base, extension


def member_name(key: str, data: Buffer) -> tuple[str, str]:
    """Return the stem and the extension of the member for a key, as WebDataset splits it.

    "dogs/a.jpg" stays as it is. WebDataset would split the name at any other dot, so other dots
    become "%2E". The data gives the extension of a key without one.
    """
    check_key(key)
    folder, slash, last = key.rpartition("/")
    base, dot, extension = last.rpartition(".")
    if not base or not dot or extension.lower() not in IMAGES:
        base, extension = last, _extension(data)
    stem = folder + slash + base.replace(".", "%2E")
    return ("%5F" + stem[1:] if _META.match(stem + ".") else stem), extension


def _extension(data: Buffer) -> str:
    """Return the extension of the data's format; "img" if the format is unknown."""
    name = (len(data) and sniff(data)) or "img"
    extension = _SUFFIXES.get(name, name)
    return extension if extension in IMAGES else "img"


class WantedMembers(NamedTuple):
    """Which members of a sample the caller wants."""

    # extensions of the image in order of preference; empty for any known one
    image: tuple[str, ...] = ()
    # the extension of the target; empty for the first of cls, json and txt that the sample has
    target: str = ""

    def is_image(self, extension: str) -> bool:
        """Return whether an extension, in lower case, is one of images."""
        if self.image:
            return extension in self.image and extension != self.target
        return extension.rpartition(".")[2] in IMAGES and extension != self.target

    def is_target(self, extension: str) -> bool:
        return extension == self.target if self.target else extension in _TARGETS


def wanted_members(image: str | Sequence[str] | None, target: str | None) -> WantedMembers:
    """Convert the options ``image`` and ``target``; extensions may begin with a dot."""
    images = [image] if isinstance(image, str) else list(image or ())
    return WantedMembers(
        tuple(each.lower().lstrip(".") for each in images), (target or "").lower().lstrip(".")
    )


class TarSample(NamedTuple):
    """The image and the target among the members with one stem."""

    stem: str
    key: str = ""
    member: Member | None = None  # the image's; None if the sample has none
    data: Buffer = b""  # the image; empty without `with_data`
    target: Any = None
    beside: Member | None = None  # the target's
    beside_check: int = 0  # the CRC-32 of its bytes


class _File(NamedTuple):
    """A member of a sample; the data of what is not wanted is not read."""

    extension: str
    member: Member
    data: Buffer = b""


def samples(source: TarSource, wanted: WantedMembers, *, with_data: bool) -> Iterator[TarSample]:
    """Yield the samples of a tar, including those without an image.

    The rules are WebDataset's (``group_by_keys`` in its ``tariterators.py``): the files of a sample
    follow one another, and extensions are compared in lower case. If files of a sample come apart
    from its image, a StoreError is raised.
    """
    seen: tuple[set[int], set[int]] = set(), set()  # hashes: a tenth of the names' memory
    for stem, files in _grouped(source, wanted, with_data=with_data):
        sample = _as_sample(source.location, stem, files, wanted)
        has_image = sample.member is not None
        seen[has_image].add(hash(stem))
        if hash(stem) in seen[not has_image]:
            raise mark_fatal(
                StoreError(
                    f"{source.location}: the files of sample {stem!r} do not follow one another, "
                    "so that its target would be lost: make the tar with --sort=name"
                )
            )
        yield sample


def _grouped(
    source: TarSource, wanted: WantedMembers, *, with_data: bool
) -> Iterator[tuple[str, dict[str, _File]]]:
    """Yield the stem of each sample, and its files by their extensions in lower case."""
    name, files = "", dict[str, _File]()
    for member in members(source):
        parts = split(member.name)
        if parts is None:
            continue
        stem, extension = parts
        if stem != name:
            if files:
                yield name, files
            name, files = stem, {}
        lower = extension.lower()
        if lower in files:
            raise StoreError(f"{source.location}: member {member.name!r} is in its sample twice")
        if wanted.is_target(lower) or (with_data and wanted.is_image(lower)):
            files[lower] = _File(extension, member, _member_data(source, member))
        else:
            files[lower] = _File(extension, member)
    if files:
        yield name, files


def _as_sample(
    location: str, stem: str, files: dict[str, _File], wanted: WantedMembers
) -> TarSample:
    """Find the image and the target among the files of a sample."""
    images = {name: file for name, file in files.items() if wanted.is_image(name)}
    if not images:
        return TarSample(stem)
    extension, member, data = images[_choose_image(location, stem, images, wanted)]
    key = relative(f"{stem}.{extension}")
    for name in (wanted.target,) if wanted.target else _TARGETS:
        if name in files:
            text = bytes(files[name].data)
            target = _parse_target(location, stem, name, text)
            return TarSample(stem, key, member, data, target, files[name].member, zlib.crc32(text))
    return TarSample(stem, key, member, data)


def _choose_image(location: str, stem: str, images: dict[str, _File], wanted: WantedMembers) -> str:
    """Return the extension of the image."""
    if wanted.image:
        return min(images, key=wanted.image.index)
    plain = [extension for extension in images if "." not in extension]
    if len(images) == 1 or len(plain) == 1:  # "jpg" next to "mask.png"
        return (plain or [*images])[0]
    listed = ", ".join(images)
    raise StoreError(
        f"{location}: sample {stem!r} has more than one image ({listed}): say which one with "
        f"image={next(iter(images))!r}"
    )


def _parse_target(location: str, stem: str, extension: str, data: bytes) -> Any:
    try:
        text = data.decode()
        if extension in _NUMBERS:
            return int(text)
        if extension.rpartition(".")[2] == "json":
            return parse_target(text)
    except (ValueError, RecursionError) as error:
        wrong = StoreError(
            f"{location}: the .{extension} of sample {stem!r} cannot be read ({error})"
        )
        raise with_advice(wrong, ": say which is the target with target=") from error
    return text


def _member_data(source: TarSource, member: Member) -> Buffer:
    data = source.take(member.size)
    if len(data) < member.size:
        raise StoreError(
            f"{source.location}: member {member.name!r} is truncated: {len(data)} bytes of "
            f"{member.size} are there"
        )
    return data
