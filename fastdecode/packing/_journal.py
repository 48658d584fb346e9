"""`Journal`: how far a pack has come, in records that survive a kill at any moment.

Each record is a line: the CRC-32 of its text in hexadecimal, a space, and JSON. It is on the disk
before `Journal.append` returns. What follows the last whole record is the half of one that a kill
has left: it is cut off, and never was. `State` is what the records say together; whatever is not
of the form that a pack writes is refused before it is believed.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from fastdecode._files import flush_folder
from fastdecode.errors import StoreError
from fastdecode.packing._lock import Refused, open_own

_NOT_UNDERSTOOD = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What a record of another form makes of the code that takes it in."""

_MADE = re.compile(r"out/(?P<name>[^/\\\0]+)|spool-\d{5,}")


class Item(NamedTuple):
    """An image in the spool."""

    key: str
    target: Any
    shard: int  # from 0; the image's bytes are in that shard's file, from `offset`
    offset: int
    size: int
    sha256: str
    notes: str  # see `Packed`; with commas between them
    number: int  # in the source
    stamp: str  # see `fastdecode.packing._rewrite.stamp`


class Bad(NamedTuple):
    """An item that is left out."""

    number: int  # in the source
    key: str
    reason: str
    fixed: bool  # no other content would be better: its key or target is what cannot be kept


_ITEM = (str, object, int, int, int, str, str, int, str)
_BAD = (int, str, str, bool)


@dataclass
class Packed:
    """What came of a pack.

    Attributes
    ----------
    location : str
        Of the store.
    kind : str
    items : int
        Images in it.
    bytes_in, bytes_out : int
        Of the encoded images that were read, and of those in the store.
    notes : Counter
        How many were ``"shrunk"``, and given ``"restart markers"``; how many are ``"too large"``
        because they hold what cannot be shrunk here, or have ``"no restart markers"`` because the
        core refused them.
    bad : list of (key, reason)
        Items that do not decode, or cannot be read.
    resumed : int
        Items of the source that an earlier run had done.
    empty_classes : list of str
        Classes of the source of which no image is left.
    manifest : str
        Path of the manifest.
    shards : list of str
        Paths of the shards, in their order, if a `shard_size` was asked for.

    Examples
    --------
    >>> from fastdecode.packing import pack
    >>> packed = pack("train", "packed.tar")
    >>> packed.kind, packed.items, packed.bad, packed.manifest
    ('tar', 6, [], 'packed.tar.json')
    """

    location: str
    kind: str
    items: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    bad: list[tuple[str, str]] = field(default_factory=list)
    resumed: int = 0
    empty_classes: list[str] = field(default_factory=list)
    manifest: str = ""
    shards: list[str] = field(default_factory=list)


class BadItems(StoreError):
    """Some items of the source are bad, and were not to be left out: nothing has been made.

    Attributes
    ----------
    packed : Packed or None
        What was found.

    Examples
    --------
    >>> from pathlib import Path
    >>> from fastdecode.packing import BadItems, pack
    >>> Path("mixed").mkdir()
    >>> sizes = [Path("mixed", name).write_bytes(data[:end])
    ...          for name, end in {"good.jpg": None, "half.jpg": 9000}.items()]
    >>> try:
    ...     packed = pack("mixed", "mixed.tar")
    ... except BadItems as error:
    ...     print([key for key, reason in error.packed.bad])
    ['half.jpg']
    >>> pack("mixed", "mixed.tar", skip_bad=True).items
    1
    """

    packed: Packed | None = None


