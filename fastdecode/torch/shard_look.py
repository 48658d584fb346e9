"""What is found out about shards before they are read: the same in every process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

from fastdecode.errors import StoreError
from fastdecode.stores._mmap import is_uri, local_path
from fastdecode.stores.concat import agreed
from fastdecode.stores.tar import stream_tar
from fastdecode.stores.tar.store import SUFFIX, summary

__all__ = ["agreed_classes", "have_targets"]

_SHARDS = 8
_SAMPLES = 64


def have_targets(shards: Sequence[str], reading: Mapping[str, Any]) -> bool:
    """Whether one of the first samples of the first shards has a target.

    Parameters
    ----------
    shards : sequence of str
        As they are listed, not as an epoch has them: all ranks and workers find the same.
    reading : mapping
        Options of `stream_tar`.

    Returns
    -------
    bool
        True, too, if that cannot be read: whoever goes on reading is told why.
    """
    empty = True
    for shard in shards[:_SHARDS]:
        try:
            with closing(stream_tar(shard, **reading)) as samples:
                for sample in islice(samples, _SAMPLES):
                    empty = False
                    if sample.target is not None:
                        return True
        except (OSError, StoreError):
            return True
    return empty


def agreed_classes(shards: Sequence[str]) -> list[str]:
    """Return the classes that the indexes beside local shards name.

    Raises
    ------
    ValueError
        If they name different ones: the same target would mean one thing here and another there.
    """
    known = []
    for shard in shards:
        if is_uri(shard):
            continue
        try:
            found = summary(local_path(shard) + SUFFIX)
        except (FileNotFoundError, StoreError):
            continue  # a stream needs none
        if found.items:
            known.append((shard, found.classes))
    return list(agreed(f"{shards[0]} and on", known)) if known else []
