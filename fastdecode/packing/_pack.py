"""`pack` reads, checks, optionally rewrites, and stores every item of a source."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import PIL

import fastdecode
from fastdecode._arguments import is_int
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS
from fastdecode._system.processor import usable_cores
from fastdecode._system.threads import map_in_order
from fastdecode.errors import FastDecodeError, StoreError
from fastdecode.packing._output import (
    OutputPaths,
    Packed,
    ShardRecord,
    TarShards,
    write_manifest,
)
from fastdecode.packing._rewrite import KeyRenamer, Options, Work
from fastdecode.packing._survey import printable
from fastdecode.packing._unfinished import CannotResume, Unfinished
from fastdecode.stores import create_store, kind_for, open_store
from fastdecode.stores.locations import shard_locations
from fastdecode.stores.tar.store import TarStore, index_tar

if TYPE_CHECKING:
    from fastdecode.packing._rewrite import Outcome
    from fastdecode.stores import Store, Writer


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

    Nothing is at `dst` before all is done. If a call with `shard_size` is stopped or killed, the
    same call goes on after the last complete shard; without shards it begins again. The result is
    the same, byte for byte, whatever happened before and however many threads work.

    Parameters
    ----------
    src : path or URI
        Anything that `open_store` opens.
    dst : path
        A local path where nothing exists yet. Next to it, `pack` writes the manifest, ``DST.json``,
        and, if there are bad items, a list of them, ``DST.bad.csv``. Until all is done, the work is
        in ``.DST.partial``.
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
        If `dst` exists.
    OSError
        If something cannot be read or written.
    ValueError
        If an argument is wrong; if another process packs to the same `dst`; or if the complete
        shards of an earlier call were made with other options or from other files.

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
    place = OutputPaths(target, chosen, sharded=shard_size is not None)
    place.check_not_in_source(source)
    with _remove_empty_parents(place.path), Unfinished(place) as work:
        if work.manifest.exists():  # an earlier pack made all files, and renamed some of them
            work.publish()
            raise place.complete_error()
        place.check_free()
        return _Job(source, place, options, threads or usable_cores(), skip_bad, notify, work).run()


@contextmanager
def _remove_empty_parents(path: Path) -> Iterator[None]:
    """After an error, remove the parent folders that did not exist before and are empty."""
    new = [folder for folder in path.parents if not folder.exists()]
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for folder in new:
                folder.rmdir()
        raise


@dataclass
class _Job:
    """One run of a pack."""

    source: str
    place: OutputPaths
    options: Options
    threads: int
    skip_bad: bool
    notify: Callable[[str, int, int], object] | None
    work: Unfinished

    def __post_init__(self) -> None:
        self.parts: list[ShardRecord] = []  # what each complete shard, or the store, holds
        self.part = ShardRecord()  # what follows the last complete shard
        self.content = hashlib.sha256()  # of lines as sha256sum prints them
        self.used: set[Any] = set()  # targets, such as classes

    def run(self) -> Packed:
        """Make all files, and rename them to their final places."""
        with open_store(self.source) as store:
            begun = self._describe(store)
            self.parts = self.work.begin(begun)
            resumed = self.parts[-1].next if self.parts else 0
            self.part.next = resumed
            self._fill(store)
            if self._describe(store) != begun:
                raise CannotResume(
                    f"{self.source} has changed meanwhile: remove {self.work.path}, and begin again"
                )
            packed = self._sum_up(store, resumed)
            self._check_bad(packed)
            files = self._describe_files()
            if self.place.sharded:
                packed.shards = [str(self.place.path.with_name(file["name"])) for file in files]
            self.place.check_free()
            write_manifest(
                *(self.work.path, packed, self.source, self.options, store.classes, files),
                self.content.hexdigest(),
            )
        self.work.publish()
        return packed

    def _describe(self, store: Store) -> dict[str, Any]:
        """Return all that the result depends on, as far as it is known without reading images."""
        local = "://" not in self.source
        keys, revision = hashlib.sha256(), hashlib.sha256()
        for key in _keys(store):
            keys.update(key.encode("utf-8", "surrogatepass") + b"\n")
        for number, path in enumerate(self._local_files(store)):
            with suppress(OSError):  # reading it reports the error
                found = os.stat(path)  # noqa: PTH116 - a million times
                revision.update(b"%d %d %d\n" % (number, found.st_size, found.st_mtime_ns))
        about = {
            "fastdecode": fastdecode.__version__,
            "source": os.path.realpath(self.source) if local else self.source,
            "kind": self.place.kind,
            **asdict(self.options),
            "number of items": len(store),
            "sha256 of the keys": keys.hexdigest(),
            "classes": list(store.classes),
            "size and time of the source": revision.hexdigest(),
        }
        if self.options.max_side is not None:
            about["Pillow"] = PIL.__version__  # which encodes shrunk images
        return about

    def _local_files(self, store: Store) -> Iterator[str | Path]:
        """Yield the local files that the source consists of.

        Images of a folder or list are among them where a run may go on with shards of another one.
        """
        path = Path(self.source)
        if path.is_dir():
            yield from (each for each in sorted(path.iterdir()) if each.suffix in (".tar", ".mdb"))
        elif "://" not in self.source:
            yield from shard_locations(self.source)
        if self.place.sharded and store.kind in ("folder", "list") and not store.remote:
            for index in range(len(store)):
                source: Any = ""
                with suppress(FastDecodeError, OSError, ValueError):  # reading reports the error
                    source = store.source(index)
                yield source if isinstance(source, str) else ""

    def _fill(self, store: Store) -> None:
        """Write the items that `parts` do not hold yet."""
        several = self.options.max_side is not None  # only then can keys change
        make = Work(store, self.options, KeyRenamer(_keys(store) if several else ()))
        writer: TarShards | Writer
        if self.place.kind == "tar":
            writer = TarShards(self.place, self.options.shard_size, store.classes, self._end_shard)
            for number in range(len(self.parts)):
                writer.keep(self._count_shard(number, store))
        else:
            where = self.work.path / self.place.path.name
            writer = create_store(where, self.place.kind, classes=store.classes)
        left = range(self.part.next, len(store))
        try:
            with closing(map_in_order(make, left, self.threads)) as outcomes:
                for index, outcome in zip(left, outcomes, strict=True):
                    self._take(index, outcome, writer)
                    if self.notify is not None:
                        self.notify("packing", index + 1, len(store))
            writer.close()
        except BaseException:
            writer.abort()
            raise
        if self.part.items or self.part.bad:
            # What no shard holds: a store of another kind, or bad items after the last shard.
            self.parts.append(self.part)

    def _end_shard(self, size: int, sha256: str) -> None:
        part, self.part = self.part, ShardRecord(self.part.next)
        part.bytes, part.sha256 = size, sha256
        self.parts.append(part)
        if self.place.sharded:
            self.work.add(part)

    def _count_shard(self, number: int, store: Store) -> list[str]:
        """Count the items of a complete shard of an earlier run; return their keys."""
        path = self.work.path / self.place.shard(number)
        index_tar(path, classes=store.classes)
        with TarStore(path) as shard:
            keys = list(_keys(shard))
            for index, key in enumerate(keys):
                digest = hashlib.sha256(shard.read(index)).hexdigest()
                self._count(key, digest, shard.target(index))
        return keys

    def _take(self, index: int, outcome: Outcome, writer: TarShards | Writer) -> None:
        """Write the next item, or note that it is bad."""
        bad = outcome.bad
        if not bad:
            if self.place.kind == "folder":
                self.work.add_key(outcome.key)
            try:
                writer.add(outcome.key, outcome.data, outcome.target)
            except StoreError:  # of the shard that this item has completed
                raise
            except ValueError as error:  # the store cannot hold such a key or target
                place = f"{self.work.path / self.place.path.name}: "
                bad = printable(str(error).removeprefix(place))
        part = self.part  # only now, because the item may have completed a shard
        part.next = index + 1
        part.bytes_in += outcome.bytes_in
        if bad:
            part.bad.append((printable(outcome.key), bad))
            return
        part.items += 1
        part.bytes_out += len(outcome.data)
        for note in outcome.notes:
            part.notes[note] = part.notes.get(note, 0) + 1
        self._count(outcome.key, outcome.sha256, outcome.target)

    def _count(self, key: str, digest: str, target: Any) -> None:
        self.content.update(f"{digest}  {key}\n".encode())
        if type(target) is int:
            self.used.add(target)

    def _sum_up(self, store: Store, resumed: int) -> Packed:
        packed = Packed(str(self.place.path), self.place.kind, manifest=str(self.place.manifest))
        for part in self.parts:
            packed.items += part.items
            packed.bytes_in += part.bytes_in
            packed.bytes_out += part.bytes_out
            packed.notes.update(part.notes)
            packed.bad += [(key, why) for key, why in part.bad]
        packed.resumed = resumed
        packed.empty_classes = [
            name for number, name in enumerate(store.classes) if number not in self.used
        ]
        return packed

    def _check_bad(self, packed: Packed) -> None:
        """Write the list of bad items; raise BadItems if `skip_bad` does not leave them out."""
        bad = len(packed.bad)
        if not bad and not packed.items:
            raise StoreError(f"there is nothing in {self.source}")
        self.place.write_bad(packed.bad, self.work.path)
        if not bad or (self.skip_bad and packed.items):
            return
        way = "there are no others" if not packed.items else "--skip-bad leaves them out"
        error = BadItems(
            f"{bad} of {packed.items + bad} items are bad (listed in {self.place.bad}): {way}"
        )
        error.packed = packed
        raise error

    def _describe_files(self) -> list[dict[str, Any]]:
        """Return the name, size and checksum of each file of the store."""
        if self.place.kind != "tar":
            return self.work.describe_files()
        return [
            {
                "name": self.place.shard(number),
                "items": part.items,
                "bytes": part.bytes,
                "sha256": part.sha256,
            }
            for number, part in enumerate(self.parts)
            if part.sha256
        ]


def _keys(store: Store) -> Iterator[str]:
    return map(store.key, range(len(store)))
