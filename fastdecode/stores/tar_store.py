"""`TarStore`: the pictures of one tar shard, found by their place, in any order."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastdecode.errors import StoreError
from fastdecode.outages import ITEM_ERRORS, of_the_whole
from fastdecode.stores.base import Store, in_order_of
from fastdecode.stores.index import Index
from fastdecode.stores.keys import relative
from fastdecode.stores.mapped import Mapped, is_uri, local_path
from fastdecode.stores.tar_index import (
    COLUMNS,
    LABELS,
    SUFFIX,
    load_index,
    made_for,
    scanned,
    summary,
    way_out,
)
from fastdecode.stores.tar_samples import Choice, choice
from fastdecode.types import Buffer

__all__ = ["TarStore", "index_of"]

_GAP = 1 << 16
"""Bytes between two pictures that are rather read than asked about by another request."""

_MOST_AT_ONCE = 4 << 20
"""Bytes of one request for several pictures: long ones hold up the first of them."""


class TarStore(Store):
    """One tar shard.

    Parameters
    ----------
    location : str
        Path or URI.
    index : path or URI, optional
        Its index; by default ``SHARD.tar.fdx`` beside it. A local shard without one is gone through
        once, from header to header, and its data is not read.
    image : str or sequence of str, optional
        Extensions of the picture, as in ``("jpg", "png")``: the first that a sample has. By default
        any that is known as a picture's, of which a sample must have one.
    target : str, optional
        The extension of the target: a whole number in cls, cls2, id, index and inx; JSON; else
        text. By default cls, or else json, or else txt; None where there is none.
    storage_options : mapping, optional
        For the file system of a URI.

    Raises
    ------
    OSError
        If it cannot be read.
    StoreError
        If it or its index is damaged, or they do not belong together; or if it is behind a URI and
        has no index.

    Notes
    -----
    Files of one sample follow one another, and are called the same up to the first dot after the
    last slash; samples without a picture are left out. A key is the picture's name. Where one comes
    twice, the second one is "name~2.jpg".

    Before each picture its header is looked at, and compared with the index; and so are the bytes
    of a target, in a local shard. Behind a URI, where that would be a request more, a shard whose
    targets have been changed without any other change is not noticed.
    """

    kind = "tar"

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        index: str | os.PathLike[str] | None = None,
        image: str | Sequence[str] | None = None,
        target: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(os.fspath(location))
        self._wanted = choice(image, target)
        self._storage_options = dict(storage_options or {})
        self._index_at = index_of(self.location, index, self._wanted, storage_options)
        self._index: Index | None = None
        if self._index_at is None:
            if is_uri(self.location):
                raise self._without_index()
            builder, about = scanned(self.location, self._wanted)
            self._index = Index(builder.to_bytes(about), self.location + SUFFIX)
        self.classes = self._indexed().classes
        self._handle()  # so that one that is missing or cut is told now

    def _without_index(self) -> Exception:
        """Return the error for a shard behind a URI that has no index, or is not there at all."""
        if not _exists(self.location, self._storage_options):
            return FileNotFoundError(errno.ENOENT, "this shard is missing", self.location)
        name = self.location.rpartition("/")[2] + SUFFIX
        return StoreError(
            f"{self.location} has no index {SUFFIX} beside it{self._other_index()}, without which "
            "nothing is found in a shard that is not local: make one by `python -m fastdecode "
            f"index --to FOLDER {self.location}`, or fastdecode.stores.tar.index_tar(LOCATION, "
            f"index=FILE), and open the shard with index=FOLDER/{name}, or put it beside it; or "
            "read it from its beginning by fastdecode.stores.tar_stream.stream_tar"
        )

    def _other_index(self) -> str:
        """Say of what members the index is that is there, if one is."""
        if not _exists(self.location + SUFFIX, self._storage_options):
            return ""
        made = made_for(summary(self.location + SUFFIX, self._storage_options).about)
        return (
            f" for image={list(self._wanted.image)} and target={self._wanted.target!r}, but one "
            f"for image={list(made.image)} and target={made.target!r}"
        )

    def __getstate__(self) -> dict[str, Any]:
        # What has been found out by going through the shard goes along; a file is mapped again.
        state = super().__getstate__()
        return state if self._index_at is None else {**state, "_index": None}

    def __len__(self) -> int:
        return len(self._indexed())

    def key(self, index: int) -> str:
        """Return the picture's name in the shard."""
        self._check(index)
        return relative(self._indexed().key(index))

    def target(self, index: int) -> Any:
        """Return the number, the object or the text beside the picture; None if there is none."""
        self._check(index)
        found = self._indexed()
        if not self._closed and not is_uri(self.location) and found.has(LABELS[0]):
            self._compare(found, index)
        return found.target(index)

    def _compare(self, found: Index, index: int) -> None:
        """Make sure that a target's member is still what it was when the index was made."""
        found.check(index)
        place, told = (found[name].item(index) for name in LABELS)
        if not place:
            return
        file = self._handle()[0]
        try:
            same = zlib.crc32(file.read(place, told >> 32)) == told & 0xFFFFFFFF
        except StoreError as error:
            raise self._damaged(index, str(error)) from error
        if not same:
            raise self._damaged(
                index,
                f"at byte {place} there is another target than when its index was made: the shard "
                f"is damaged, or has been written anew; if it is whole, {way_out(self.location)}",
            )

    def _indexed(self) -> Index:
        if self._index is None:
            with self._lock:  # one thread loads it, and the others wait
                return self._loaded()
        return self._index

    def _loaded(self) -> Index:
        if self._index is None:
            if self._index_at is None:
                raise StoreError(f"{self.location}: its index is lost")
            try:
                self._index = load_index(self._index_at, self._storage_options)
            except ITEM_ERRORS as error:
                of_the_whole(error)
                raise
        return self._index

    def _open(self) -> Any:
        index = self._loaded()
        file = Mapped(self.location, self._storage_options)
        told = index.about.get("shard_size")
        if file.size != told:
            raise StoreError(
                f"{self.location} has {file.size} bytes, but its index is of a shard of {told}: "
                f"{_lost(index, file.size)}if it is whole, {way_out(self.location)}"
            )
        return file, index, *(index[name] for name in COLUMNS)

    def groups(self, indices: Sequence[int]) -> list[list[int]]:
        """Part items of a shard behind a URI into those that lie near each other."""
        opened = self._handle()
        if opened[0].is_local:
            return super().groups(indices)
        spans = sorted((*self._span(opened, index), index) for index in indices)
        found: list[list[int]] = []
        begin = end = 0
        for start, size, index in spans:
            if not found or start - end > _GAP or max(end, start + size) - begin > _MOST_AT_ONCE:
                found.append([])
                begin = end = start
            found[-1].append(index)
            end = max(end, start + size)
        return in_order_of(indices, found)

    def read_group(self, indices: Sequence[int]) -> list[Buffer | str | Exception]:
        """Read items by one range, and compare each with the index as `read` does."""
        if len(indices) == 1:
            return super().read_group(indices)
        opened = self._handle()
        spans = [self._span(opened, index) for index in indices]
        begin = min(start for start, _ in spans)
        end = max(start + size for start, size in spans)
        try:
            data = memoryview(opened[0].read(begin, end - begin))
        except StoreError:  # of an item that does not lie in the file: each says what of it is so
            return super().read_group(indices)
        found: list[Buffer | str | Exception] = []
        for index, (start, size) in zip(indices, spans, strict=True):
            try:
                # A copy: else a view of one picture would keep the bytes of all.
                one = memoryview(bytes(data[start - begin : start - begin + size]))
                found.append(self._checked(opened, index, one))
            except StoreError as error:
                found.append(error)
        return found

    def _span(self, opened: Any, index: int) -> tuple[int, int]:
        """Return where a picture and its headers begin in the shard, and how long they are."""
        _, known, offsets, sizes, heads, _ = opened
        known.check(index)
        # item(): numbers of Python, which neither overflow nor are slow.
        head: int = heads.item(index)
        return offsets.item(index) - head, head + sizes.item(index)

    def _read(self, opened: Any, index: int) -> Buffer:
        file = opened[0]
        start, size = self._span(opened, index)
        try:
            data = memoryview(file.read(start, size))
        except StoreError as error:
            raise self._damaged(index, str(error)) from error
        file.will_need(start, size)
        return self._checked(opened, index, data)

    def _checked(self, opened: Any, index: int, data: memoryview) -> Buffer:
        """Return the picture behind its headers, which must be those that the index knows."""
        head = opened[4].item(index)
        if zlib.crc32(data[:head]) != opened[5].item(index):
            start = opened[2].item(index) - head
            raise self._damaged(
                index,
                f"at byte {start} there is another member than its index says: the shard is "
                f"damaged, or the index is not of it; if it is whole, {way_out(self.location)}",
            )
        return data[head:]

    def _close(self, opened: Any) -> None:
        opened[0].close()


