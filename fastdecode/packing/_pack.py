"""`pack` reads, checks, optionally rewrites, and stores every item. It can resume at any point.

Items go to a spool (`Spool`) in the order of the source. About once a second the spool is flushed
to the disk, and then a record in the journal says up to where the spool is valid (`Chunk`). After a
kill, anything beyond that is discarded and done again. When the spool is complete, the store is
made from it in one go (`make`) and renamed to its location. The store depends on the spool and the
journal alone.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import PIL

import fastdecode
from fastdecode._arrays import map_in_order
from fastdecode._selection import disabled
from fastdecode._system import usable_cores
from fastdecode.errors import BackendUnavailable, StoreError
from fastdecode.native import _library
from fastdecode.packing._journal import BadItem, BadItems, Item, Journal, Packed, State, read_items
from fastdecode.packing._lock import CannotResume, lock_folder
from fastdecode.packing._output import OutputPaths, make_result, write_bad
from fastdecode.packing._rewrite import Names, Work, size_and_time, stamp
from fastdecode.packing._spool import Spool
from fastdecode.packing._verify import printable
from fastdecode.plan import DEFAULT_MAX_PIXELS
from fastdecode.stores import kind_for, open_store
from fastdecode.stores.locations import shard_locations

if TYPE_CHECKING:
    from fastdecode.packing._rewrite import Outcome
    from fastdecode.stores import Store

Notify: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of the current step, the number of items done, and their total."""

EVERY_BYTES = 64 << 20
EVERY_S = 1.0
"""The spool is flushed after so many bytes or seconds: a kill loses no more work than that."""

