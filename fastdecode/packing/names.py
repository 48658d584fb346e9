"""`Names`: what an item is called once its format has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

__all__ = ["Names"]

_SAME = {".jpg": (".jpg", ".jpeg", ".jpe", ".jfif"), ".png": (".png",)}
"""How names of one format end, in lower case."""


class Names:
    """Gives names with another suffix, no two of them the same.

    Parameters
    ----------
    keys : iterable of str
        Of all items of the source. They are remembered as numbers of 8 bytes.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        numbers = (number for key in keys for number in _numbers(key))
        found = np.sort(np.fromiter(numbers, np.uint64))
        self._several = frozenset(found[1:][found[1:] == found[:-1]].tolist())

    def renamed(self, key: str, suffix: str) -> str:
        """Return a key that ends as its format's names do.

        Parameters
        ----------
        key : str
        suffix : {".jpg", ".png"}

        Raises
        ------
        ValueError
            If the source has such a key already.
        """
        stem, own = _split(key)
        if own.lower() in _SAME[suffix]:
            return key
        if _number(stem) not in self._several:
            return stem + suffix
        # "a.png" and "a.bmp" cannot both be "a.jpg".
        if _number(key) in self._several:
            raise ValueError(f"there is no free name for it as {suffix}")
        return key + suffix


def _numbers(key: str) -> set[int]:
    """Stand for a key, and for what comes before its suffix."""
    return {_number(key), _number(_split(key)[0])}


def _split(key: str) -> tuple[str, str]:
    """Split a key before its suffix: as `PurePosixPath.suffix` does, but without making a path."""
    folder, slash, name = key.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    return (folder + slash + stem, dot + suffix) if stem and suffix else (key, "")


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(_bytes(text), digest_size=8).digest(), "little")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # a name on a disk may be no UTF-8
