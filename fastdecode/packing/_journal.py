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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar

from fastdecode._files import flush_folder
from fastdecode.errors import StoreError
from fastdecode.packing._lock import Refused, open_own

__all__ = ["Bad", "BadItems", "Item", "Journal", "Packed", "State", "items_of"]

_T = TypeVar("_T")

_NOT_UNDERSTOOD = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What a record of another form makes of the code that takes it in."""

_MADE = re.compile(r"out/(?P<name>[^/\\\0]+)|spool-\d{5,}")


class Item(NamedTuple):
    """An image in the spool."""

    key: str
    target: Any
    shard: int
    """From 0; its bytes are in that shard's file, from `offset`."""
    offset: int
    size: int
    sha256: str
    notes: Sequence[str]
    """See `Packed`."""
    number: int
    """In the source."""
    stamp: list[int] | None
    """See `fastdecode.packing._source.stamp`."""


class Bad(NamedTuple):
    """An item that is left out."""

    number: int
    """In the source."""
    key: str
    reason: str
    fixed: bool
    """No other content of the item would be better: its key or target is what cannot be kept."""


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


class BadItems(StoreError):
    """Some items of the source are bad, and were not to be left out: nothing has been made.

    Attributes
    ----------
    packed : Packed or None
        What was found.
    """

    packed: Packed | None = None


class Journal:
    """Records in their order, in a file that only grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        end = sum(length for _, length in _lines(path))
        self._file = open(path, "ab", buffering=0, opener=open_own)  # noqa: SIM115 - see `close`
        self._file.truncate(end)
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
        for record, _ in _lines(self.path):
            yield record

    def cut(self, beyond: Callable[[Any], bool]) -> None:
        """Forget the first record of which `beyond` is true, and all after it, for ever."""
        end = 0
        for record, length in _lines(self.path):
            if beyond(record):
                break
            end += length
        self._file.truncate(end)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _lines(path: Path) -> Iterator[tuple[Any, int]]:
    """Yield the whole records, with the length of each in bytes, up to the first that is not."""
    try:
        file = open(path, "rb", opener=open_own)  # noqa: SIM115 - a missing one is none
    except FileNotFoundError:
        return
    with file:
        for line in file:
            sum_, _, text = line[:-1].partition(b" ")
            if line[-1:] != b"\n" or sum_ != b"%08x" % zlib.crc32(text):
                return
            yield _parsed(text), len(line)


def _parsed(text: bytes) -> Any:
    """Return what a whole record says; None, which is no record, of one that is not JSON."""
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return None


@dataclass
class State:
    """What has been done."""

    packed: Packed
    """Counts, so far."""
    asked: dict[str, Any] = field(default_factory=dict)
    """What the pack was begun with; empty if it has not begun."""
    source: dict[str, Any] = field(default_factory=dict)
    """What its source was then."""
    next: int = 0
    """The first item of the source that is still to do."""
    shard: int = 0
    end: int = 0
    """How far the spool is good: up to this offset of this shard."""
    bad: list[Bad] = field(default_factory=list)
    """As in `packed`, with what is needed to try them again."""
    used: set[int] = field(default_factory=set)
    """The targets that are whole numbers, as class indices are."""
    moves: list[tuple[str, str]] | None = None
    """Once everything is made: where each file goes, from the partial folder."""

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
        """Take in one record: the first, one about some items or reasons, or the last."""
        if "asked" in record:
            self.asked, self.source = _of(dict, record["asked"]), _of(dict, record["source"])
        elif "reasons" in record:
            for place, reason in record["reasons"]:
                _whole(place)
                self.bad[place] = self.bad[place]._replace(reason=_of(str, reason))
                self.packed.bad[place] = self.bad[place].key, reason
        elif "moves" in record:
            self.moves = [self._move(first, last) for first, last in record["moves"]]
        else:
            numbers = [_whole(record[name]) for name in ("next", "shard", "end")]
            self.next, self.shard, self.end = numbers
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
        packed.bytes_in += _whole(record["bytes_in"])
        self.bad += map(_bad, record["bad"])
        packed.bad += [(one.key, one.reason) for one in self.bad[len(packed.bad) :]]
        packed.items += len(record["items"])
        for item in map(_item, record["items"]):
            packed.bytes_out += item.size
            packed.notes.update(item.notes)
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


def _whole(number: Any) -> int:
    """Accept a number that counts something, and that a file may have as a size."""
    if not 0 <= _of(int, number) < 1 << 63:
        raise ValueError(number)
    return int(number)


def _of(kind: type[_T], value: Any) -> _T:
    """Accept a value of one type, and no other."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _all(kind: type[_T], values: Any) -> None:
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{values!r} is no sequence")
    for value in values:
        _of(kind, value)


def _item(record: Any) -> Item:
    """Accept what an `Item` was written as."""
    item = Item._make(record)
    for number in (item.shard, item.offset, item.size, item.number):
        _whole(number)
    _all(str, (item.key, item.sha256))
    _all(str, item.notes)
    _all(int, item.stamp or ())
    return item


def _bad(record: Any) -> Bad:
    """Accept what a `Bad` was written as."""
    bad = Bad._make(record)
    _whole(bad.number)
    _all(str, (bad.key, bad.reason))
    _of(bool, bad.fixed)
    return bad


def items_of(journal: Journal) -> Iterator[Item]:
    """Yield the items in the spool, in their order, without keeping them."""
    for record in journal:
        yield from map(Item._make, record.get("items", ()))
