"""`pack` reads, checks, rewrites if asked, and keeps every item; it resumes at any point.

Items go to a spool (`Spool`) in the order of the source. After about a second's worth of them the
spool is made to lie on the disk, and then a record in the journal says how far it is good
(`Chunk`). What is beyond that after a kill is cut off and done again. When all are there the store
is made from the spool in one go (`make`), which depends on nothing but the spool, and moved to its
place.
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
from fastdecode._arrays import in_order
from fastdecode._selection import disabled
from fastdecode._system import usable_cores
from fastdecode.errors import BackendUnavailable, StoreError
from fastdecode.native import _library
from fastdecode.packing._journal import Bad, BadItems, Item, Journal, Packed, State, items_of
from fastdecode.packing._lock import Refused, locked
from fastdecode.packing._output import Place, make, write_bad
from fastdecode.packing._rewrite import Names, Work, size_and_time, stamp
from fastdecode.packing._spool import Spool
from fastdecode.packing._verify import plain
from fastdecode.stores import kind_for, open_store
from fastdecode.stores.locations import shard_locations

if TYPE_CHECKING:
    from fastdecode.packing._rewrite import Outcome
    from fastdecode.stores import Store

Notify: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how many items are done, and of how many."""

EVERY_BYTES = 64 << 20
EVERY_S = 1.0
"""After so much, or so long, the work is made to last: a kill loses no more than that."""

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
    threads: int | None = None,
    skip_bad: bool = False,
    start_over: bool = False,
    notify: Notify | None = None,
) -> Packed:
    """Copy images into a store, each of which decodes.

    The same call goes on where an earlier one was stopped or killed. The result is the same, byte
    for byte, whatever happened on the way and however many threads work.

    Parameters
    ----------
    src : path or URI
        Anything that `open_store` opens.
    dst : path
        Local; nothing may be there yet. Beside it come its manifest, ``DST.json``; the list of bad
        items, ``DST.bad.csv``, if there are any; and until all is done ``.DST.partial``.
    kind : str, optional
        By default what the suffix of `dst` says, or a folder where there is none.
    max_side : int, optional
        Shrink images whose larger side has more pixels than this, and encode them anew: an opaque
        one in full colour or grey as a JPEG, others as a PNG. All others keep their bytes.
    quality : int
        Of the JPEGs encoded anew, 1 to 100.
    restart_markers : bool
        Rewrite JPEGs by `fastdecode.native.add_restart_markers`, without loss, with a restart
        marker for each row of blocks. Those that it refuses stay as they are.
    shard_size : int, optional
        Tar only: several shards of at most so many bytes (an item that is larger has its own):
        ``train-00000.tar`` and so on for ``train.tar``.
    threads : int, optional
        By default one for each core that this process may use.
    skip_bad : bool
        Leave bad items out. Otherwise nothing is made if there are any; but what was done is kept,
        and the same call with this goes on from there.
    start_over : bool
        Begin again, whatever is there of an earlier pack.
    notify : callable, optional
        Called with what is being done, and how many items are done, of how many.

    Returns
    -------
    Packed

    Raises
    ------
    BadItems
        If some items do not decode, and `skip_bad` is false, or no others are there.
    FileExistsError
        If something is at `dst` already.
    OSError
        If something cannot be read or written. The same call goes on once it can.
    ValueError
        If an argument is wrong; if another process packs to the same place; or if an earlier pack
        that is to go on was begun with other options or another source.

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
    options = Options(max_side, quality, restart_markers, shard_size)
    options.check(chosen)
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    place = Place(target, chosen, sharded=shard_size is not None)
    place.check_apart(source)
    with _tidied(place.path), locked(place.partial):
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
            if not place.has_begun():  # of an earlier pack, or this one
                place.remove_folder()


@contextmanager
def _tidied(path: Path) -> Iterator[None]:
    """Remove the folders for a result that comes to nothing, as far as nothing is in them."""
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
    """What a pack was asked for, as far as the result depends on it: see `pack`."""

    max_side: int | None = None
    quality: int = 90
    restart_markers: bool = False
    shard_size: int | None = None

    def check(self, kind: str) -> None:
        """Refuse what is wrong, before any work."""
        if self.max_side is not None and self.max_side < 1:
            raise ValueError(f"max_side must be at least 1 pixel, not {self.max_side}")
        if not 1 <= self.quality <= 100:
            raise ValueError(f"quality must be from 1 to 100, not {self.quality}")
        if self.shard_size is not None and self.shard_size < 1:
            raise ValueError(f"shard_size must be at least 1 byte, not {self.shard_size}")
        if self.shard_size is not None and kind != "tar":
            raise ValueError(f"only a tar store has shards, not a {kind} store")
        if self.restart_markers:
            if "native" in disabled():
                raise BackendUnavailable(
                    "only the native core puts restart markers into JPEGs, and it is left out by "
                    "FASTDECODE_DISABLE"
                )
            _library.require()


@dataclass
class _Job:
    """One run of a pack, from what its journal says to the files at their places."""

    journal: Journal
    source: str
    place: Place
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
        """Resume an earlier run, or begin, and go on to the end."""
        asked = self._asked()
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

    def _asked(self) -> dict[str, Any]:
        """Return what the result depends on, except the source's content."""
        local = "://" not in self.source
        asked = {
            "fastdecode": fastdecode.__version__,
            "source": os.path.realpath(self.source) if local else self.source,
            "kind": self.place.kind,
            **asdict(self.options),
        }
        if self.options.max_side is not None:
            asked["Pillow"] = PIL.__version__  # it encodes
        return asked

    def _make(self, store: Store, asked: dict[str, Any]) -> list[tuple[str, str]]:
        """Fill the spool, and make the result of it."""
        place = self.place
        described = _described(store, self.source)
        self.state.check("source", described)
        several = self.options.max_side is not None  # only then names may change
        work = Work(store, self.options, Names(_keys(store) if several else ()))
        if self.state.asked:
            self._check_unchanged(store)
            self._try_again(work)
        else:
            place.check_writer()
            self._record(asked=asked, source=described)
        state = self.state
        keys = (item.key for item in items_of(self.journal))
        spool = Spool(
            place.partial, place.kind, self.options.shard_size, state.shard, state.end, keys
        )
        with closing(spool):
            self._fill(spool, work)
            if _revision(self.source) != described[_REVISION]:
                raise Refused(f"{self.source} has changed meanwhile: begin again with --start-over")
            self._check_bad()
            spool.finish()
        state.packed.empty_classes = [
            name for number, name in enumerate(store.classes) if number not in state.used
        ]
        about = {"source": plain(self.source), "options": asdict(self.options)}
        return make(place, self.journal, state.packed, about, store.classes, self.notify)

    def _check_unchanged(self, store: Store) -> None:
        """Refuse a source of which a file has changed since it went into the spool."""
        for item in items_of(self.journal):
            number = item.number
            if number >= len(store) or (item.stamp and stamp(store, number) != item.stamp):
                raise Refused(
                    f"{store.location}, item {number} ({item.key}) has changed "
                    "since an earlier run packed it: begin again with --start-over"
                )

    def _try_again(self, work: Work) -> None:
        """Look at bad items once more; go back to before the first that is good now."""
        bad = self.state.bad
        again = [(at, one) for at, one in enumerate(bad) if not one.fixed]
        with closing(in_order(work, [one.number for _, one in again], self.threads)) as outcomes:
            for (at, one), outcome in zip(again, outcomes, strict=True):
                if not outcome.bad:
                    self.journal.cut(one.number)
                    self.state = self._read()
                    break
                bad[at] = one._replace(reason=outcome.bad)
        del bad[len(self.state.bad) :]
        self.state.bad = bad

    def _fill(self, spool: Spool, work: Work) -> None:
        """Put the items that are left into the spool."""
        total = len(work.store)
        chunk = Chunk(spool, self.state.next, self._record)
        left = range(self.state.next, total)
        with closing(in_order(work, left, self.threads)) as outcomes:
            for index, outcome in zip(left, outcomes, strict=True):
                chunk.take(outcome)
                self.notify("packing", index + 1, total)
        chunk.settle()

    def _check_bad(self) -> None:
        """Raise BadItems if there are bad items that are not to be left out, or no others."""
        packed = self.state.packed
        packed.bad = [(one.key, one.reason) for one in self.state.bad]
        bad = len(packed.bad)
        if not bad and not packed.items:
            raise StoreError(f"there is nothing in {self.source}")
        if not bad or (self.skip_bad and packed.items):
            return
        write_bad(self.place.bad, packed.bad)
        way = "there is nothing else" if not packed.items else "--skip-bad leaves them out"
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
        self._bad: list[Bad] = []
        self._bytes_in = 0
        self._due = time.monotonic() + EVERY_S

    def take(self, outcome: Outcome) -> None:
        """Put the next item into the spool, or among the bad ones."""
        key, target, data, sha256, notes, size, bad, stamped = outcome
        if bad:
            self._bad.append(Bad(self._next, plain(key), bad, fixed=False))
        else:
            try:
                place = self._spool.add(key, data, target)
            except ValueError as error:  # the store cannot hold such a key or target
                self._bad.append(Bad(self._next, plain(key), plain(str(error)), fixed=True))
            else:
                self._items.append(Item(key, target, *place, sha256, notes, self._next, stamped))
        self._bytes_in += size
        self._next += 1
        if time.monotonic() >= self._due or self._bytes_in >= EVERY_BYTES:
            self.settle()

    def settle(self) -> None:
        """Make what there is durable: the data first, then the record that says so."""
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


def _described(store: Store, location: str) -> dict[str, Any]:
    """Return what tells one source from another one, without reading its images."""
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
    """Return what changes with local files: sizes in bytes and times; None for others.

    Of a folder it is that of the shards, or the LMDB file, in it: for images see `stamp`.
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
