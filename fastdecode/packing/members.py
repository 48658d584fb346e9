"""`Members`: the spool of a tar store is the shards themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fastdecode.stores.mapped import Mapped
from fastdecode.stores.tar_members import MappedSource, members
from fastdecode.stores.tar_names import Names
from fastdecode.stores.tar_writer import END, append_members

if TYPE_CHECKING:
    from fastdecode.types import Buffer

__all__ = ["Members"]


class Members:
    """Lays items out as members of a tar: see `fastdecode.packing.spool.Layout`."""

    end = END

    def __init__(self) -> None:
        self._names = Names()

    def begin(self, path: Path) -> None:
        """Learn which names are taken in a shard, from its headers alone."""
        self._names = Names()
        if path.stat().st_size:
            for member in members(MappedSource(Mapped(str(path))), ended=False):
                self._names.add(member)

    def append(self, file: BinaryIO, key: str, data: Buffer, target: Any) -> tuple[int, int]:
        """Write the picture's member, and its target's."""
        return append_members(file, key, data, target, self._names)
