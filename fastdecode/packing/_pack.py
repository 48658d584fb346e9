"""`pack` reads, checks, optionally rewrites, and stores every item of a source."""

from __future__ import annotations

import glob
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import PIL

import fastdecode
from fastdecode._arguments import is_int
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS
from fastdecode._system.files import check_replaceable, write_bytes
from fastdecode._system.processor import usable_cores
from fastdecode._system.threads import map_in_order
from fastdecode.cli.terminal import csv_text
from fastdecode.errors import StoreError
from fastdecode.packing._check import printable
from fastdecode.packing._rewrite import Options, Work
from fastdecode.stores import create_store, kind_by_suffix, kind_for, open_store
from fastdecode.stores._index import Index, dump_json
from fastdecode.stores._ranges import is_uri, local_path
from fastdecode.stores.base import Keys
from fastdecode.stores.folder import INDEX
from fastdecode.stores.tar.store import SUFFIX, ShardFull, TarWriter

if TYPE_CHECKING:
    from fastdecode.packing._rewrite import Outcome
    from fastdecode.stores import Store, Writer
    from fastdecode.types import Buffer

_FORMAT = 1
_BAD_HEADING = b'"key","reason"\n'
"""What a list of bad items begins with. The quotes mark it as ours: the rows have them only where
they need them.
"""

_ABOUT = "pack"
"""The entry in the index of a shard that says what `pack` has counted up to its end."""

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


def pack(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    kind: str | None = None,
    max_side: int | None = None,
    quality: int = 90,
    restart_markers: bool = False,
    shard_size: int | None = None,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    threads: int | None = None,
    skip_bad: bool = False,
    notify: Callable[[str, int, int], object] | None = None,
) -> Packed:
    """Copy images into a store, and check that each one decodes.

    Nothing is at `dst` before all is done; shards are at their places as soon as they are complete,
    and are a store once the manifest is there. If a call with `shard_size` is stopped or killed,
    the same call skips the complete shards whose checksum is right; without shards it begins again.
    The result is the same, byte for byte, however many threads work.

    Parameters
    ----------
    src : path or URI
        Anything that `open_store` opens.
    dst : path
        A local path where nothing exists yet. Next to it, `pack` writes the manifest, ``DST.json``,
        and, if there are bad items, a list of them, ``DST.bad.csv``.
    kind : str, optional
        The kind of store. By default the suffix of `dst` decides; without a suffix it is a folder.
    max_side : int, optional
        Shrink images whose larger side has more pixels than this, and encode them again: opaque
        images in full colour or grey as JPEG, others as PNG. All other images keep their bytes.
    quality : int
        Quality of the JPEGs that are encoded again, 1 to 100.
    restart_markers : bool
        Rewrite JPEGs with `fastdecode.native.add_restart_markers`, without loss, so that they have
        a restart marker for each row of blocks. JPEGs that it refuses keep their bytes.
    shard_size : int, optional
        Tar only: write several shards of at most this many bytes, ``train-00000.tar`` and so on for
        ``train.tar``. An item that is larger than this has a shard of its own.
    max_pixels : int or None
        An image of more pixels is a bad item; None lifts the limit. The default is that of
        `decode`.
    threads : int, optional
        By default one for each core that this process may use.
    skip_bad : bool
        Leave out bad items. If this is false and there are bad items, no store is made; complete
        shards are kept, and the same call with ``skip_bad=True`` goes on from there.
    notify : callable, optional
        Called with the name of the current step, the number of items done, and their total.

    Returns
    -------
    Packed

    Raises
    ------
    BadItems
        If some items do not decode and `skip_bad` is false, or if all items are bad.
    FileExistsError
        If `dst` exists, or shards that are not those of the same call.
    OSError
        If something cannot be read or written.
    ValueError
        If an argument is wrong.

    Examples
    --------
    >>> from fastdecode.packing import pack
    >>> packed = pack("train", "small.tar", max_side=256)
    >>> packed.items, packed.notes["shrunk"], packed.bytes_out < packed.bytes_in
    (6, 6, True)
    """
    source, target = os.fspath(src), os.fspath(dst)
    if not source:
        raise ValueError("no source is named")
    chosen = kind_for(target) if kind is None else kind
    options = Options(max_side, quality, restart_markers, shard_size, max_pixels).checked(chosen)
    if threads is not None and not (is_int(threads) and threads >= 1):
        raise ValueError(f"threads must be an integer of at least 1, not {threads!r}")
    paths = OutputPaths(target, chosen, sharded=shard_size is not None)
    paths.check_not_in_source(source)
    paths.check_free()
    with open_store(source) as store:
        job = _Job(store, paths, chosen, options, threads or usable_cores(), skip_bad, notify)
        packed = job.run()
        job.write_manifest(source)
    return packed


