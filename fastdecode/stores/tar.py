"""Tar shards as WebDataset names them: one, or several as one store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from fastdecode.stores.base import Store
from fastdecode.stores.mapped import is_uri, local_path
from fastdecode.stores.shard_list import Manifest, manifest_of, shard_locations
from fastdecode.stores.shards import AT_ONCE, Concatenated, Part
from fastdecode.stores.tar_index import SUFFIX, index_tar, summary
from fastdecode.stores.tar_samples import Choice, choice
from fastdecode.stores.tar_store import TarStore, index_of
from fastdecode.stores.tar_writer import END, TarWriter, append_members

__all__ = ["END", "TarStore", "TarWriter", "append_members", "index_tar", "open_tar"]


def open_tar(
    location: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    index: str | os.PathLike[str] | None = None,
    image: str | Sequence[str] | None = None,
    target: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Store:
    """Open one shard, or several as one store.

    Parameters
    ----------
    location : path, URI or sequence of them
        See `fastdecode.stores.shard_list.shard_locations`.
    index : path or URI, optional
        For one shard its index, for several the folder of their indexes, ``SHARD.tar.fdx``; by
        default they are beside the shards.
    image, target, storage_options : optional
        See `TarStore`.

    Returns
    -------
    Store

    Raises
    ------
    OSError
        If a shard is not there, or cannot be read.
    StoreError
        If a shard, an index or a manifest is damaged, or they do not belong together.
    ValueError
        If the shards have different classes.

    Notes
    -----
    Where shards have indexes, only the beginning of each is read: hundreds open at once. Those
    without are gone through, all headers of them.
    """
    shards = shard_locations(location, storage_options)
    options: dict[str, Any] = {
        "image": image,
        "target": target,
        "storage_options": storage_options,
    }
    if isinstance(location, (str, os.PathLike)):
        name = os.fspath(location)
        if shards == [name]:
            return TarStore(name, index=index, **options)
        manifest = manifest_of(name, storage_options)
    else:
        more = f" and {len(shards) - 1} more" if len(shards) > 1 else ""
        name, manifest = shards[0] + more, None
    folder = None if index is None else os.fspath(index).rstrip("/")

    def part(number: int) -> Part | Store:
        shard = shards[number]
        beside = None if folder is None else f"{folder}/{shard.rpartition('/')[2]}{SUFFIX}"
        again = partial(TarStore, shard, index=beside, **options)
        return _part(shard, beside, again, options, _told(manifest, number))

    if any(map(is_uri, shards)):  # each is a request or two
        with ThreadPoolExecutor(AT_ONCE) as threads:
            parts = list(threads.map(part, range(len(shards))))
    else:
        parts = [part(number) for number in range(len(shards))]
    return Concatenated(name, parts, "tar", unique=None if manifest is None else True)


def _part(
    shard: str,
    beside: str | None,
    again: partial[TarStore],
    options: Mapping[str, Any],
    told: tuple[int, Sequence[str]] | None,
) -> Part | Store:
    """Return a shard that is opened when it is needed, if it can be known beforehand how long."""
    wanted = choice(options["image"], options["target"])
    if told is not None and wanted == Choice():
        return Part(shard, *told, again)
    found = index_of(shard, beside, wanted, options["storage_options"])
    if found is None:
        return again()  # which goes through it
    if not is_uri(shard) and not Path(local_path(shard)).exists():
        raise FileNotFoundError(f"{shard}: this shard is missing")
    first = summary(found, options["storage_options"])
    if is_uri(shard):  # nobody need look again whether it is there
        again = partial(TarStore, shard, index=found, **options)
    return Part(shard, first.items, first.classes, again)


def _told(manifest: Manifest | None, number: int) -> tuple[int, Sequence[str]] | None:
    """Return what a manifest says of a shard."""
    if manifest is None or manifest.items is None:
        return None
    return manifest.items[number], manifest.classes
