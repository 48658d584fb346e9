"""From the spool to the store: made aside, then moved to its place.

Everything is made in ``.DST.partial/out``; until a record in the journal says that it is complete,
a kill means that it is removed and made again. After that record files are only renamed: the store
itself last, or for shards the manifest, without which they are none. To do that again does no harm.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fastdecode.errors import StoreError
from fastdecode.packing import manifest
from fastdecode.packing.checksums import Content, Spooled, file_entries
from fastdecode.packing.lock import NAME, check_own
from fastdecode.packing.spool import part, parts
from fastdecode.packing.state import items_of
from fastdecode.stores import create_store
from fastdecode.stores.file_writer import flush, flush_folder
from fastdecode.stores.tar_index import index_tar

if TYPE_CHECKING:
    from fastdecode.packing.journal import Journal
    from fastdecode.packing.place import Place
    from fastdecode.packing.progress import Notify
    from fastdecode.packing.results import Item, Packed

__all__ = [
    "check_writer",
    "has_begun",
    "journal_path",
    "make",
    "move",
    "placed",
    "remove",
    "remove_folder",
    "remove_work",
]

_Result: TypeAlias = "tuple[list[dict[str, Any]], list[tuple[str, str]]]"


def journal_path(place: Place) -> Path:
    """Return where the journal is."""
    return place.partial / "journal"


def has_begun(place: Place) -> bool:
    """Whether there is a pack to go on with."""
    path = journal_path(place)
    return path.exists() and path.stat().st_size > 0


def check_writer(place: Place) -> None:
    """Make sure that such a store can be written here, before hours of work are put into it.

    Raises
    ------
    ImportError, ValueError
        If its library is missing, or nothing writes that kind.
    """
    _empty_out(place)
    create_store(place.out / place.path.name, place.kind).abort()


def _empty_out(place: Place) -> None:
    """Begin anew with what is made: a kill may have left the half of it."""
    _remove_out(place)
    place.out.mkdir()


def make(
    place: Place,
    journal: Journal,
    packed: Packed,
    about: dict[str, Any],
    classes: Sequence[str],
    notify: Notify,
) -> list[tuple[str, str]]:
    """Make every file of the result.

    Parameters
    ----------
    place : Place
    journal : Journal
    packed : Packed
    about : dict
        What else the manifest is to say.
    classes : sequence of str
    notify : callable

    Returns
    -------
    list of (str, str)
        The renaming that is left: from a path in the partial folder, to a name beside the store.

    Raises
    ------
    OSError
        If something cannot be written, or the spool cannot be read as it was written.
    StoreError
        If the kind of store cannot hold an item.
    """
    _empty_out(place)
    content = Content()
    items = _noted(items_of(journal), content, packed.items, notify)
    files, moves = (_shards if place.kind == "tar" else _store)(place, items, classes)
    if packed.bad:
        manifest.write_bad(place.out / place.bad.name, packed.bad)
        moves.insert(0, (f"{place.out.name}/{place.bad.name}", place.bad.name))
    text = manifest.text(packed, about, classes, files, content.hexdigest())
    described = place.out / place.manifest.name
    described.write_text(text, encoding="utf-8", newline="\n")
    flush(described)
    flush_folder(described)
    # Whole is what has its last file: see above.
    moves.insert(len(moves) if place.sharded else 0, (f"out/{described.name}", described.name))
    return moves


def _noted(items: Iterator[Item], content: Content, total: int, notify: Notify) -> Iterator[Item]:
    """Pass items on, and take them into the checksum."""
    for done, item in enumerate(items, start=1):
        content.add(item)
        notify("writing", done, total)
        yield item


def _shards(place: Place, items: Iterator[Item], classes: Sequence[str]) -> _Result:
    """Make the indexes: the spool is the shards themselves."""
    files, moves = [], []
    for shard, some in groupby(items, key=lambda item: item.shard):
        path, name = part(place.partial, shard), place.shard(shard)
        spooled = Spooled(path)
        count = sum(1 for _ in spooled.items(some))
        index = index_tar(path, index=place.out / f"{name}.fdx", classes=classes)
        if len(index) != count:
            raise StoreError(f"{path} has {len(index)} items, not {count}: use --restart")
        files.append(
            {"name": name, "items": count, "bytes": spooled.size, "sha256": spooled.hexdigest()}
        )
        moves += [(f"out/{name}.fdx", f"{name}.fdx"), (path.name, name)]
    return files, moves


def _store(place: Place, items: Iterator[Item], classes: Sequence[str]) -> _Result:
    """Write the store from the spool."""
    target = place.out / place.path.name
    with create_store(target, place.kind, classes=classes) as writer:
        for shard, some in groupby(items, key=lambda item: item.shard):
            for item, data in Spooled(part(place.partial, shard)).items(some):
                try:
                    writer.add(item.key, data, item.target)
                except ValueError as error:  # such a store cannot hold its key, or its target
                    raise StoreError(f"{item.key}: {error}") from error
    beside = sorted(path.name for path in place.out.iterdir() if path != target)
    moves = [(f"out/{name}", name) for name in [*beside, target.name]]
    return file_entries(place.out), moves


def move(place: Place, moves: Sequence[tuple[str, str]]) -> None:
    """Put the files at their places, as far as an earlier run has not.

    Raises
    ------
    FileExistsError
        If something has come to be at one of them meanwhile.
    OSError
        If one of them is gone.
    """
    for first, last in moves:
        made, final = place.partial / first, place.path.with_name(last)
        if os.path.lexists(made):
            check_own(made, made.lstat())
            if os.path.lexists(final) and final != place.bad:
                raise FileExistsError(f"{final} has come to be there meanwhile: remove it")
            made.replace(final)
        elif not os.path.lexists(final):
            raise OSError(f"{final} is gone: begin again with --restart")
    if not any(last == place.bad.name for _, last in moves):
        place.bad.unlink(missing_ok=True)  # of an attempt before something was mended
    flush_folder(place.path)


def placed(place: Place, moves: Sequence[tuple[str, str]]) -> list[Path]:
    """List what is at its place already."""
    return [
        place.path.with_name(last)
        for first, last in moves
        if not os.path.lexists(place.partial / first)
        and os.path.lexists(place.path.with_name(last))
    ]


def remove(place: Place) -> None:
    """Remove what was needed to go on; the journal last."""
    remove_work(place)
    journal_path(place).unlink(missing_ok=True)


def remove_work(place: Place) -> None:
    """Remove the spool, and what was being made of it."""
    with suppress(OSError):
        _remove_out(place)
    for path in parts(place.partial):
        path.unlink()


def _remove_out(place: Place) -> None:
    """Remove what was being made."""
    if os.path.lexists(place.out):
        check_own(place.out, place.out.lstat())
        shutil.rmtree(place.out)


def remove_folder(place: Place) -> None:
    """Remove the folder itself, as far as all in it is of a pack; the lock last."""
    remove_work(place)
    # Whoever waits may take the lock from here on: nothing but an empty folder may go after it.
    with suppress(OSError):
        for name in (journal_path(place).name, NAME):
            (place.partial / name).unlink(missing_ok=True)
        place.partial.rmdir()
