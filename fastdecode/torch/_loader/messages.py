"""What worker processes send: pickles, with the bytes of files beside them.

Torch's queue pickles what it sends again, and each copy of a file costs a part of its decoding.
"""

from __future__ import annotations

import io
import itertools
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

_LARGE = 4096
"""Bytes of which one copy less is worth a place of their own."""


class Message(NamedTuple):
    """An object as torch's queue can always send it."""

    pickled: bytes
    apart: bytes
    """The files, one after the other: of one large object, pickle makes no copy."""
    sizes: list[int]


def pack(sent: Any) -> Message:
    """Pickle an object for another process; an error of pickling is raised here."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(sent)
    apart = pickler.apart
    return Message(file.getvalue(), b"".join(apart), [*map(len, apart)])


def unpack(message: Message) -> Any:
    """Return the object again."""
    ends = [*itertools.accumulate(message.sizes, initial=0)]
    files = [message.apart[begin:end] for begin, end in itertools.pairwise(ends)]
    return _Unpickler(message.pickled, files).load()


class _Pickler(ForkingPickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.apart: list[bytes] = []
        self._places: dict[int, int] = {}

    def persistent_id(self, found: Any) -> int | None:
        """Return the place of bytes that stay apart."""
        if type(found) is not bytes or len(found) < _LARGE:
            return None
        if id(found) not in self._places:  # what is in `apart` keeps its id
            self._places[id(found)] = len(self.apart)
            self.apart.append(found)
        return self._places[id(found)]


class _Unpickler(pickle.Unpickler):  # of what this package's own processes send
    def __init__(self, pickled: bytes, apart: list[bytes]) -> None:
        super().__init__(io.BytesIO(pickled))
        self._apart = apart

    def persistent_load(self, place: int) -> bytes:
        """Return the bytes that stayed apart."""
        return self._apart[place]
