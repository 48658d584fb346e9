"""`pack` reads, checks, rewrites if asked, and keeps every item; it resumes at any point.

Items go to a spool (`Spool`) in the order of the source. After about a second's worth of them the
spool is made to lie on the disk, and then a record in the journal says how far it is good
(`Chunk`). What is beyond that after a kill is cut off and done again. When all are there the store
is made from the spool in one go (`make`), which depends on nothing but the spool, and moved to its
place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import PIL

import fastdecode
from fastdecode._selection import disabled
from fastdecode._system import usable_cores
from fastdecode.errors import BackendUnavailable, StoreError
from fastdecode.native import _library
from fastdecode.packing._journal import Bad, BadItems, Item, Journal, Packed, State, items_of
from fastdecode.packing._lock import Lock, Refused
from fastdecode.packing._output import Place, make, write_bad
from fastdecode.packing._rewrite import Names, Work
from fastdecode.packing._source import REVISION, check_unchanged, describe, keys_of, revision
from fastdecode.packing._spool import PLAIN, Members, Rules, Spool
from fastdecode.packing._verify import in_order, plain
from fastdecode.stores import kind_for, open_store

if TYPE_CHECKING:
    from fastdecode.packing._rewrite import Outcome

__all__ = ["EVERY_BYTES", "EVERY_S", "Chunk", "Notify", "Options", "pack"]

Notify: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how many items are done, and of how many."""

EVERY_BYTES = 64 << 20
EVERY_S = 1.0
"""After so much, or so long, the work is made to last: a kill loses no more than that."""


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
        By default what the suffix of `dst` says, or a folder.
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
    with _tidied(place.path), Lock(place.partial):
        try:
            if start_over:
                _clear(place)
            job = _Job(source, place, options, threads or usable_cores(), skip_bad, notify)
            return job.run()
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


class _Job:
    """One run of a pack, from the lock to the result."""

    def __init__(
        self,
        source: str,
        place: Place,
        options: Options,
        threads: int,
        skip_bad: bool,
        notify: Notify | None,
    ) -> None:
        self._source = source
        self._place = place
        self._options = options
        self._threads = threads
        self._skip_bad = skip_bad
        self._notify: Notify = notify or (lambda _what, _done, _total: None)
        packed = Packed(str(place.path), place.kind, manifest=str(place.manifest))
        self._state = State(packed)
        self._journal: Journal

    def run(self) -> Packed:
        """Resume an earlier run, or begin, and go on to the end."""
        state, place = self._state, self._place
        with ExitStack() as stack:
            if place.has_begun():
                state.read(self._opened_journal(stack))
            state.check("asked", self._asked())
            if state.moves is None:
                place.check_free(new=not state.asked)
                moves = self._make(stack)
                self._journal.append({"moves": moves})
                state = self._state  # which is another one where something was mended
                state.moves = moves
            place.move(state.moves)
        place.remove()
        return state.packed

    def _asked(self) -> dict[str, Any]:
        """Return what the result depends on, except the source's content."""
        local = "://" not in self._source
        asked = {
            "fastdecode": fastdecode.__version__,
            "source": os.path.realpath(self._source) if local else self._source,
            "kind": self._place.kind,
            **asdict(self._options),
        }
        if self._options.max_side is not None:
            asked["Pillow"] = PIL.__version__  # it encodes
        return asked

    def _opened_journal(self, stack: ExitStack) -> Journal:
        self._journal = Journal(self._place.journal)
        stack.callback(self._journal.close)
        return self._journal

    def _make(self, stack: ExitStack) -> list[tuple[str, str]]:
        """Fill the spool, and make the result of it."""
        place = self._place
        store = stack.enter_context(open_store(self._source))
        described = describe(store, self._source)
        self._state.check("source", described)
        several = self._options.max_side is not None  # only then names may change
        work = Work(store, self._options, Names(keys_of(store) if several else ()))
        if self._state.asked:
            check_unchanged(store, items_of(self._journal))
            self._try_again(work)
        else:
            place.check_writer()
            journal = self._opened_journal(stack)
            journal.append({"asked": self._asked(), "source": described})
        state = self._state
        layout = Members() if place.kind == "tar" else PLAIN
        spool = Spool(place.partial, layout, self._options.shard_size, state.shard, state.end)
        stack.callback(spool.close)
        self._fill(spool, work)
        if revision(self._source) != described[REVISION]:
            raise Refused(f"{self._source} has changed meanwhile: begin again with --start-over")
        self._check_bad()
        spool.finish()
        state.packed.empty_classes = [
            name for place_, name in enumerate(store.classes) if place_ not in state.used
        ]
        about = {"source": plain(self._source), "options": asdict(self._options)}
        return make(place, self._journal, state.packed, about, store.classes, self._notify)

    def _try_again(self, work: Work) -> None:
        """Look at bad items once more; go back to before the first that is good now."""
        mended, reasons = _try_again(work, self._state.bad, self._threads)
        if mended is not None:
            self._journal.cut(lambda record: record.get("next", 0) > mended)
            packed = self._state.packed
            self._state = State(Packed(packed.location, packed.kind, manifest=packed.manifest))
            self._state.read(self._journal)
            reasons = [each for each in reasons if each[0] < len(self._state.bad)]
        if reasons:
            record = {"reasons": reasons}
            self._journal.append(record)
            self._state.take(record)

    def _fill(self, spool: Spool, work: Work) -> None:
        """Put the items that are left into the spool."""
        total = len(work.store)
        rules = Rules(self._place.kind)
        for item in items_of(self._journal):
            rules.add(item.key)
        chunk = Chunk(spool, self._journal, self._state, rules)
        left = range(self._state.next, total)
        with closing(in_order(work, left, self._threads)) as outcomes:
            for index, outcome in zip(left, outcomes, strict=True):
                chunk.take(outcome)
                self._notify("packing", index + 1, total)
        chunk.settle()

    def _check_bad(self) -> None:
        """Raise BadItems if there are bad items that are not to be left out, or no others."""
        packed, bad = self._state.packed, len(self._state.packed.bad)
        if not bad and not packed.items:
            raise StoreError(f"there is nothing in {self._source}")
        if not bad or (self._skip_bad and packed.items):
            return
        write_bad(self._place.bad, packed.bad)
        way = "there is nothing else" if not packed.items else "--skip-bad leaves them out"
        error = BadItems(
            f"{bad} of {packed.items + bad} items are bad (listed in {self._place.bad}): {way}"
        )
        error.packed = packed
        raise error