_REVISION = "size and time of the source"


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
    start_over: bool = False,
    notify: Notify | None = None,
) -> Packed:
    """Copy images into a store, and check that each one decodes.

    If a call is stopped or killed, the same call resumes it. The result is the same, byte for byte,
    whatever happened before and however many threads work.

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
        Leave out bad items. If this is false and there are bad items, no store is made; the work is
        kept, and the same call with ``skip_bad=True`` goes on from there.
    start_over : bool
        Begin again, and discard the work of an earlier pack.
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
        If something cannot be read or written. Once it can, the same call goes on.
    ValueError
        If an argument is wrong; if another process packs to the same `dst`; or if an earlier pack
        to it was begun with other options or another source.

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
    options = Options(max_side, quality, restart_markers, shard_size, max_pixels)
    options.check(chosen)
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    place = OutputPaths(target, chosen, sharded=shard_size is not None)
    place.check_not_in_source(source)
    with _remove_empty_parents(place.path), lock_folder(place.partial):
        try:
            if start_over:
                place.clear()
            threads = threads or usable_cores()
            told: Notify = notify or (lambda _what, _done, _total: None)
            with closing(Journal(place.journal)) as journal:
                packed = _Job(journal, source, place, options, threads, skip_bad, told).run()
            place.remove()
            return packed
        finally:
            if not place.has_begun():  # neither this pack nor an earlier one has left any work
                place.remove_folder()


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


@dataclass(frozen=True)
class Options:
    """The arguments of `pack` on which the result depends."""

    max_side: int | None = None
    quality: int = 90
    restart_markers: bool = False
    shard_size: int | None = None
    max_pixels: int | None = DEFAULT_MAX_PIXELS

    def check(self, kind: str) -> None:
        """Check the options before any work is done."""
        if self.max_side is not None and self.max_side < 1:
            raise ValueError(f"max_side must be at least 1 pixel, not {self.max_side}")
        if not 1 <= self.quality <= 100:
            raise ValueError(f"quality must be from 1 to 100, not {self.quality}")
        if self.max_pixels is not None and self.max_pixels < 1:
            raise ValueError(f"max_pixels must be at least 1, not {self.max_pixels}")
        if self.shard_size is not None and self.shard_size < 1:
            raise ValueError(f"shard_size must be at least 1 byte, not {self.shard_size}")
        if self.shard_size is not None and kind != "tar":
            raise ValueError(f"only a tar store has shards, not a {kind} store")
        if self.restart_markers:
            if "native" in disabled():
                raise BackendUnavailable(
                    "only the native core puts restart markers into JPEGs, and FASTDECODE_DISABLE "
                    "disables it"
                )
            _library.require()


@dataclass
class _Job:
    """One run of a pack, from the state in its journal to the finished store."""

    journal: Journal
    source: str
    place: OutputPaths
    options: Options
    threads: int
    skip_bad: bool
    notify: Notify

    def __post_init__(self) -> None:
        self.state = self._read()

    def _read(self) -> State:
        state = State(self.place.packed())
        state.read(self.journal)
        return state

    def _record(self, **record: Any) -> None:
        self.journal.append(record)
        self.state.take(record)

    def run(self) -> Packed:
        """Begin, or resume an earlier run, and finish the pack."""
        asked = self._settings()
        self.state.check("asked", asked)
        if self.state.moves is None:
            self.place.check_free(new=not self.state.asked)
            with open_store(self.source) as store:
                moves = self._make(store, asked)
            self._record(moves=moves)
        moves = self.state.moves or []
        self.place.move(moves)
        packed = self.state.packed
        if self.place.sharded:
            packed.shards = self.place.shards(moves)
        return packed

    def _settings(self) -> dict[str, Any]:
        """Return all that the result depends on, except the content of the source."""
        local = "://" not in self.source
        asked = {
            "fastdecode": fastdecode.__version__,
            "source": os.path.realpath(self.source) if local else self.source,
            "kind": self.place.kind,
            **asdict(self.options),
        }
        if self.options.max_side is not None:
            asked["Pillow"] = PIL.__version__  # which encodes shrunk images
        return asked

    def _make(self, store: Store, asked: dict[str, Any]) -> list[tuple[str, str]]:
        """Fill the spool, and make the result from it; return the renamings that remain."""
        place = self.place
        described = _describe_source(store, self.source)
        self.state.check("source", described)
        several = self.options.max_side is not None  # only then can keys change
        work = Work(store, self.options, Names(_keys(store) if several else ()))
        if self.state.asked:
            self._check_unchanged(store)
            self._retry_bad(work)
        else:
            place.check_writer()
            self._record(asked=asked, source=described)
        state = self.state
        keys = (item.key for item in read_items(self.journal))
        spool = Spool(
            place.partial, place.kind, self.options.shard_size, state.shard, state.end, keys
        )
        with closing(spool):
            self._fill(spool, work)
            if _revision(self.source) != described[_REVISION]:
                raise CannotResume(
                    f"{self.source} has changed meanwhile: begin again with --start-over"
                )
            self._check_bad()
            spool.finish()
        state.packed.empty_classes = [
            name for number, name in enumerate(store.classes) if number not in state.used
        ]
        about = {"source": printable(self.source), "options": asdict(self.options)}
        return make_result(place, self.journal, state.packed, about, store.classes, self.notify)

    def _check_unchanged(self, store: Store) -> None:
        """Raise if an item of the source has changed since it went into the spool."""
        for item in read_items(self.journal):
            number = item.number
            if number >= len(store) or (item.stamp and stamp(store, number) != item.stamp):
                raise CannotResume(
                    f"{store.location}, item {number} ({item.key}) has changed "
                    "since an earlier run packed it: begin again with --start-over"
                )

    def _retry_bad(self, work: Work) -> None:
        """Try the bad items again. If one is good, resume from the record that holds it."""
        bad = self.state.bad
        again = [(at, one) for at, one in enumerate(bad) if not one.fixed]
        with closing(
            map_in_order(work, [one.number for _, one in again], self.threads)
        ) as outcomes:
            for (at, one), outcome in zip(again, outcomes, strict=True):
                if not outcome.bad:
                    self.journal.cut(one.number)
                    self.state = self._read()
                    break
                bad[at] = one._replace(reason=outcome.bad)
        del bad[len(self.state.bad) :]
        self.state.bad = bad

    def _fill(self, spool: Spool, work: Work) -> None:
        """Put the remaining items into the spool."""
        total = len(work.store)
        chunk = Chunk(spool, self.state.next, self._record)
        left = range(self.state.next, total)
        with closing(map_in_order(work, left, self.threads)) as outcomes:
            for index, outcome in zip(left, outcomes, strict=True):
                chunk.take(outcome)
                self.notify("packing", index + 1, total)
        chunk.commit()

    def _check_bad(self) -> None:
        """Raise BadItems if there are bad items without `skip_bad`, or no good ones."""
        packed = self.state.packed
        packed.bad = [(one.key, one.reason) for one in self.state.bad]
        bad = len(packed.bad)
        if not bad and not packed.items:
            raise StoreError(f"there is nothing in {self.source}")
        if not bad or (self.skip_bad and packed.items):
            return
        write_bad(self.place.bad, packed.bad)
        way = "there are no others" if not packed.items else "--skip-bad leaves them out"
        error = BadItems(
            f"{bad} of {packed.items + bad} items are bad (listed in {self.place.bad}): {way}"
        )
        error.packed = packed
        raise error


class Chunk:
    """Puts outcomes into the spool, and records them in groups."""

    def __init__(self, spool: Spool, next_: int, record: Callable[..., None]) -> None:
        self._spool = spool
        self._next = next_
        self._record = record
        self._begin()

    def _begin(self) -> None:
        self._items: list[Item] = []
        self._bad: list[BadItem] = []
        self._bytes_in = 0
        self._due = time.monotonic() + EVERY_S

    def take(self, outcome: Outcome) -> None:
        """Add the next item to the spool, or to the bad items."""
        key, target, data, sha256, notes, size, bad, stamped = outcome
        if bad:
            self._bad.append(BadItem(self._next, printable(key), bad, fixed=False))
        else:
            try:
                place = self._spool.add(key, data, target)
            except ValueError as error:  # the store cannot hold such a key or target
                self._bad.append(
                    BadItem(self._next, printable(key), printable(str(error)), fixed=True)
                )
            else:
                self._items.append(Item(key, target, *place, sha256, notes, self._next, stamped))
        self._bytes_in += size
        self._next += 1
        if time.monotonic() >= self._due or self._bytes_in >= EVERY_BYTES:
            self.commit()

    def commit(self) -> None:
        """Flush the spool to the disk, and then append the record of its items to the journal."""
        if not self._items and not self._bad:
            return
        shard, end = self._spool.sync()
        self._record(
            next=self._next,
            shard=shard,
            end=end,
            items=self._items,
            bad=self._bad,
            bytes_in=self._bytes_in,
        )
        self._begin()


def _keys(store: Store) -> Iterator[str]:
    return map(store.key, range(len(store)))


def _describe_source(store: Store, location: str) -> dict[str, Any]:
    """Return what identifies a source, without reading its images."""
    keys = hashlib.sha256()
    for key in _keys(store):
        keys.update(key.encode("utf-8", "surrogatepass") + b"\n")
    return {
        "number of items": len(store),
        "sha256 of the keys": keys.hexdigest(),
        "classes": list(store.classes),
        _REVISION: _revision(location),
    }


def _revision(location: str) -> list[int] | None:
    """Return sizes in bytes and times of the local files of a source; None if there are none.

    For a folder, these are the shards or the LMDB file in it. `stamp` does the same for images.
    """
    if "://" in location:
        return None
    path = Path(location)
    if path.is_file():
        files = [path]
    elif path.is_dir():
        files = [each for each in sorted(path.iterdir()) if each.suffix in (".tar", ".mdb")]
    else:
        files = [Path(each) for each in shard_locations(location)]
    return [number for each in files for number in size_and_time(each)] or None
