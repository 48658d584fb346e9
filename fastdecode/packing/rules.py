"""`Rules`: what a kind of store can hold, asked of each item before it goes to the spool."""

from __future__ import annotations

from typing import Any

from fastdecode.stores.folder import INDEX
from fastdecode.stores.keys import Keys
from fastdecode.stores.recordio_writer import labels_of

__all__ = ["Rules"]


class Rules:
    """The rules for the items of one store, with the keys that are in it so far.

    Parameters
    ----------
    kind : str
    """

    def __init__(self, kind: str) -> None:
        self._records = kind == "recordio"
        self._keys = Keys(files=kind == "folder", reserved=INDEX)

    def check(self, key: str, target: Any) -> None:
        """Make sure that the store can hold a further item.

        Raises
        ------
        ValueError
            If it cannot.
        """
        self._keys.check(key)
        if self._records:
            labels_of(target)

    def add(self, key: str) -> None:
        """Take note of an item that is in the spool."""
        self._keys.add(key)
