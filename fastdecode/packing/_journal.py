"""`Journal`: the progress of a pack, in records that survive a kill at any moment.

Each record is a line with the CRC-32 of its text in hexadecimal, a space, and JSON. It is on the
disk before `Journal.append` returns. A kill can leave an incomplete record at the end, which is
discarded. `State` sums up the records. It refuses any record that is not in the form that a pack
writes.
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

from fastdecode._files import sync_folder
from fastdecode.errors import StoreError
from fastdecode.packing._lock import CannotResume, open_own

_NOT_UNDERSTOOD = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Errors that a record in another form causes in `State.take`."""

_MADE = re.compile(r"out/(?P<name>[^/\\\0]+)|spool-\d{5,}")


class Item(NamedTuple):
    """An image in the spool."""

    key: str
    target: Any
    shard: int  # from 0; the image's bytes are in the file of that shard, from `offset`
    offset: int
    size: int
    sha256: str
    notes: str  # see `Packed`; separated by commas
    number: int  # in the source
    stamp: str  # see `fastdecode.packing._rewrite.stamp`


class BadItem(NamedTuple):
    """An item that is left out."""

    number: int  # in the source
    key: str
    reason: str
    fixed: bool  # its key or target is at fault, so it stays bad whatever its content


_ITEM = (str, object, int, int, int, str, str, int, str)
_BAD = (int, str, str, bool)


@dataclass
class Packed:
    """The result of `pack`.

    Attributes
    ----------
    location : str
        Path of the store.
    kind : str
        Its kind, a name in `fastdecode.stores.KINDS`.
    items : int
        Number of images in the store.
    bytes_in, bytes_out : int
        Size of the encoded images that were read, and of those in the store.
    notes : Counter
        Number of images by what was done: ``"shrunk"``; given ``"restart markers"``; ``"too
        large"``, of a kind that cannot be shrunk; ``"no restart markers"``, because the core
        refused them.
    bad : list of (key, reason)
        Items that do not decode, or cannot be read or stored.
    resumed : int
        Number of items in the source that an earlier run had done.
    empty_classes : list of str
        Classes of the source that have no image left.
    manifest : str
        Path of the manifest.
    shards : list of str
        Paths of the shards in their order, if `shard_size` was given.

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
    """Some items of the source are bad, and `pack` has made no store.

    It is raised without ``skip_bad=True``, or if there is no good item.

    Attributes
    ----------
    packed : Packed or None
        The counts, and the bad items with their reasons.

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
        sync_folder(path)

    def append(self, record: Any) -> None:
        """Append a record, and wait until it is on the disk. After an error it does not count."""
        text = json.dumps(record, sort_keys=True).encode()
        line = memoryview(b"%08x %s\n" % (zlib.crc32(text), text))
        while line:  # a disk that is nearly full may take only a part
            line = line[self._file.write(line) :]
        os.fsync(self._file.fileno())

    def __iter__(self) -> Iterator[Any]:
        """Read the records from the file again, because memory may not hold all of them."""
        for record, _ in self._lines():
            yield record

    def cut(self, number: int) -> None:
        """Discard the record that covers this item of the source, and all records after it."""
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
        """Yield records up to the first incomplete one, each with its length in bytes.

        A complete record that is not JSON is None.
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
    """What the records of a journal say together."""

    packed: Packed  # the counts so far
    # the arguments and the source at the beginning; both are empty if no pack has begun
    asked: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    next: int = 0  # the first item of the source that is not done
    shard: int = 0  # the spool is valid up to the offset `end` of this shard
    end: int = 0
    bad: list[BadItem] = field(default_factory=list)
    used: set[int] = field(default_factory=set)  # targets that are integers, such as classes
    # the renamings out of the partial folder, once all files are made
    moves: list[tuple[str, str]] | None = None

    def read(self, journal: Journal) -> None:
        """Take all records; raise `CannotResume` if a pack to this place would not write one."""
        for number, record in enumerate(journal, start=1):
            try:
                self.take(record)
            except _NOT_UNDERSTOOD as error:
                raise CannotResume(
                    f"{journal.path}, record {number}, is not what a pack to this place writes: "
                    "begin again with --start-over"
                ) from error
        self.packed.resumed = self.next

    def take(self, record: dict[str, Any]) -> None:
        """Take one record: the first, one about some items, or the last."""
        if "asked" in record:
            self.asked, self.source = _typed((record["asked"], record["source"]), dict, dict)
        elif "moves" in record:
            self.moves = [self._parse_move(first, last) for first, last in record["moves"]]
        else:
            self._add_counts(record)

    def _parse_move(self, first: str, last: str) -> tuple[str, str]:
        """Check that a renaming is one from the pack's folder to a name of this store."""
        found = _MADE.fullmatch(first)
        name = Path(self.packed.location).stem
        printable = PurePosixPath(last).name == last and "\\" not in last and "\0" not in last
        if (
            not found
            or not printable
            or not last.startswith(name)
            or found["name"] not in (None, last)
        ):
            raise ValueError(f"{first!r} to {last!r}")
        return first, last

    def _add_counts(self, record: dict[str, Any]) -> None:
        packed = self.packed
        numbers = [record[name] for name in ("next", "shard", "end", "bytes_in")]
        self.next, self.shard, self.end, size = _typed(numbers, int, int, int, int)
        packed.bytes_in += size
        bad = [BadItem._make(_typed(one, *_BAD)) for one in record["bad"]]
        self.bad += bad
        packed.bad += [(one.key, one.reason) for one in bad]
        packed.items += len(record["items"])
        for item in (Item._make(_typed(one, *_ITEM)) for one in record["items"]):
            packed.bytes_out += item.size
            packed.notes.update(item.notes.split(", ") if item.notes else ())
            if type(item.target) is int:
                self.used.add(item.target)

    def check(self, name: str, now: dict[str, Any]) -> None:
        """Check that `asked` or `source` has not changed since the pack was begun."""
        then = getattr(self, name)
        if then and then != now:
            words = [
                f"{key} was {then.get(key)!r} and is {now.get(key)!r}"
                for key in sorted(then.keys() | now.keys())
                if then.get(key) != now.get(key)
            ]
            raise CannotResume(
                f"an earlier pack to {self.packed.location} was not finished, and "
                f"{'; '.join(words)}: go on as it was begun, or begin again with --start-over"
            )


def _typed(values: Any, *kinds: type) -> list[Any]:
    """Check that values have exactly these types; an int must be a count or the size of a file."""
    for value, kind in zip(values, kinds, strict=True):
        if kind is not object and type(value) is not kind:
            raise TypeError(f"{value!r} is not of type {kind.__name__}")
        if kind is int and not 0 <= value < 1 << 63:
            raise ValueError(value)
    return list(values)


def read_items(journal: Journal) -> Iterator[Item]:
    """Yield the items in the spool in their order, without holding all in memory."""
    for record in journal:
        yield from map(Item._make, record.get("items", ()))