class Journal:
    """Records in their order, in a file that only grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "ab", buffering=0, opener=open_own)  # noqa: SIM115 - see `close`
        self._file.truncate(sum(length for _, length in self._lines()))
        flush_folder(path)

    def append(self, record: Any) -> None:
        """Add a record and wait until it is on the disk; after an error it will not be found."""
        text = json.dumps(record, sort_keys=True).encode()
        line = memoryview(b"%08x %s\n" % (zlib.crc32(text), text))
        while line:  # a disk that is nearly full takes a part
            line = line[self._file.write(line) :]
        os.fsync(self._file.fileno())

    def __iter__(self) -> Iterator[Any]:
        """Read the records again, from the file: there may be more than memory holds."""
        for record, _ in self._lines():
            yield record

    def cut(self, number: int) -> None:
        """Forget the first record that is about this item of the source, and all after it."""
        end = 0
        for record, length in self._lines():
            if record.get("next", 0) > number:
                break
            end += length
        self._file.truncate(end)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def _lines(self) -> Iterator[tuple[Any, int]]:
        """Yield the whole records, with the length of each in bytes, up to the first that is not.

        A whole one that is not JSON is None, which is no record.
        """
        with open(self.path, "rb", opener=open_own) as file:
            for line in file:
                sum_, _, text = line[:-1].partition(b" ")
                if line[-1:] != b"\n" or sum_ != b"%08x" % zlib.crc32(text):
                    return
                try:
                    record = json.loads(text)
                except (RecursionError, ValueError):
                    record = None
                yield record, len(line)


@dataclass
class State:
    """What has been done."""

    packed: Packed  # counts, so far
    # what the pack was begun with, which is empty if it has not begun, and what its source was then
    asked: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    next: int = 0  # the first item of the source that is still to do
    shard: int = 0  # the spool is good up to the offset `end` of this shard
    end: int = 0
    bad: list[Bad] = field(default_factory=list)
    used: set[int] = field(default_factory=set)  # targets that are whole numbers, as of classes
    # once everything is made: where each file goes, from the partial folder
    moves: list[tuple[str, str]] | None = None

    def read(self, journal: Journal) -> None:
        """Take in every record; refuse one that a pack to this place does not write."""
        for number, record in enumerate(journal, start=1):
            try:
                self.take(record)
            except _NOT_UNDERSTOOD as error:
                raise Refused(
                    f"{journal.path}, record {number}, is not what a pack to this place writes: "
                    "begin again with --start-over"
                ) from error
        self.packed.resumed = self.next

    def take(self, record: dict[str, Any]) -> None:
        """Take in one record: the first, one about some items, or the last."""
        if "asked" in record:
            self.asked, self.source = _typed((record["asked"], record["source"]), dict, dict)
        elif "moves" in record:
            self.moves = [self._move(first, last) for first, last in record["moves"]]
        else:
            self._count(record)

    def _move(self, first: str, last: str) -> tuple[str, str]:
        """Accept a renaming: of what a pack makes in its folder, to a name of this store's."""
        found = _MADE.fullmatch(first)
        name = Path(self.packed.location).stem
        plain = PurePosixPath(last).name == last and "\\" not in last and "\0" not in last
        if not found or not plain or not last.startswith(name) or found["name"] not in (None, last):
            raise ValueError(f"{first!r} to {last!r}")
        return first, last

    def _count(self, record: dict[str, Any]) -> None:
        packed = self.packed
        numbers = [record[name] for name in ("next", "shard", "end", "bytes_in")]
        self.next, self.shard, self.end, size = _typed(numbers, int, int, int, int)
        packed.bytes_in += size
        bad = [Bad._make(_typed(one, *_BAD)) for one in record["bad"]]
        self.bad += bad
        packed.bad += [(one.key, one.reason) for one in bad]
        packed.items += len(record["items"])
        for item in (Item._make(_typed(one, *_ITEM)) for one in record["items"]):
            packed.bytes_out += item.size
            packed.notes.update(item.notes.split(", ") if item.notes else ())
            if type(item.target) is int:
                self.used.add(item.target)

    def check(self, name: str, now: dict[str, Any]) -> None:
        """Make sure that `asked` or `source` was at the beginning what it is now."""
        then = getattr(self, name)
        if then and then != now:
            words = [
                f"{key} was {then.get(key)!r} and is {now.get(key)!r}"
                for key in sorted(then.keys() | now.keys())
                if then.get(key) != now.get(key)
            ]
            raise Refused(
                f"an earlier pack to {self.packed.location} was not finished, and "
                f"{'; '.join(words)}: go on as it was begun, or begin again with --start-over"
            )


def _typed(values: Any, *kinds: type) -> list[Any]:
    """Accept values of exactly these types; whole numbers count something, or are a file's size."""
    for value, kind in zip(values, kinds, strict=True):
        if kind is not object and type(value) is not kind:
            raise TypeError(f"{value!r} is no {kind.__name__}")
        if kind is int and not 0 <= value < 1 << 63:
            raise ValueError(value)
    return list(values)


def items_of(journal: Journal) -> Iterator[Item]:
    """Yield the items in the spool, in their order, without keeping them."""
    for record in journal:
        yield from map(Item._make, record.get("items", ()))
