"""What worker processes send: pickles, with the bytes of files and small tensors beside them.

Torch's queue pickles what it sends again, and each copy of a file costs a part of its decoding. For
each tensor it opens a file in shared memory, which costs more than a copy of a small one.
"""

from __future__ import annotations

import ctypes
import io
import itertools
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import torch

_LARGE = 4096
"""Bytes of which one copy less is worth a place of their own."""
_SMALL = 2**16
"""Bytes of which a copy is worth less than a file in shared memory."""


class Message(NamedTuple):
    """An object as torch's queue can always send it."""

    pickled: bytes
    apart: bytes
    """The parts, one after the other: of one large object, pickle makes no copy."""
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
    parts = [message.apart[begin:end] for begin, end in itertools.pairwise(ends)]
    return _Unpickler(message.pickled, parts).load()


class _Pickler(ForkingPickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.apart: list[bytes] = []
        self._places: dict[Any, int] = {}
        self._storages: list[torch.UntypedStorage] = []

    def persistent_id(self, found: Any) -> int | None:
        """Return the place of what stays apart: of bytes, or ``~place`` of a tensor's memory."""
        if type(found) is bytes and len(found) >= _LARGE:
            if id(found) not in self._places:  # what is in `apart` keeps its id
                self._place(id(found), found)
            return self._places[id(found)]
        if type(found) is not torch.UntypedStorage or found.device.type != "cpu":
            return None
        size = found.nbytes()
        if not 0 < size <= _SMALL:
            return None
        memory = found.data_ptr(), size
        if memory not in self._places:
            self._storages.append(found)  # which keeps its address
            self._place(memory, ctypes.string_at(*memory))
        return ~self._places[memory]

    def _place(self, key: Any, part: bytes) -> None:
        self._places[key] = len(self.apart)
        self.apart.append(part)


class _Unpickler(pickle.Unpickler):  # of what this package's own processes send
    def __init__(self, pickled: bytes, parts: list[bytes]) -> None:
        super().__init__(io.BytesIO(pickled))
        self._parts = parts
        self._storages: dict[int, torch.UntypedStorage] = {}

    def persistent_load(self, place: int) -> Any:
        """Return what stayed apart."""
        if place >= 0:
            return self._parts[place]
        if place not in self._storages:
            data = self._parts[~place]
            storage = self._storages[place] = torch.UntypedStorage(len(data), device="cpu")
            ctypes.memmove(storage.data_ptr(), data, len(data))
        return self._storages[place]
