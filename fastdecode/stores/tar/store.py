"""Tar shards in WebDataset's layout: read by index or as a stream, and written with an index."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fastdecode._system.files import check_replaceable, open_regular, write_bytes
from fastdecode.errors import StoreError, with_advice
from fastdecode.stores._index import MAGIC, Index, IndexBuilder, IndexedStore
from fastdecode.stores._ranges import RangeFile, Ranges, exists, is_uri, local_path
from fastdecode.stores.base import (
    Store,
    Writer,
    dump_target,
    plain_target,
    relative,
    sort_groups,
)
from fastdecode.stores.shards import Concatenated, map_shards, read_manifest, shard_locations
from fastdecode.stores.tar.format import (
    END,
    Readable,
    TarSource,
    WantedMembers,
    make_header,
    member_name,
    padded,
    samples,
    wanted_members,
)
from fastdecode.types import Buffer

_GAP = 1 << 16
"""Largest gap in bytes between two images of one request: reading it is cheaper than a request."""

_MAX_AT_ONCE = 4 << 20
"""Most bytes that one request for several images reads: a longer one delays its first image."""

_BUFFER = 1 << 20
"""Buffer of a stream: one read includes the next headers and small files of a tar."""

_REMOTE_BLOCK = 4 << 20

SUFFIX = ".fdx"
_PLACES = ("offset", "size", "head", "check")
"""Offset and size of an image; length of the headers before it, and their CRC-32."""

_LABELS = ("label", "label_check")
"""Offset of a target's bytes, or 0 without a target; their length times 2**32 plus their CRC-32."""

COLUMNS = (*_PLACES, *_LABELS)

_VERSION = 1


