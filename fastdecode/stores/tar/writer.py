"""Writing tar shards: the same images always give the same bytes."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

from fastdecode._system.files import check_replaceable
from fastdecode.stores._index import MAGIC, IndexBuilder
from fastdecode.stores._items import dump_target, plain_target
from fastdecode.stores.base import Writer
from fastdecode.stores.tar.format import END, make_header, padded
from fastdecode.stores.tar.names import WantedMembers, member_name
from fastdecode.stores.tar.store import COLUMNS, SUFFIX, about_index
from fastdecode.types import Buffer


class ShardFull(ValueError):
    """An item would make a shard larger than its limit, and the next shard has to take it."""


class TarWriter(Writer):
    """Writes a tar shard that WebDataset can read, and its index.

    Parameters
    ----------
    location : str
        Path of the shard, ``train.tar``; its index is ``train.tar.fdx``.
    classes : sequence of str
        Names of the classes, which the index holds.
    limit : int, optional
        Most bytes of the shard; beyond them, `add` raises `ShardFull` if the shard has an item.

    Attributes
    ----------
    size : int
        How many bytes have been written.
    sha256 : str
        Their checksum.
    items : int
        How many images have been written.
    about : dict
        What else the index says of the shard.

    Notes
    -----
    An image is the member ``KEY``. Its target is a member with the same stem: ``.cls`` for an
    integer, ``.txt`` for a text, ``.json`` for anything else. Keys that WebDataset would split
    elsewhere or mix up have another member name, see `member_name`; the index has the keys.
    """

    kind = "tar"

    def __init__(
        self, location: str, classes: Sequence[str] = (), *, limit: int | None = None
    ) -> None:
        super().__init__(location, classes)
        self._stems: set[str] = set()
        self._limit = limit
        self._builder = IndexBuilder(classes, COLUMNS)
        self.about: dict[str, Any] = {}
        self._sha256 = hashlib.sha256()
        self.size = 0
        self._beside = self._final.with_name(self._final.name + SUFFIX)
        check_replaceable(self._beside, MAGIC)
        self._file = self._partial.open("xb")

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    @property
    def items(self) -> int:
        return len(self._builder)

    def _append(self, key: str, data: memoryview, target: Any) -> None:
        beside = _target_member(target)
        view = data.cast("B")
        stem, extension = self._name(key, view)
        pieces, (offset, head, check) = self._member(f"{stem}.{extension}", view, self.size)
        label = label_check = 0
        if beside is not None:
            suffix, content = beside
            end = self.size + sum(map(len, pieces))
            more, (label, _, _) = self._member(f"{stem}.{suffix}", content, end)
            pieces += more
            label_check = len(content) << 32 | zlib.crc32(content)
        needed = self.size + sum(map(len, pieces)) + len(END)
        if self._limit is not None and self.size and needed > self._limit:
            raise ShardFull(f"{self.location}: it would have {needed} bytes")
        self._write(pieces)
        self._stems.add(stem)
        places = {"offset": offset, "size": len(view), "head": head, "check": check}
        self._builder.add(key, target, **places, label=label, label_check=label_check)

    def _name(self, key: str, data: Buffer) -> tuple[str, str]:
        """Return a stem that no other image has, to WebDataset one sample, and the extension."""
        first, extension = member_name(key, data)
        stem, number = first, 1
        while stem in self._stems:
            number += 1
            stem = f"{first}~{number}"
        return stem, extension

    @staticmethod
    def _member(name: str, data: Buffer, start: int) -> tuple[list[Buffer], tuple[int, int, int]]:
        """Return a member that begins at `start`, and where its data begins in it.

        That is the data's offset, the length of the headers before it, and their CRC-32.
        """
        header = make_header(name, len(data))
        padding = bytes(padded(len(data)) - len(data))
        return [header, data, padding], (start + len(header), len(header), zlib.crc32(header))

    def _write(self, pieces: Sequence[Buffer]) -> None:
        for piece in pieces:
            self._file.write(piece)
            self._sha256.update(piece)
            self.size += len(piece)

    def _finish(self) -> None:
        self._write([END])
        super()._finish()

    def _release(self) -> None:
        self._file.close()

    def _publish(self) -> None:
        # The index first: an index without a shard does no harm, a shard with an old index would.
        about = about_index(self.size, WantedMembers())
        self._builder.write(self._beside, {**about, "sha256": self.sha256, **self.about})
        super()._publish()


def _target_member(target: Any) -> tuple[str, bytes] | None:
    """Return the extension and the bytes of a target's member; None if there is no target."""
    target = plain_target(target)
    if target is None:
        return None
    if type(target) is int:
        return "cls", b"%d" % target
    if isinstance(target, str):
        return "txt", target.encode()
    return "json", dump_target(target)
