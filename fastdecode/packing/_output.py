"""`OutputPaths`: the files that a pack makes, from the spool to their final paths.

Everything is made in ``.DST.partial/out`` (`make_result`). If the process is killed before a record
in the journal says that the result is complete, it is removed and made again. After that record,
files are only renamed, which can be repeated safely. The store itself comes last; for shards it is
the manifest, without which they do not count as a store. The manifest and the list of bad items
contain no time and no name of a machine, so the same pack makes the same bytes.
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
from fastdecode._files import sync_file, sync_folder, write_text
from fastdecode.errors import StoreError
from fastdecode.packing._journal import Journal, Packed, State, read_items
from fastdecode.packing._lock import NAME, CannotResume, check_own
from fastdecode.packing._spool import checksum, list_parts, part_path, read_back
from fastdecode.stores import create_store, kind_by_suffix
from fastdecode.stores._index import dump_json
from fastdecode.stores.folder import INDEX
from fastdecode.stores.tar import index_tar
from fastdecode.terminal import csv_text

if TYPE_CHECKING:
    from fastdecode.packing._journal import Item
    from fastdecode.packing._pack import Notify

_FORMAT = 1
_Result: TypeAlias = "tuple[list[dict[str, Any]], list[tuple[str, str]]]"


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
        self.out = self.partial / "out"
        self.journal = self.partial / "journal"

    def packed(self) -> Packed:
        """Return the `Packed` of a pack to this place before anything is done."""
        return Packed(str(self.path), self.kind, manifest=str(self.manifest))

    def shard(self, number: int) -> str:
        if not self.sharded:
            return self.path.name
        return f"{self.path.stem}-{number:05d}{self.path.suffix}"

    def shards(self, moves: Sequence[tuple[str, str]]) -> list[str]:
        """Return the paths of the shards among the renamings: all others start in ``out``."""
        return [
            str(self.path.with_name(last))
            for first, last in moves
            if not first.startswith(f"{self.out.name}/")
        ]

    def check_free(self, *, new: bool = True, ours: Collection[Path] = ()) -> None:
        """Raise a FileExistsError if a file would be overwritten that is not one of `ours`.

        If an earlier run has begun (`new` is false), it may have made the list of bad items.
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
            raise FileExistsError(  # one of the two is renamed last
                f"{self.path} has been packed already, and is complete: to do it again, remove it "
                f"and {self.manifest}, or choose another place"
            )
        for other in others:
            if os.path.lexists(other) and other not in ours:
                raise FileExistsError(
                    f"{other} is there already: remove it, or choose another place"
                )

    def check_not_in_source(self, source: str) -> None:
        """Raise a ValueError if the result would be part of its own source."""
        if "://" in source or not Path(source).is_dir():
            return
        if Path(os.path.realpath(self.path)).is_relative_to(os.path.realpath(source)):
            raise ValueError(f"{self.path} lies inside {source}, which is packed: choose another")

    def has_begun(self) -> bool:
        """Return whether there is a pack to resume."""
        return self.journal.exists() and self.journal.stat().st_size > 0

    def check_writer(self) -> None:
        """Raise if this kind of store cannot be written, before hours of work go into it."""
        self.empty_out()
        create_store(self.out / self.path.name, self.kind).abort()

    def empty_out(self) -> None:
        """Create an empty folder for the result: a killed run may have left half a result in it."""
        self._remove_out()
        self.out.mkdir()

    def _remove_out(self) -> None:
        if os.path.lexists(self.out):
            check_own(self.out, self.out.lstat())
            shutil.rmtree(self.out)

    def move(self, moves: Sequence[tuple[str, str]]) -> None:
        """Rename the files to their final paths, unless an earlier run has done so."""
        for first, last in moves:
            made, final = self.partial / first, self.path.with_name(last)
            if os.path.lexists(made):
                check_own(made, made.lstat())
                if os.path.lexists(final) and final != self.bad:
                    raise FileExistsError(f"{final} was created meanwhile: remove it")
                made.replace(final)
            elif not os.path.lexists(final):
                raise OSError(f"{final} is gone: begin again with --start-over")
        if not any(last == self.bad.name for _, last in moves):
            self.bad.unlink(missing_ok=True)  # from before the bad items were repaired
        sync_folder(self.path)

    def clear(self) -> None:
        """Remove an unfinished earlier pack, including files that it has renamed already.

        If that pack is complete, or if another file is in the way, it raises a FileExistsError and
        leaves these files.
        """
        begun, state = self.has_begun(), State(self.packed())
        if begun:
            with closing(Journal(self.journal)) as journal, suppress(CannotResume):
                state.read(journal)  # a journal that is refused has renamed nothing
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
        # The journal first, because without it the rest does not count.
        self.journal.unlink(missing_ok=True)
        self.remove_work()

    def remove(self) -> None:
        """Remove all that was needed to resume; the journal last."""
        self.remove_work()
        self.journal.unlink(missing_ok=True)

    def remove_work(self) -> None:
        """Remove the spool, and the unfinished result."""
        with suppress(OSError):
            self._remove_out()
        for path in list_parts(self.partial):
            path.unlink()

    def remove_folder(self) -> None:
        """Remove the folder itself, unless it holds files of others; the lock file goes last."""
        self.remove_work()
        # Once the lock file is gone, another process may lock: then only an empty folder may go.
        with suppress(OSError):
            for name in (self.journal.name, NAME):
                (self.partial / name).unlink(missing_ok=True)
            self.partial.rmdir()


