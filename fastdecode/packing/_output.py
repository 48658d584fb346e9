"""`Place`: the files that a pack makes, from the spool to their places beside the store.

Everything is made in ``.DST.partial/out`` (`make`); until a record in the journal says that it is
complete, a kill means that it is removed and made again. After that record files are only renamed:
the store itself last, or for shards the manifest, without which they are none. To do that again
does no harm. What a store says of itself, in the manifest and the list of bad items, holds neither
a time nor the name of a machine: the same pack makes the same bytes.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import fastdecode
from fastdecode._files import flush, flush_folder, write_text
from fastdecode.errors import StoreError
from fastdecode.packing._journal import Journal, Packed, State, items_of
from fastdecode.packing._lock import NAME, Refused, check_own
from fastdecode.packing._spool import checksum, part, parts, read_back
from fastdecode.stores import create_store, kind_by_suffix
from fastdecode.stores._index import text_of
from fastdecode.stores.folder import INDEX
from fastdecode.stores.tar import index_tar
from fastdecode.terminal import csv_text

if TYPE_CHECKING:
    from fastdecode.packing._journal import Item
    from fastdecode.packing._pack import Notify

_FORMAT = 1
_Result: TypeAlias = "tuple[list[dict[str, Any]], list[tuple[str, str]]]"


class Place:
    """Where the store is to be, what goes with it, and the folder for all that is not done."""

    def __init__(self, location: str, kind: str, *, sharded: bool) -> None:
        if "://" in location:
            raise ValueError(f"{location} is no local path: pack to one, and copy the result there")
        self.path = Path(location)
        name = self.path.name
        if not name or name == "..":
            raise ValueError(f"{location!r} does not end in the name of a store")
        named = kind_by_suffix(location)
        if named not in (None, kind):
            raise ValueError(
                f"{location} ends as a {named} store does, so nobody could open it as a {kind} "
                "store: choose another name"
            )
        self.kind = kind
        self.sharded = sharded
        self.manifest = self.path.with_name(f"{name}.json")
        self.bad = self.path.with_name(f"{name}.bad.csv")
        self.partial = self.path.with_name(f".{name}.partial")
        self.out = self.partial / "out"
        self.journal = self.partial / "journal"

    def packed(self) -> Packed:
        """Return what there is to say of a pack to this place before anything is done."""
        return Packed(str(self.path), self.kind, manifest=str(self.manifest))

    def shard(self, number: int) -> str:
        if not self.sharded:
            return self.path.name
        return f"{self.path.stem}-{number:05d}{self.path.suffix}"

    def shards(self, moves: Sequence[tuple[str, str]]) -> list[str]:
        """Return the paths of the shards among what is moved: the rest comes from ``out``."""
        return [
            str(self.path.with_name(last))
            for first, last in moves
            if not first.startswith(f"{self.out.name}/")
        ]

    def check_free(self, *, new: bool = True, ours: Collection[Path] = ()) -> None:
        """Raise a FileExistsError if anything but an earlier run's own `ours` would be overwritten.

        Where an earlier run has begun (`new` is false) the list of bad items is its own, too.
        """
        others = [self.path, self.manifest, self.path.with_name(f"{self.path.name}.fdx")]
        if new:
            others.append(self.bad)
        if self.kind == "recordio":
            others.append(self.path.with_suffix(".idx"))
        if self.sharded:
            shards = f"{glob.escape(self.path.stem)}-[0-9]*{glob.escape(self.path.suffix)}"
            others += self.path.parent.glob(shards)
            others += self.path.parent.glob(f"{shards}.fdx")
        if self.manifest.exists() and (self.sharded or self.path.exists()):
            raise FileExistsError(  # one of the two is what comes last
                f"{self.path} has been packed already, and is whole: to do it again, remove it and "
                f"{self.manifest}, or choose another place"
            )
        for other in others:
            if os.path.lexists(other) and other not in ours:
                raise FileExistsError(
                    f"{other} is there already: remove it, or choose another place"
                )

    def check_apart(self, source: str) -> None:
        """Raise a ValueError if the result would become part of its own source."""
        if "://" in source or not Path(source).is_dir():
            return
        if Path(os.path.realpath(self.path)).is_relative_to(os.path.realpath(source)):
            raise ValueError(f"{self.path} lies inside {source}, which is packed: choose another")

    def has_begun(self) -> bool:
        """Whether there is a pack to go on with."""
        return self.journal.exists() and self.journal.stat().st_size > 0

    def check_writer(self) -> None:
        """Raise if such a store cannot be written, before hours of work are put into it."""
        self.empty_out()
        create_store(self.out / self.path.name, self.kind).abort()

    def empty_out(self) -> None:
        """Make the folder for the result anew: a kill may have left half a result there."""
        self._remove_out()
        self.out.mkdir()

    def _remove_out(self) -> None:
        if os.path.lexists(self.out):
            check_own(self.out, self.out.lstat())
            shutil.rmtree(self.out)

    def move(self, moves: Sequence[tuple[str, str]]) -> None:
        """Put the files at their places, as far as an earlier run has not."""
        for first, last in moves:
            made, final = self.partial / first, self.path.with_name(last)
            if os.path.lexists(made):
                check_own(made, made.lstat())
                if os.path.lexists(final) and final != self.bad:
                    raise FileExistsError(f"{final} has come to be there meanwhile: remove it")
                made.replace(final)
            elif not os.path.lexists(final):
                raise OSError(f"{final} is gone: begin again with --start-over")
        if not any(last == self.bad.name for _, last in moves):
            self.bad.unlink(missing_ok=True)  # of an attempt before something was mended
        flush_folder(self.path)

    def clear(self) -> None:
        """Remove an earlier pack that was not finished, also what it has put at its place already.

        If something else is there, or that pack is whole, nothing is removed that counts.
        """
        begun, state = self.has_begun(), State(self.packed())
        if begun:
            with closing(Journal(self.journal)) as journal, suppress(Refused):
                state.read(journal)  # what is not understood has put nothing at its place
        moves = state.moves or []
        placed = [
            self.path.with_name(last)
            for first, last in moves
            if not os.path.lexists(self.partial / first)
            and os.path.lexists(self.path.with_name(last))
        ]
        if moves and len(placed) == len(moves):
            self.remove()
            placed = []
        self.check_free(new=not begun, ours=placed)
        for path in reversed(placed):
            path.unlink()
        if state.packed.bad:
            self.bad.unlink(missing_ok=True)
        # The journal first: the rest is nothing without it.
        self.journal.unlink(missing_ok=True)
        self.remove_work()

    def remove(self) -> None:
        """Remove what was needed to resume; the journal last."""
        self.remove_work()
        self.journal.unlink(missing_ok=True)

    def remove_work(self) -> None:
        """Remove the spool, and what was being made of it."""
        with suppress(OSError):
            self._remove_out()
        for path in parts(self.partial):
            path.unlink()

    def remove_folder(self) -> None:
        """Remove the folder itself, as far as all in it is of a pack; the lock last."""
        self.remove_work()
        # Whoever waits may take the lock from here on: nothing but an empty folder may go after it.
        with suppress(OSError):
            for name in (self.journal.name, NAME):
                (self.partial / name).unlink(missing_ok=True)
            self.partial.rmdir()


def make(
    place: Place,
    journal: Journal,
    packed: Packed,
    about: dict[str, Any],
    classes: Sequence[str],
    notify: Notify,
) -> list[tuple[str, str]]:
    """Make every file of the result; return the renamings that are left.

    Each is from a path in the partial folder to a name beside the store.
    """
    place.empty_out()
    # The same for the same images in any kind of store, as sha256sum prints their lines.
    content = hashlib.sha256()
    items = _noted(items_of(journal), content, packed.items, notify)
    files, moves = (_shards if place.kind == "tar" else _store)(place, items, classes)
    if packed.bad:
        write_bad(place.out / place.bad.name, packed.bad)
        moves.insert(0, (f"{place.out.name}/{place.bad.name}", place.bad.name))
    text = _manifest(packed, about, classes, files, content.hexdigest())
    described = place.out / place.manifest.name
    described.write_text(text, encoding="utf-8", newline="\n")
    flush(described)
    flush_folder(described)
    # Whole is what has its last file: see above.
    moves.insert(len(moves) if place.sharded else 0, (f"out/{described.name}", described.name))
    return moves


def _noted(
    items: Iterator[Item], content: hashlib._Hash, total: int, notify: Notify
) -> Iterator[Item]:
    """Pass items on, and take them into the checksum."""
    for done, item in enumerate(items, start=1):
        content.update(f"{item.sha256}  {item.key}\n".encode())
        notify("writing", done, total)
        yield item


def _shards(place: Place, items: Iterator[Item], classes: Sequence[str]) -> _Result:
    """Make the indexes: the spool is the shards themselves."""
    files, moves = [], []
    for shard, some in groupby(items, key=lambda item: item.shard):
        path, name = part(place.partial, shard), place.shard(shard)
        whole = hashlib.sha256()
        count = sum(1 for _ in read_back(path, some, whole))
        index = index_tar(path, index=place.out / f"{name}.fdx", classes=classes)
        if len(index) != count:
            raise StoreError(f"{path} has {len(index)} items, not {count}: use --start-over")
        files.append(
            {
                "name": name,
                "items": count,
                "bytes": path.stat().st_size,
                "sha256": whole.hexdigest(),
            }
        )
        moves += [(f"out/{name}.fdx", f"{name}.fdx"), (path.name, name)]
    return files, moves


def _store(place: Place, items: Iterator[Item], classes: Sequence[str]) -> _Result:
    """Write a store of any kind but tar from the spool.

    Of a store that is a folder, the files are the index alone: items have their own checksum.
    """
    target = place.out / place.path.name
    with create_store(target, place.kind, classes=classes) as writer:
        for item, data in read_back(part(place.partial, 0), items, hashlib.sha256()):
            try:
                writer.add(item.key, data, item.target)
            except ValueError as error:  # such a store cannot hold its key, or its target
                raise StoreError(f"{item.key}: {error}") from error
    files = []
    made = [path for path in place.out.iterdir() if path.is_file()]
    for path in sorted([*made, *place.out.glob(f"*/{INDEX}")]):
        with path.open("rb") as file:
            found = checksum(file, hashlib.sha256())
        name = path.relative_to(place.out).as_posix()
        files.append({"name": name, "bytes": path.stat().st_size, "sha256": found})
    beside = sorted(path.name for path in place.out.iterdir() if path != target)
    return files, [(f"out/{name}", name) for name in [*beside, target.name]]


def _manifest(
    packed: Packed,
    about: dict[str, Any],
    classes: Sequence[str],
    files: Sequence[dict[str, Any]],
    content: str,
) -> str:
    values: dict[str, Any] = {
        "format": _FORMAT,
        "fastdecode": fastdecode.__version__,
        **about,
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
    return text_of(values, indent=1) + "\n"


def write_bad(path: Path, bad: Sequence[tuple[str, str]]) -> None:
    """Write the bad items as CSV, key and reason: see `csv_text`."""
    write_text(path, csv_text([("key", "reason"), *bad]), follow=False)