class _Job:
    """One run of a pack."""

    def __init__(
        self,
        store: Store,
        paths: OutputPaths,
        kind: str,
        options: Options,
        threads: int,
        skip_bad: bool,
        notify: Callable[[str, int, int], object] | None,
    ) -> None:
        self.store, self.paths, self.options = store, paths, options
        self.threads, self.skip_bad, self.notify = threads, skip_bad, notify
        self.packed = Packed(str(paths.path), kind, manifest=str(paths.manifest))
        self.next = 0  # the first item that is not done yet
        self.listed = 0  # how many bad items the shards before the current one have named

    def run(self) -> Packed:
        """Write the store, and return what it holds."""
        packed, store = self.packed, self.store
        writer = self._begin()
        left = range(packed.resumed, len(store))
        work = Work(store, self.options)
        try:
            with closing(map_in_order(work, left, self.threads)) as outcomes:
                for index, outcome in zip(left, outcomes, strict=True):
                    self._take(outcome, writer)
                    self.next = index + 1
                    if self.notify is not None:
                        self.notify("packing", self.next, len(store))
            self._check_bad()
            writer.close()
        except BaseException:
            writer.abort()
            raise
        self.files = writer.files if isinstance(writer, TarShards) else self._describe_file()
        if self.paths.sharded:
            packed.shards = [str(self.paths.path.with_name(file["name"])) for file in self.files]
        return packed

    def _begin(self) -> TarShards | Writer:
        """Return the writer, after the shards that an earlier run has completed."""
        if self.packed.kind != "tar":
            return create_store(self.paths.path, self.packed.kind, classes=self.store.classes)
        size, classes = self.options.shard_size, self.store.classes
        if not self.paths.sharded:
            return TarShards(self.paths, size, classes, dict)
        job = self._identity()
        writer = TarShards(self.paths, size, classes, lambda: self._totals(job))
        for found in writer.finished(job):
            self._skip(found)
        self.paths.check_no_shards(len(writer.files))
        return writer

    def _identity(self) -> str:
        """Return a checksum of what decides which items each shard holds, but for their bytes."""
        encoder = PIL.__version__ if self.options.max_side is not None else ""
        versions = fastdecode.__version__, encoder
        given = repr((*versions, self.options, list(self.store.classes)))
        whole = hashlib.sha256(given.encode("utf-8", "surrogatepass"))
        for index in range(len(self.store)):
            whole.update(b"\n" + self.store.key(index).encode("utf-8", "surrogatepass"))
        return whole.hexdigest()

    def _totals(self, job: str) -> dict[str, Any]:
        """Return the counts up to the end of a shard, and the bad items since the one before."""
        done, bad = self.packed, self.packed.bad[self.listed :]
        self.listed = len(done.bad)
        counts = {"items": done.items, "bytes_in": done.bytes_in, "bytes_out": done.bytes_out}
        return {"job": job, "next": self.next, **counts, "notes": dict(done.notes), "bad": bad}

    def _skip(self, found: dict[str, Any]) -> None:
        """Count a complete shard of an earlier run."""
        done = self.packed
        self.next = done.resumed = found["next"]
        done.items, done.bytes_in, done.bytes_out = (
            found[name] for name in ("items", "bytes_in", "bytes_out")
        )
        done.notes = Counter(found["notes"])
        done.bad += [(key, why) for key, why in found["bad"]]
        self.listed = len(done.bad)

    def _take(self, outcome: Outcome, writer: TarShards | Writer) -> None:
        """Write the next item, or note that it is bad."""
        bad = outcome.bad
        if not bad:
            try:
                writer.add(outcome.key, outcome.data, outcome.target)
            except StoreError:  # of the shard that this item has completed
                raise
            except ValueError as error:  # the store cannot hold such a key or target
                bad = printable(str(error).removeprefix(f"{self.paths.path}: "))
        packed = self.packed  # only now, because the item may have completed a shard
        packed.bytes_in += outcome.bytes_in
        if bad:
            packed.bad.append((printable(outcome.key), bad))
            return
        packed.items += 1
        packed.bytes_out += len(outcome.data)
        packed.notes.update(outcome.notes)

    def _check_bad(self) -> None:
        """Write the list of bad items; raise BadItems if `skip_bad` does not leave them out."""
        packed = self.packed
        bad = len(packed.bad)
        if not bad and not packed.items:
            raise StoreError(f"there is nothing in {self.store.location}")
        self.paths.write_bad(packed.bad)
        if not bad or (self.skip_bad and packed.items):
            return
        way = "there are no others" if not packed.items else "--skip-bad leaves them out"
        error = BadItems(
            f"{bad} of {packed.items + bad} items are bad (listed in {self.paths.bad}): {way}"
        )
        error.packed = packed
        raise error

    def _describe_file(self) -> list[dict[str, Any]]:
        """Return the name, size and checksum of the store's file; of a folder, its index."""
        path = self.paths.path
        path = path / INDEX if path.is_dir() else path
        name = path.relative_to(self.paths.path.parent).as_posix()
        return [{"name": name, "bytes": path.stat().st_size, "sha256": file_sha256(path)}]

    def write_manifest(self, source: str) -> None:
        """Write the manifest, which has no time and no name of a machine: it is always the same."""
        packed = self.packed
        values: dict[str, Any] = {
            "format": _FORMAT,
            "fastdecode": fastdecode.__version__,
            "source": printable(source),
            "options": asdict(self.options),
            "kind": packed.kind,
            "items": packed.items,
            "bytes": packed.bytes_out,
            "classes": list(self.store.classes),
            "notes": dict(packed.notes),
            "files": self.files,
            "bad": [{"key": key, "reason": reason} for key, reason in packed.bad],
        }
        if packed.kind == "tar":
            values["shards"] = [file["name"] for file in self.files]
        text = dump_json(values, indent=1) + "\n"
        write_bytes(self.paths.manifest, text.encode(), durable=True)


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

    def finished(self, job: str) -> Iterator[dict[str, Any]]:
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
            yield about

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
