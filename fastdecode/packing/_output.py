"""The files that a pack makes: their names, the shards, the manifest, and their final places."""

from __future__ import annotations

import glob
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastdecode
from fastdecode._system.files import check_replaceable, write_bytes
from fastdecode.cli.terminal import csv_text
from fastdecode.packing._survey import printable
from fastdecode.stores import kind_by_suffix
from fastdecode.stores._index import dump_json
from fastdecode.stores._items import Keys
from fastdecode.stores._ranges import is_uri, local_path
from fastdecode.stores.tar.writer import ShardFull, TarWriter

if TYPE_CHECKING:
    from fastdecode.packing._rewrite import Options
    from fastdecode.types import Buffer

_FORMAT = 1
_BAD_HEADING = b'"key","reason"\n'
"""What a list of bad items begins with. The quotes mark it as ours: the rows have them only where
they need them.
"""

_PIECE = 1 << 20


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


@dataclass
class ShardRecord:
    """What one shard holds, or a store without shards."""

    next: int = 0  # the first item of the source after it
    items: int = 0
    bytes_in: int = 0  # size of the encoded images in the source
    bytes_out: int = 0  # and in the store
    notes: dict[str, int] = field(default_factory=dict)  # see `Packed`
    bad: list[tuple[str, str]] = field(default_factory=list)
    bytes: int = 0  # size of the shard
    sha256: str = ""


class OutputPaths:
    """The paths of a store, of the files next to it, and of the folder for unfinished work."""

    def __init__(self, location: str, kind: str, *, sharded: bool) -> None:
        if "://" in location:
            raise ValueError(
                f"{location} is not a local path: pack to a local path, and copy the result there"
            )
        self.path = Path(location)
        name = self.path.name
        if not name or name == "..":
            raise ValueError(f"{location!r} does not end in the name of a store")
        named = kind_by_suffix(location)
        if named not in (None, kind):
            raise ValueError(
                f"{location} has the suffix of a {named} store, so it could not be opened as a "
                f"{kind} store: choose another name"
            )
        self.kind = kind
        self.sharded = sharded
        self.manifest = self.path.with_name(f"{name}.json")
        self.bad = self.path.with_name(f"{name}.bad.csv")
        self.partial = self.path.with_name(f".{name}.partial")

    def shard(self, number: int) -> str:
        """Return the name of a shard; without shards, that of the store."""
        if not self.sharded:
            return self.path.name
        return f"{self.path.stem}-{number:05d}{self.path.suffix}"

    def check_not_in_source(self, source: str) -> None:
        """Raise a ValueError if the source holds the result, or lies where `pack` writes."""
        if is_uri(source):
            return
        real = Path(os.path.realpath(local_path(source)))
        if real.is_dir() and Path(os.path.realpath(self.path)).is_relative_to(real):
            raise ValueError(f"{self.path} lies inside {source}, which is packed: choose another")
        for own in (self.partial, self.bad):
            if real.is_relative_to(os.path.realpath(own)):
                raise ValueError(f"{source} lies in {own}, which pack writes itself: move it away")

    def check_free(self) -> None:
        """Raise a FileExistsError if a file but an earlier list of bad items would be replaced."""
        if self.manifest.exists() and (self.sharded or self.path.exists()):
            raise self.complete_error()
        others = [self.path, self.manifest, self.path.with_name(f"{self.path.name}.fdx")]
        if self.sharded:
            shards = f"{glob.escape(self.path.stem)}-[0-9]*{glob.escape(self.path.suffix)}"
            others += self.path.parent.glob(shards)
            others += self.path.parent.glob(f"{shards}.fdx")
        for other in others:
            check_missing(other)
        check_replaceable(self.bad, _BAD_HEADING)

    def complete_error(self) -> FileExistsError:
        return FileExistsError(
            f"{self.path} has been packed already, and is complete: to do it again, remove it and "
            f"{self.manifest}, or choose another place"
        )

    def write_bad(self, bad: Sequence[tuple[str, str]], folder: Path) -> None:
        """Write the bad items as CSV, first to a folder; without any, remove an earlier list."""
        check_replaceable(self.bad, _BAD_HEADING)
        if not bad:
            self.bad.unlink(missing_ok=True)
            return
        made = folder / self.bad.name  # so that a kill leaves nothing next to the store
        write_bytes(made, _BAD_HEADING + csv_text(bad).encode(), _BAD_HEADING)
        made.replace(self.bad)


def check_missing(path: Path) -> None:
    """Raise a FileExistsError if there is a file, a folder or a link."""
    if os.path.lexists(path):
        raise FileExistsError(f"{path} is there already: remove it, or choose another place")


class TarShards:
    """Writes a tar store in shards of at most `limit` bytes; a larger item has a shard of its own.

    `completed` is called with the size and the checksum of each shard that is complete and on the
    disk.
    """

    def __init__(
        self,
        place: OutputPaths,
        limit: int | None,
        classes: Sequence[str],
        completed: Callable[[int, str], None],
    ) -> None:
        self._place = place
        self._limit = limit
        self._classes = classes
        self._completed = completed
        self._keys = Keys()
        self._number = 0
        self._writer: TarWriter | None = None

    def keep(self, keys: Sequence[str]) -> None:
        """Count a shard of an earlier run, with these keys, as the next one."""
        for key in keys:
            self._keys.add(key)
        self._number += 1

    def add(self, key: str, data: Buffer, target: Any) -> None:
        """Append an item; a ValueError says why it cannot be stored."""
        self._keys.check(key)
        try:
            (self._writer or self._open()).add(key, data, target)
        except ShardFull:  # so the same items end each shard on every run
            self.close()
            self._open().add(key, data, target)
        self._keys.add(key)

    def _open(self) -> TarWriter:
        where = self._place.partial / self._place.shard(self._number)
        self._writer = TarWriter(str(where), self._classes, limit=self._limit)
        return self._writer

    def close(self) -> None:
        """Complete the current shard, if there is one."""
        if self._writer is not None:
            done, self._writer = self._writer, None
            done.close()
            self._number += 1
            self._completed(done.size, done.sha256)

    def abort(self) -> None:
        """Remove the current shard, which is incomplete."""
        if self._writer is not None:
            self._writer.abort()


def file_sha256(path: Path) -> str:
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            whole.update(piece)
    return whole.hexdigest()


def write_manifest(
    folder: Path,
    packed: Packed,
    source: str,
    options: Options,
    classes: Sequence[str],
    files: Sequence[dict[str, Any]],
    content: str,
) -> None:
    """Write the manifest, which has no time and no name of a machine: it is always the same."""
    values: dict[str, Any] = {
        "format": _FORMAT,
        "fastdecode": fastdecode.__version__,
        "source": printable(source),
        "options": asdict(options),
        "kind": packed.kind,
        "items": packed.items,
        "bytes": packed.bytes_out,
        "content_sha256": content,
        "classes": list(classes),
        "notes": dict(packed.notes),
        "files": list(files),
        "bad": [{"key": key, "reason": reason} for key, reason in packed.bad],
    }
    if packed.kind == "tar":
        values["shards"] = [file["name"] for file in files]
    text = dump_json(values, indent=1) + "\n"
    name = Path(packed.manifest).name
    write_bytes(folder / name, text.encode(), durable=True)
