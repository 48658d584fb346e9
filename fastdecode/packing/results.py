"""What came of a pack, and the records that it is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastdecode.errors import StoreError

__all__ = ["Bad", "BadItems", "Item", "Packed", "Refused"]


class Item(NamedTuple):
    """A picture in the spool.

    Attributes
    ----------
    key : str
    target : object
    shard : int
        From 0.
    offset, size : int
        Where its bytes are in that shard's file.
    sha256 : str
        Of its bytes, in hexadecimal.
    notes : sequence of str
        What was done: ``"shrunk"``, ``"reindexed"``; or could not be: ``"too large"``,
        ``"not reindexed"``.
    number : int
        In the source.
    stamp : list of int or None
        See `fastdecode.packing.source.stamp`.
    """

    key: str
    target: Any
    shard: int
    offset: int
    size: int
    sha256: str
    notes: Sequence[str]
    number: int
    stamp: list[int] | None


class Bad(NamedTuple):
    """An item that is left out.

    Attributes
    ----------
    number : int
        In the source.
    key, reason : str
    fixed : bool
        No other content of the item would be better: its key or target is what cannot be kept.
    """

    number: int
    key: str
    reason: str
    fixed: bool


@dataclass
class Packed:
    """What came of a pack.

    Attributes
    ----------
    location : str
        Of the store.
    kind : str
    items : int
        Pictures in it.
    bytes_in, bytes_out : int
        Of the encoded pictures that were read, and of those in the store.
    notes : Counter
        How many were ``"shrunk"`` and ``"reindexed"``; how many are ``"too large"`` because they
        hold what cannot be shrunk here, or ``"not reindexed"`` because the core refused them.
    bad : list of (key, reason)
        Items that do not decode, or cannot be read.
    resumed : int
        Items of the source that an earlier run had done.
    empty_classes : list of str
        Classes of the source of which no picture is left.
    manifest : str
        Path of the manifest.
    """

    location: str
    kind: str
    items: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    bad: list[tuple[str, str]] = field(default_factory=list)
    resumed: int = 0
    empty_classes: list[str] = field(default_factory=list)
    manifest: str = ""


class Refused(ValueError):
    """What is there is not a pack of this user's that can go on so."""


class BadItems(StoreError):
    """Some items of the source are bad, and were not to be left out: nothing has been made.

    Attributes
    ----------
    packed : Packed or None
        What was found.
    """

    packed: Packed | None = None
