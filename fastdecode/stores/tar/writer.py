"""Writing tar shards: the same images always give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from fastdecode.stores._items import dump_target, plain_target
from fastdecode.stores.base import Writer
from fastdecode.stores.tar.format import END, make_header, padded
from fastdecode.stores.tar.names import Names
from fastdecode.stores.tar.store import SUFFIX, index_tar

if TYPE_CHECKING:
    from fastdecode.types import Buffer

__all__ = ["END", "TarWriter", "append_members"]


class TarWriter(Writer):
    """Writes a tar shard that WebDataset can read, and its index.

    Parameters
    ----------
    location : str
        Path of the shard, ``train.tar``; its index is ``train.tar.fdx``.
    classes : sequence of str
        Names of the classes, which the index holds.

    Notes
    -----
    An image is the member ``KEY``. Its target is a member with the same stem: ``.cls`` for an
    integer, ``.txt`` for a text, ``.json`` for anything else. Keys that WebDataset would split
    elsewhere or mix up are escaped, see `fastdecode.stores.tar.names`; `TarStore` returns the
    original keys.
    """

    kind = "tar"

    def __init__(self, location: str, classes: Sequence[str] = ()) -> None:
        super().__init__(location, classes)
        self._keys = None
        self._names = Names()
        self._file = self._partial.open("xb")

    def _append(self, key: str, data: memoryview, target: Any) -> None:
        append_members(self._file, key, data, target, self._names)

    def _finish(self) -> None:
        self._file.write(END)
        super()._finish()

    def _release(self) -> None:
        self._file.close()

    def _publish(self) -> None:
        # The index first: an index without a shard does no harm, a shard with an old index would.
        index = self._final.with_name(self._final.name + SUFFIX)
        index_tar(self._partial, index=index, classes=self.classes)
        super()._publish()


def append_members(file: BinaryIO, key: str, data: Buffer, target: Any, names: Names) -> None:
    """Append an image and its target to a tar.

    The file position must be a multiple of 512 bytes. The caller writes the end (`END`). After a
    ValueError about the key or the target, nothing has been written.
    """
    beside = _target_member(target)
    view = memoryview(data).cast("B")
    stem, extension, owner = names.take(key, view)
    added: list[tuple[str, Buffer]] = [(extension, view), *([] if beside is None else [beside])]
    for suffix, content in added:
        file.write(make_header(f"{stem}.{suffix}".encode(), len(content), owner))
        file.write(content)
        file.write(bytes(padded(len(content)) - len(content)))


def _target_member(target: Any) -> tuple[str, bytes] | None:
    """Return the extension and the bytes of a target's member; None if there is no target."""
    target = plain_target(target)
    if target is None:
        return None
    if type(target) is int:
        return "cls", b"%d" % target
    if isinstance(target, str):
        return "txt", target.encode()
    return "json", dump_target(target)