class Chunk:
    """Puts outcomes into the spool, and records them in groups."""

    def __init__(self, spool: Spool, journal: Journal, state: State, rules: Rules) -> None:
        self._spool = spool
        self._rules = rules
        self._journal = journal
        self._state = state
        self._next = state.next
        self._begin()

    def _begin(self) -> None:
        self._items: list[Item] = []
        self._bad: list[Bad] = []
        self._bytes_in = 0
        self._due = time.monotonic() + EVERY_S

    def take(self, outcome: Outcome) -> None:
        """Put the next item into the spool, or among the bad ones."""
        key, number = outcome.key, self._next
        if outcome.bad:
            self._bad.append(Bad(number, plain(key), outcome.bad, fixed=False))
        else:
            try:
                self._rules.check(key, outcome.target)
                shard, offset, size = self._spool.add(key, outcome.data, outcome.target)
            except ValueError as error:  # the store cannot hold such a key or target
                self._bad.append(Bad(number, plain(key), plain(str(error)), fixed=True))
            else:
                self._rules.add(key)
                place = key, outcome.target, shard, offset, size
                self._items.append(
                    Item(*place, outcome.sha256, outcome.notes, number, outcome.stamp)
                )
        self._bytes_in += outcome.bytes_in
        self._next += 1
        if time.monotonic() >= self._due or self._bytes_in >= EVERY_BYTES:
            self.settle()

    def settle(self) -> None:
        """Make what there is durable: the data first, then the record that says so."""
        if self._next == self._state.next:
            return
        shard, end = self._spool.sync()
        record: dict[str, Any] = {
            "next": self._next,
            "shard": shard,
            "end": end,
            "items": self._items,
            "bad": self._bad,
            "bytes_in": self._bytes_in,
        }
        self._journal.append(record)
        self._state.take(record)
        self._begin()


def _clear(place: Place) -> None:
    """Remove an earlier pack that was not finished, also what it has put at its place already.

    If something else is there, or that pack is whole, nothing is removed that counts.
    """
    if not place.has_begun():
        place.check_free()
        place.journal.unlink(missing_ok=True)
        place.remove_work()
        return
    state = State(Packed(str(place.path), place.kind))
    with closing(Journal(place.journal)) as journal, suppress(Refused):
        state.read(journal)  # what is not understood has put nothing at its place
    moves = state.moves or []
    placed = place.moved(moves)
    if moves and len(placed) == len(moves):
        place.remove()
        placed = []
    place.check_free(new=False, ours=placed)
    for path in reversed(placed):
        path.unlink()
    if state.packed.bad:
        place.bad.unlink(missing_ok=True)
    # The journal first: the rest is nothing without it.
    place.journal.unlink(missing_ok=True)
    place.remove_work()


def _try_again(
    work: Callable[[int], Outcome], bad: Sequence[Bad], threads: int
) -> tuple[int | None, list[tuple[int, str]]]:
    """Look at items that were bad once more.

    Return the first of the source's items that is good now, and of those before it that are bad
    for another reason now the place in `bad`, and the reason.
    """
    again = [(place, one) for place, one in enumerate(bad) if not one.fixed]
    reasons: list[tuple[int, str]] = []
    indices = [one.number for _, one in again]
    with closing(in_order(work, indices, threads)) as outcomes:
        for (place, one), outcome in zip(again, outcomes, strict=True):
            if not outcome.bad:
                return one.number, reasons
            if outcome.bad != one.reason:
                reasons.append((place, outcome.bad))
    return None, reasons