def index_of(
    shard: str,
    index: str | os.PathLike[str] | None,
    wanted: Choice,
    storage_options: Mapping[str, Any] | None,
) -> str | None:
    """Find the index of a shard; None if there is none, or none that was made for such members.

    Raises
    ------
    FileNotFoundError, ValueError
        If one is named, and is not there or made for others.
    """
    where = shard + SUFFIX if index is None else os.fspath(index)
    if index is None and not _exists(where, storage_options):
        return None
    if wanted == Choice():
        return where
    made = made_for(summary(where, storage_options).about)
    if made == wanted:
        return where
    if index is None:
        return None
    raise ValueError(
        f"{where} was made for image={list(made.image)} and target={made.target!r}, not "
        f"image={list(wanted.image)} and target={wanted.target!r}: make another by index_tar"
    )


def _exists(location: str, storage_options: Mapping[str, Any] | None) -> bool:
    if not is_uri(location):
        return Path(local_path(location)).exists()
    from fastdecode.stores import remote

    there = remote.Remote(location, storage_options)
    return there.exists(there.path)


def _lost(index: Index, size: int) -> str:
    """Name the first item that is not all there."""
    ends = index["offset"] + index["size"]
    cut = (ends > size).nonzero()[0]
    if not len(cut):
        return ""
    first = int(cut[0])
    return f"item {first} ({index.key(first)}) and {len(cut) - 1} more are cut off; "