def make_result(
    place: OutputPaths,
    journal: Journal,
    packed: Packed,
    about: dict[str, Any],
    classes: Sequence[str],
    notify: Notify,
) -> list[tuple[str, str]]:
    """Make every file of the result; return the renamings that remain.

    Each renaming is from a path in the partial folder to a name in the folder of the store.
    """
    place.empty_out()
    # Lines as sha256sum prints them, so it is the same for the same images in any kind of store.
    content = hashlib.sha256()
    items = _with_checksum(read_items(journal), content, packed.items, notify)
    files, moves = (_shards if place.kind == "tar" else _store)(place, items, classes)
    if packed.bad:
        write_bad(place.out / place.bad.name, packed.bad)
        moves.insert(0, (f"{place.out.name}/{place.bad.name}", place.bad.name))
    text = _manifest(packed, about, classes, files, content.hexdigest())
    described = place.out / place.manifest.name
    described.write_text(text, encoding="utf-8", newline="\n")
    sync_file(described)
    sync_folder(described)
    # The store is complete once its last file is renamed: see the docstring of the module.
    moves.insert(len(moves) if place.sharded else 0, (f"out/{described.name}", described.name))
    return moves


def _with_checksum(
    items: Iterator[Item], content: hashlib._Hash, total: int, notify: Notify
) -> Iterator[Item]:
    """Yield items, and add them to the checksum."""
    for done, item in enumerate(items, start=1):
        content.update(f"{item.sha256}  {item.key}\n".encode())
        notify("writing", done, total)
        yield item


def _shards(place: OutputPaths, items: Iterator[Item], classes: Sequence[str]) -> _Result:
    """Make the indexes of the shards, which are the spool itself."""
    files, moves = [], []
    for shard, some in groupby(items, key=lambda item: item.shard):
        path, name = part_path(place.partial, shard), place.shard(shard)
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


def _store(place: OutputPaths, items: Iterator[Item], classes: Sequence[str]) -> _Result:
    """Write a store of any kind but tar from the spool.

    For a folder, only the index is listed as a file, because each item has its own checksum.
    """
    target = place.out / place.path.name
    with create_store(target, place.kind, classes=classes) as writer:
        for item, data in read_back(part_path(place.partial, 0), items, hashlib.sha256()):
            try:
                writer.add(item.key, data, item.target)
            except ValueError as error:  # this kind of store cannot hold the key or the target
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
    return dump_json(values, indent=1) + "\n"


def write_bad(path: Path, bad: Sequence[tuple[str, str]]) -> None:
    """Write the bad items as CSV with key and reason; see `csv_text`."""
    write_text(path, csv_text([("key", "reason"), *bad]), follow=False)
