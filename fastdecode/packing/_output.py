"""The files of a pack: where they go, tar shards that a later run skips, and the manifest."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from fastdecode._system.files import check_replaceable, write_bytes
from fastdecode.cli.terminal import csv_text
from fastdecode.errors import StoreError
from fastdecode.stores import kind_by_suffix
from fastdecode.stores._index import Index
from fastdecode.stores._items import Keys
from fastdecode.stores._ranges import is_uri, local_path
from fastdecode.stores.tar.store import SUFFIX
from fastdecode.stores.tar.writer import ShardFull, TarWriter
from fastdecode.types import Buffer

_BAD_HEADING = b'"key","reason"\n'
"""What a list of bad items begins with. The quotes mark it as ours: the rows have them only where
they need them.
"""

_ABOUT = "pack"
"""The entry in the index of a shard that says what `pack` has counted up to its end."""

_PIECE = 1 << 20


class OutputPaths:
    """The paths of a store and of the files next to it."""

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
        self.sharded = sharded
        self.manifest = self.path.with_name(f"{name}.json")
        self.bad = self.path.with_name(f"{name}.bad.csv")

    def shard(self, number: int) -> Path:
        """Return the path of a shard; without shards, that of the store."""
        if not self.sharded:
            return self.path
        return self.path.with_name(f"{self.path.stem}-{number:05d}{self.path.suffix}")

    def check_not_in_source(self, source: str) -> None:
        """Raise a ValueError if the source holds the result, or is the list of bad items."""
        if is_uri(source):
            return
        real = Path(os.path.realpath(local_path(source)))
        if real.is_dir() and Path(os.path.realpath(self.path)).is_relative_to(real):
            raise ValueError(f"{self.path} lies inside {source}, which is packed: choose another")
        if real == Path(os.path.realpath(self.bad)):
            raise ValueError(f"{source} is a list that pack writes itself: move it away")

    def check_free(self) -> None:
        """Raise a FileExistsError if a file but an earlier list of bad items would be replaced."""
        if self.manifest.exists() and (self.sharded or self.path.exists()):
            raise FileExistsError(
                f"{self.path} has been packed already, and is complete: to do it again, remove it "
                f"and {self.manifest}, or choose another place"
            )
        for path in (self.path, self.manifest):
            if os.path.lexists(path):
                raise FileExistsError(
                    f"{path} is there already: remove it, or choose another place"
                )
        check_replaceable(self.bad, _BAD_HEADING)

    def check_no_shards(self, finished: int) -> None:
        """Raise a FileExistsError if there are shards beside the first ones, which are finished."""
        names = f"{glob.escape(self.path.stem)}-[0-9]*{glob.escape(self.path.suffix)}"
        others = set(self.path.parent.glob(names)) - set(map(self.shard, range(finished)))
        for other in sorted(others):
            raise FileExistsError(
                f"{other} is there already, and is not what this pack would write: remove it, or "
                "choose another place"
            )

    def write_bad(self, bad: Sequence[tuple[str, str]]) -> None:
        """Write the bad items as CSV; without any, remove an earlier list."""
        check_replaceable(self.bad, _BAD_HEADING)
        if bad:
            write_bytes(self.bad, _BAD_HEADING + csv_text(bad).encode(), _BAD_HEADING)
        else:
            self.bad.unlink(missing_ok=True)


class TarShards:
    """Writes a tar store in shards of at most `limit` bytes; a larger item has a shard of its own.

    The index of each shard has what `totals` returns when the shard is complete. It is what
    `finished` yields in a later run of the same job.
    """

    def __init__(
        self,
        paths: OutputPaths,
        limit: int | None,
        classes: Sequence[str],
        totals: Callable[[], dict[str, Any]],
    ) -> None:
        self.files: list[dict[str, Any]] = []  # of the complete shards, for the manifest
        self._paths = paths
        self._limit = limit
        self._classes = classes
        self._totals = totals
        self._keys = Keys()
        self._writer: TarWriter | None = None

    def finished(self, job: str) -> Iterator[tuple[Index, dict[str, Any]]]:
        """Yield the first shards, as long as they are of this job and have their checksum."""
        for number in count():
            path = self._paths.shard(number)
            try:
                index = Index.load_if_exists(f"{path}{SUFFIX}")
            except StoreError:
                return
            about = {} if index is None else index.about.get(_ABOUT, {})
            if index is None or about.get("job") != job or not path.is_file():
                return
            if file_sha256(path) != index.about["sha256"]:
                return
            for at in range(len(index)):
                self._keys.add(index.key(at))
            self._add_file(path, len(index), index.about["shard_size"], index.about["sha256"])
            yield index, about

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
        where = self._paths.shard(len(self.files))
        self._writer = TarWriter(str(where), self._classes, limit=self._limit)
        return self._writer

    def close(self) -> None:
        """Complete the current shard, if there is one."""
        if self._writer is not None:
            done, self._writer = self._writer, None
            done.about = {_ABOUT: self._totals()}
            done.close()
            self._add_file(Path(done.location), done.items, done.size, done.sha256)

    def _add_file(self, path: Path, items: int, size: int, sha256: str) -> None:
        self.files.append({"name": path.name, "items": items, "bytes": size, "sha256": sha256})

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
