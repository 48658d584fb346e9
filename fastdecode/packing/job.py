"""`pack`: every item read, made sure of, rewritten if asked, and kept; to be resumed at any point.

Items go to a spool (`Spool`) in the order of the source. After about a second's worth of them the
spool is made to lie on the disk, and then a record in the journal says how far it is good. What is
beyond that after a kill is cut off and done again. When all are there the store is made from the
spool in one go (`finish`), which depends on nothing but the spool, and moved to its place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import PIL

import fastdecode
from fastdecode.cores import usable_cores
from fastdecode.errors import StoreError
from fastdecode.packing import finish, manifest
from fastdecode.packing.chunk import Chunk
from fastdecode.packing.journal import Journal
from fastdecode.packing.lock import Lock
from fastdecode.packing.members import Members
from fastdecode.packing.names import Names
from fastdecode.packing.options import Options
from fastdecode.packing.ordered import in_order
from fastdecode.packing.place import Place, kind_for
from fastdecode.packing.restart import clear
from fastdecode.packing.results import BadItems, Packed, Refused
from fastdecode.packing.retry import check_unchanged, try_again
from fastdecode.packing.rules import Rules
from fastdecode.packing.source import REVISION, describe, keys_of, revision
from fastdecode.packing.spool import PLAIN, Spool
from fastdecode.packing.state import State, items_of
from fastdecode.packing.verify import plain
from fastdecode.packing.work import Work
from fastdecode.stores import open_store

if TYPE_CHECKING:
    from fastdecode.packing.progress import Notify

__all__ = ["pack"]


def pack(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    kind: str | None = None,
    max_side: int | None = None,
    quality: int = 90,
    reindex: bool = False,
    shard_size: int | None = None,
    workers: int | None = None,
    skip_bad: bool = False,
    restart: bool = False,
    notify: Notify | None = None,
) -> Packed:
    """Copy pictures into a store, each of which decodes.

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
        Shrink pictures whose larger side has more pixels than this, and encode them anew: see
        `fastdecode.packing.shrink`. All others keep their bytes.
    quality : int
        Of the JPEGs encoded anew, 1 to 100.
    reindex : bool
        Rewrite JPEGs by `fastdecode.native.reindex`. Those that it refuses stay as they are.
    shard_size : int, optional
        Tar only: several shards of at most so many bytes (an item that is larger has its own):
        ``train-00000.tar`` and so on for ``train.tar``.
    workers : int, optional
        Threads; by default one for each core that this process may use.
    skip_bad : bool
        Leave bad items out. Otherwise nothing is made if there are any; but what was done is kept,
        and the same call with this goes on from there.
    restart : bool
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
    options = Options(max_side, quality, reindex, shard_size)
    options.check(chosen)
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    place = Place(target, chosen, sharded=shard_size is not None)
    place.check_apart(source)
    with _tidied(place.path), Lock(place.partial):
        try:
            if restart:
                clear(place)
            job = _Job(source, place, options, workers or usable_cores(), skip_bad, notify)
            return job.run()
        finally:
            if not finish.has_begun(place):  # of an earlier pack, or this one
                finish.remove_folder(place)


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


class _Job:
    """One run of a pack, from the lock to the result."""

    def __init__(
        self,
        source: str,
        place: Place,
        options: Options,
        workers: int,
        skip_bad: bool,
        notify: Notify | None,
    ) -> None:
        self._source = source
        self._place = place
        self._options = options
        self._workers = workers
        self._skip_bad = skip_bad
        self._notify: Notify = notify or (lambda _what, _done, _total: None)
        packed = Packed(str(place.path), place.kind, manifest=str(place.manifest))
        self._state = State(packed)
        self._journal: Journal

    def run(self) -> Packed:
        """Go on from where an earlier run was, or begin; to the end."""
        state, place = self._state, self._place
        with ExitStack() as stack:
            if finish.has_begun(place):
                state.read(self._opened_journal(stack))
            state.check("asked", self._asked())
            if state.moves is None:
                place.check_free(new=not state.asked)
                moves = self._make(stack)
                self._journal.append({"moves": moves})
                state = self._state  # which is another one where something was mended
                state.moves = moves
            finish.move(place, state.moves)
        finish.remove(place)
        return state.packed

    def _asked(self) -> dict[str, Any]:
        """Return all that the result depends on, but for the source's content."""
        local = "://" not in self._source
        asked = {
            "fastdecode": fastdecode.__version__,
            "source": os.path.realpath(self._source) if local else self._source,
            "kind": self._place.kind,
            **self._options.to_json(),
        }
        if self._options.max_side is not None:
            asked["Pillow"] = PIL.__version__  # it encodes
        return asked

    def _opened_journal(self, stack: ExitStack) -> Journal:
        self._journal = Journal(finish.journal_path(self._place))
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
            finish.check_writer(place)
            journal = self._opened_journal(stack)
            journal.append({"asked": self._asked(), "source": described})
        state = self._state
        layout = Members() if place.kind == "tar" else PLAIN
        spool = Spool(place.partial, layout, self._options.shard_size, state.shard, state.end)
        stack.callback(spool.close)
        self._fill(spool, work)
        if revision(self._source) != described[REVISION]:
            raise Refused(f"{self._source} has changed meanwhile: begin again with --restart")
        self._check_bad()
        spool.finish()
        state.packed.empty_classes = [
            name for place_, name in enumerate(store.classes) if place_ not in state.used
        ]
        about = {"source": plain(self._source), "options": self._options.to_json()}
        return finish.make(place, self._journal, state.packed, about, store.classes, self._notify)

    def _try_again(self, work: Work) -> None:
        """Go back to before the first bad item that has been mended, if there is one."""
        mended, reasons = try_again(work, self._state.bad, self._workers)
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
        """Do the work for what is still to do, and write it down."""
        total = len(work.store)
        rules = Rules(self._place.kind)
        for item in items_of(self._journal):
            rules.add(item.key)
        chunk = Chunk(spool, self._journal, self._state, rules)
        left = range(self._state.next, total)
        with closing(in_order(work, left, self._workers)) as outcomes:
            for index, outcome in zip(left, outcomes, strict=True):
                chunk.take(outcome)
                self._notify("packing", index + 1, total)
        chunk.settle()

    def _check_bad(self) -> None:
        """Stop if there are bad items that are not to be left out, or no others."""
        packed, bad = self._state.packed, len(self._state.packed.bad)
        if not bad and not packed.items:
            raise StoreError(f"there is nothing in {self._source}")
        if not bad or (self._skip_bad and packed.items):
            return
        manifest.write_bad(self._place.bad, packed.bad)
        way = "there is nothing else" if not packed.items else "--skip-bad leaves them out"
        error = BadItems(
            f"{bad} of {packed.items + bad} items are bad (listed in {self._place.bad}): {way}"
        )
        error.packed = packed
        raise error
