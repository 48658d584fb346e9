"""`Work`: what is done with one item, in any thread: read, make sure that it decodes, rewrite."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fastdecode.api import probe
from fastdecode.errors import FastDecodeError
from fastdecode.native import reindex
from fastdecode.outages import ITEM_ERRORS, is_the_items
from fastdecode.packing.shrink import can_shrink, shrink
from fastdecode.packing.source import stamp
from fastdecode.packing.verify import reason, verify

if TYPE_CHECKING:
    from fastdecode.packing.names import Names
    from fastdecode.packing.options import Options
    from fastdecode.stores import Store
    from fastdecode.types import Buffer

__all__ = ["Outcome", "Work"]


class Outcome(NamedTuple):
    """What became of an item.

    Attributes
    ----------
    key : str
    target : object
    data : bytes-like
        The encoded picture; empty if it is bad.
    sha256 : str
    notes : tuple of str
        See `Item`.
    bytes_in : int
    bad : str
        Why; empty if it is good.
    stamp : list of int or None
        See `fastdecode.packing.source.stamp`; from before it was read.
    """

    key: str
    target: Any = None
    data: Buffer = b""
    sha256: str = ""
    notes: tuple[str, ...] = ()
    bytes_in: int = 0
    bad: str = ""
    stamp: list[int] | None = None


@dataclass(frozen=True)
class Work:
    """What is to be done with the items of a store.

    Attributes
    ----------
    store : Store
    options : Options
    names : Names
    """

    store: Store
    options: Options
    names: Names

    def __call__(self, index: int) -> Outcome:
        """Do it.

        Raises
        ------
        OSError, StoreError
            If the store cannot be reached, or is damaged as a whole: what a network or a disk
            refuses now, it may give later.
        """
        key = self.store.key(index)
        stamped = stamp(self.store, index)
        try:
            given = self.store.read(index)
        except ITEM_ERRORS as error:
            if is_the_items(error):
                return Outcome(key, bad=reason(error))
            if not isinstance(error, OSError):
                raise
            where = f"{self.store.location}, item {index} ({key})"
            raise OSError(f"{where}: {reason(error)}") from error
        try:
            target = self.store.target(index)
            key, data, notes = self._rewritten(key, given)
        except (FastDecodeError, ValueError) as error:
            if isinstance(error, FastDecodeError) and not is_the_items(error):
                raise
            return Outcome(key, bytes_in=len(given), bad=reason(error))
        digest = hashlib.sha256(data).hexdigest()
        return Outcome(key, target, data, digest, notes, len(given), stamp=stamped)

    def _rewritten(self, key: str, given: Buffer) -> tuple[str, Buffer, tuple[str, ...]]:
        """Return the key, the bytes and what was done, of an item that decodes."""
        header = probe(given)
        most = self.options.max_side
        large = most is not None and max(header.width, header.height) > most
        data, notes, format = given, [], header.format
        if most is not None and large and can_shrink(header):
            data, suffix = shrink(given, header, most, self.options.quality)
            key = self.names.renamed(key, suffix)
            notes, format = ["shrunk"], "jpeg" if suffix == ".jpg" else "png"
        else:
            verify(given, header)
            notes = ["too large"] if large else []
        if self.options.reindex and format == "jpeg":
            try:
                data = reindex(data)
                notes.append("reindexed")
            except FastDecodeError:  # of a kind that the core leaves alone: it decodes, and stays
                notes.append("not reindexed")
        return key, data, tuple(notes)