def open_tar(
    location: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    index: str | os.PathLike[str] | None = None,
    image: str | Sequence[str] | None = None,
    target: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Store:
    """Open one shard, or several as one store.

    Parameters
    ----------
    location : path, URI or sequence of them
        A shard; ``train-{000..146}.tar``; ``train-*.tar``, in the order of the names; or the
        ``train.tar`` that `pack` has divided into shards. Those are the shards in its manifest,
        ``train.tar.json``, which may be given, too. If another file of the given name exists, it
        stands for itself.
    index : path or URI, optional
        The index of a single shard, or the folder with the indexes of several, ``SHARD.tar.fdx``.
        By default the indexes are next to the shards.
    image, target, storage_options : optional
        See `TarStore`.

    Notes
    -----
    Of a local shard without an index, all headers are read. The keys of several shards begin with
    the name of their shard, unless a manifest lists these.
    """
    shards = shard_locations(location, storage_options)
    options: Any = {"image": image, "target": target, "storage_options": storage_options}
    if isinstance(location, (str, os.PathLike)):
        name = os.fspath(location)
        if shards == [name]:
            return TarStore(name, index=index, **options)
        unique = read_manifest(name, storage_options) is not None
    else:
        more = f" and {len(shards) - 1} more" if len(shards) > 1 else ""
        name, unique = shards[0] + more, False
    folder = None if index is None else os.fspath(index).rstrip("/")

    def opened(number: int) -> Store:
        shard = shards[number]
        beside = None if folder is None else f"{folder}/{shard.rpartition('/')[2]}{SUFFIX}"
        return TarStore(shard, index=beside, **options)

    return Concatenated(name, map_shards(shards, opened), unique=unique)


class TarStore(IndexedStore):
    """One tar shard.

    Parameters
    ----------
    location : str
        Path or URI.
    index : path or URI, optional
        The index of the shard; by default ``SHARD.tar.fdx`` next to it. If a local shard has no
        index, its headers are read once, from one to the next, without the data.
    image : str or sequence of str, optional
        Extensions of the image, such as ``("jpg", "png")``: the first one that a sample has. By
        default it is any known extension of an image. If a sample has several, its image is the
        only one without a dot (``jpg``, not ``mask.png``); otherwise it is a StoreError.
    target : str, optional
        The extension of the target. Files with cls, cls2, id, index and inx hold an integer, those
        with json hold JSON, and all others text. By default it is cls, or else json, or else txt.
        The target is None if the sample has no such file.
    storage_options : mapping, optional
        For the file system of a URI.

    Notes
    -----
    The files of a sample follow one another, and their names are the same up to the first dot after
    the last slash. Samples without an image are left out. The key of a sample is the name of its
    image. If a key repeats, the second one becomes "name~2.jpg".

    Each read compares the headers of the image with the index. In a local shard, `target` compares
    the bytes of the target, too. Behind a URI it does not, because that would take another request:
    a shard in which nothing but targets has changed goes unnoticed there.
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
        self._storage_options = dict(storage_options or {})
        wanted = wanted_members(image, target)
        found = self._load(wanted, index)
        if found is None:
            if is_uri(self.location):
                raise self._no_index_error()
            builder, about = _scan(self.location, wanted)
            found = Index(builder.to_bytes(about), self.location + SUFFIX)
        self._contents = found
        self.classes = found.classes
        self._handle()  # so that a missing or truncated shard is an error here

    def _load(self, wanted: WantedMembers, given: str | os.PathLike[str] | None) -> Index | None:
        """Load the index; None if there is none, or one of other members than are wanted."""
        load = Index.load_if_exists if given is None else Index.load
        name = self.location + SUFFIX if given is None else os.fspath(given)
        index = load(name, (), self._storage_options)
        if index is None:
            return None
        try:
            [index[column] for column in COLUMNS]
        except KeyError:
            raise StoreError(
                f"{name} is not the index of a tar shard: remove it, and "
                f"{_remake_hint(self.location)}"
            ) from None
        about = index.about
        made = WantedMembers(tuple(about.get("image") or ()), str(about.get("target") or ""))
        if wanted in (WantedMembers(), made):
            return index
        if given is None:
            return None
        raise ValueError(
            f"{name} was made for other members than image= and target= name: make another by "
            "index_tar"
        )

    def _no_index_error(self) -> Exception:
        if not exists(self.location, self._storage_options):
            return FileNotFoundError(errno.ENOENT, "this shard is missing", self.location)
        error = StoreError(
            f"{self.location} has no index {SUFFIX} for these members next to it, and a shard that "
            "is not local cannot be opened without one: make it with "
            f"index_tar({self.location!r}, index=FILE), and put it next to the shard"
        )
        return with_advice(error, ", or open the shard with index=FOLDER; or read it by stream_tar")

    def key(self, index: int) -> str:
        return relative(super().key(index))

    def target(self, index: int) -> Any:
        self._check(index)
        found = self._contents
        if not self._closed and not is_uri(self.location):
            self._compare(found, index)
        return found.target(index)

    def _compare(self, found: Index, index: int) -> None:
        """Raise a StoreError if the member of a target has changed since the index was made."""
        found.check(index)
        place, told = (found[name].item(index) for name in _LABELS)
        if not place:
            return
        file = self._handle()[0]
        try:
            same = zlib.crc32(file.read(place, told >> 32)) == told & 0xFFFFFFFF
        except StoreError as error:
            raise self._damage_error(index, str(error)) from error
        if not same:
            raise self._damage_error(
                index,
                f"at byte {place} there is another target than when its index was made: the shard "
                f"is damaged, or was written again; if it is whole, {_remake_hint(self.location)}",
            )

    def _open(self) -> Any:
        index = self._contents
        file = Ranges(self.location, self._storage_options)
        told = index.about.get("shard_size")
        if file.size != told:
            raise StoreError(
                f"{self.location} has {file.size} bytes, but its index belongs to a shard of "
                f"{told} bytes: if it is whole, {_remake_hint(self.location)}"
            )
        return file, index, *(index[name] for name in _PLACES)

    def groups(self, indices: Sequence[int]) -> list[list[int]]:
        """Group items of a remote shard that lie close together."""
        opened = self._handle()
        if opened[0].is_local:
            return super().groups(indices)
        spans = sorted((*self._span(opened, index), index) for index in indices)
        found: list[list[int]] = []
        begin = end = 0
        for start, size, index in spans:
            if not found or start - end > _GAP or max(end, start + size) - begin > _MAX_AT_ONCE:
                found.append([])
                begin = end = start
            found[-1].append(index)
            end = max(end, start + size)
        return sort_groups(indices, found)

    def read_group(self, indices: Sequence[int]) -> list[Buffer | str | Exception]:
        """Read items with one range request, and compare each with the index as `read` does."""
        if len(indices) == 1:
            return super().read_group(indices)
        opened = self._handle()
        spans = [self._span(opened, index) for index in indices]
        begin = min(start for start, _ in spans)
        end = max(start + size for start, size in spans)
        try:
            data = memoryview(opened[0].read(begin, end - begin))
        except StoreError:  # an item lies outside the file: read one by one to tell which
            return super().read_group(indices)
        found: list[Buffer | str | Exception] = []
        for index, (start, size) in zip(indices, spans, strict=True):
            try:
                # A copy, because a view of one image would keep the bytes of all in memory.
                one = memoryview(bytes(data[start - begin : start - begin + size]))
                found.append(self._checked(opened, index, one))
            except StoreError as error:
                found.append(error)
        return found

    def _span(self, opened: Any, index: int) -> tuple[int, int]:
        """Return the offset of an image's headers in the shard, and the size of both together."""
        _, known, offsets, sizes, heads, _ = opened
        known.check(index)
        # item() returns Python's integers, which do not overflow and are faster than NumPy's.
        head: int = heads.item(index)
        return offsets.item(index) - head, head + sizes.item(index)

    def _read(self, opened: Any, index: int) -> Buffer:
        file = opened[0]
        start, size = self._span(opened, index)
        try:
            data = memoryview(file.read(start, size))
        except StoreError as error:
            raise self._damage_error(index, str(error)) from error
        file.will_need(start, size)
        return self._checked(opened, index, data)

    def _checked(self, opened: Any, index: int, data: memoryview) -> Buffer:
        """Return the image after its headers; a StoreError if these are not those of the index."""
        head = opened[4].item(index)
        if zlib.crc32(data[:head]) != opened[5].item(index):
            start = opened[2].item(index) - head
            raise self._damage_error(
                index,
                f"at byte {start} there is another member than its index says: the shard is "
                "damaged, or the index is that of another; if the shard is whole, "
                f"{_remake_hint(self.location)}",
            )
        return data[head:]

    def _close(self, opened: Any) -> None:
        opened[0].close()


def index_tar(
    location: str | os.PathLike[str],
    *,
    index: str | os.PathLike[str] | None = None,
    classes: Sequence[str] = (),
    image: str | Sequence[str] | None = None,
    target: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Index:
    """Make the index of a tar shard.

    Parameters
    ----------
    location : path or URI
        The shard. A remote one is read once, from beginning to end.
    index : path, optional
        The file to write. By default the index is written next to the shard, which must be local,
        and may replace another index there; any other file that is there already is an error.
    classes : sequence of str, optional
        Names of the classes; by default there are none.
    image, target : optional
        See `TarStore`.
    storage_options : mapping, optional
        For a URI.

    Returns
    -------
    Index

    Raises
    ------
    OSError
        If the shard cannot be read, or the index cannot be written.
    FileExistsError
        If another file, or a link, is where the index goes.
    StoreError
        If the shard is damaged or not a tar file.
    ValueError
        If the shard is behind a URI, and `index` is missing.

    Examples
    --------
    >>> from fastdecode.stores.tar import index_tar
    >>> index = index_tar("train.tar")  # writes train.tar.fdx
    """
    where = os.fspath(location)
    if index is None and is_uri(where):
        error = ValueError(f"{where} is not local")
        raise with_advice(error, ": say with index= where to write the index")
    path = Path(local_path(where) + SUFFIX if index is None else index)
    check_replaceable(path, MAGIC)
    builder, about = _scan(where, wanted_members(image, target), storage_options)
    builder.classes = list(classes)
    data = builder.to_bytes(about)
    if index is not None and path.exists() and path.read_bytes() not in (b"", data):
        raise FileExistsError(
            f"{path} is there already, and another index than that of {where}: remove it, or "
            "choose another place"
        )
    write_bytes(path, data, MAGIC, durable=True)
    return Index.load(path)


def _scan(
    location: str, wanted: WantedMembers, storage_options: Mapping[str, Any] | None = None
) -> tuple[IndexBuilder, dict[str, Any]]:
    """Read all headers of a shard, and collect its index."""
    with _opened(location, storage_options, io.DEFAULT_BUFFER_SIZE) as source:
        return _build_index(source, wanted), about_index(source.size or 0, wanted)


def about_index(size: int, wanted: WantedMembers) -> dict[str, Any]:
    """Describe a shard of this size, for the header of its index."""
    about = {"image": list(wanted.image), "target": wanted.target}
    return {"kind": "tar", "version": _VERSION, "shard_size": size, **about}


def _remake_hint(shard: str) -> str:
    return f"make its index anew with fastdecode.stores.tar.index_tar({shard!r})"


def _build_index(source: TarSource, wanted: WantedMembers) -> IndexBuilder:
    builder = IndexBuilder((), COLUMNS)
    images: dict[int, int] = {}  # hash of a stem, and how often it occurs
    others = 0
    for sample in samples(source, wanted, with_data=False):
        name = hash(sample.stem)  # takes a tenth of the memory of the name
        member, beside = sample.member, sample.beside
        if member is None:
            others += 1
        else:
            times = images[name] = images.get(name, 0) + 1
            stem, _, extension = sample.key.rpartition(".")
            builder.add(
                sample.key if times == 1 else f"{stem}~{times}.{extension}",
                sample.target,
                offset=member.offset,
                size=member.size,
                head=member.head,
                check=member.check,
                label=0 if beside is None else beside.offset,
                label_check=0 if beside is None else beside.size << 32 | sample.beside_check,
            )
    if others and not images:
        named = ", ".join(wanted.image) or "the extension of an image"
        raise StoreError(
            f"{source.location}: none of its {others} samples has a file with {named}: "
            "say which it is with image="
        )
    return builder


class Sample(NamedTuple):
    """An image with its key and target, as a store returns them."""

    key: str
    data: Buffer
    target: Any


def stream_tar(
    location: str | os.PathLike[str] | Readable,
    *,
    image: str | Sequence[str] | None = None,
    target: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Generator[Sample, None, None]:
    """Yield the images of one shard, reading it from beginning to end without an index.

    Parameters
    ----------
    location : path, URI or file
        The shard. Any object with a ``read`` method works, also a pipe or a decompressed stream; it
        is not closed. A path must be that of a regular file.
    image, target : optional
        See `TarStore`.
    storage_options : mapping, optional
        For the file system of a URI.

    Yields
    ------
    Sample
        The samples of a `TarStore`, in its order. Here, a key that repeats is not renamed.

    Raises
    ------
    OSError
        If the shard cannot be read.
    StoreError
        If the shard is damaged, truncated or not a tar file. The message names the last member
        before the damage.

    Examples
    --------
    >>> from fastdecode import probe
    >>> from fastdecode.stores.tar import stream_tar
    >>> for key, image, target in stream_tar("train.tar"):
    ...     print(key, probe(image).width, target)
    bird/canyon-wren.jpg 500 0
    bird/perched-osprey.jpg 375 0
    place/casa-mila.jpg 640 1
    place/piazza-gae-aulenti_gray.jpg 375 1
    place/roman-colosseum_422.jpg 500 1
    place/tea-gardens_progressive.jpg 512 1
    """
    wanted = wanted_members(image, target)
    with ExitStack() as own:
        if isinstance(location, (str, os.PathLike)):
            name = os.fspath(location)
            source = own.enter_context(_opened(name, storage_options, _BUFFER))
        else:
            source = TarSource(location, str(getattr(location, "name", "the stream")))
        for sample in samples(source, wanted, with_data=True):
            if sample.member is not None:
                yield Sample(sample.key, sample.data, sample.target)


@contextmanager
def _opened(
    location: str, storage_options: Mapping[str, Any] | None, buffer: int
) -> Iterator[TarSource]:
    """Open a shard for reading from its beginning."""
    if is_uri(location):
        ranges = Ranges(location, storage_options)
        yield TarSource(RangeFile(ranges, _REMOTE_BLOCK, 1), location, ranges.size)
        return
    with io.BufferedReader(open_regular(local_path(location)), buffer) as file:
        yield TarSource(file, location, os.fstat(file.fileno()).st_size)


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
