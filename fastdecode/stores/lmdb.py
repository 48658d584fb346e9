"""Pictures in LMDB: a B+tree in one file that is mapped, so that items are read without copies.

The store that `LmdbWriter` makes has the keys ``b"00000000"``, ``b"00000001"`` and so on in the
main database, each with the encoded picture as it is, and the index (see `fastdecode.stores.index`)
as the value of ``b"__fastdecode__"``.
"""

from __future__ import annotations

from array import array
from functools import partial
from typing import Any

from fastdecode.errors import StoreError
from fastdecode.stores.base import Store
from fastdecode.stores.fingerprint import fingerprint
from fastdecode.stores.index import Index
from fastdecode.stores.lmdb_environment import Environment, environment
from fastdecode.stores.lmdb_writer import INDEX, LmdbWriter, item_key
from fastdecode.stores.mapped import is_uri, local_path
from fastdecode.types import Buffer

__all__ = ["LmdbStore", "LmdbWriter"]


class LmdbStore(Store):
    """An LMDB file, or a folder with ``data.mdb``, as a store.

    It is opened read-only and without LMDB's lock file, so that a read-only file system will do;
    nobody may write to it meanwhile. All stores of one file share one environment in a process.
    Pictures of more than about 2 KB are not copied.

    An LMDB that somebody else has made is read, too, such as LSUN's: its values in the order of
    their keys, without targets. They must be encoded pictures. Keys that begin and end with two
    underscores (``__len__``, ``__keys__``) are left out.

    Parameters
    ----------
    location : str
        Local path.

    Raises
    ------
    OSError
        If it is not there, or cannot be read.
    StoreError
        If it is damaged, cut short, or open elsewhere in this process.
    ValueError
        If it is a URI.

    Notes
    -----
    The size and some bytes of each picture are compared with what the index says, so that damage in
    LMDB's tree never gives another item's bytes; a foreign LMDB has no such net. LMDB trusts its
    file: in rare cases damage in the tree can still kill the process, as in all that reads LMDB.
    """

    kind = "lmdb"

    def __init__(self, location: str) -> None:
        if is_uri(location):
            raise ValueError(f"{location}: LMDB can only be mapped; copy it to a local disk first")
        super().__init__(location)
        self._load()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["_contents"], state["classes"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._load()

    def __len__(self) -> int:
        return len(self._contents)

    def key(self, index: int) -> str:
        """Return an item's key; of a foreign LMDB that of its database."""
        self._check(index)
        return self._contents.key(index)

    def target(self, index: int) -> Any:
        """Return an item's target; None in a foreign LMDB."""
        self._check(index)
        return self._contents.target(index) if isinstance(self._contents, Index) else None

    def _load(self) -> None:
        opened = environment(local_path(self.location))
        if not self._closed:
            opened = self._handle()
        found = opened.get(INDEX)
        self._contents: Index | _Keys
        if found is None:
            self._contents = _Keys(opened)
            self.classes = ()
        else:
            file = opened.file
            guard = partial(file.read, file.size, 0)
            self._contents = Index(found, self.location, ("size", "fingerprint"), guard)
            self.classes = self._contents.classes

    def _open(self) -> Environment:
        return environment(local_path(self.location))

    def _read(self, opened: Environment, index: int) -> Buffer:
        contents = self._contents
        key = item_key(index) if isinstance(contents, Index) else contents[index]
        try:
            data = opened.get(key)
        except StoreError as error:
            raise self._damaged(index, str(error)) from error
        if data is None:
            raise self._damaged(index, "it is missing; make the store anew")
        if isinstance(contents, Index):
            known = int(contents["size"][index]), int(contents["fingerprint"][index])
            if known != (len(data), fingerprint(data)):
                raise self._damaged(index, "its bytes are not those that were written")
        elif _is_pickle(data):
            raise self._damaged(
                index,
                "it is a pickled object, not an encoded picture: unpickle it by the code that made "
                "it, and write the pictures with create_store",
            )
        return data


class _Keys:
    """The keys of a foreign LMDB, packed."""

    def __init__(self, opened: Environment) -> None:
        self._text = bytearray()
        self._ends = array("Q", [0])
        most = len(opened)
        for key in opened.keys():  # noqa: SIM118 - an environment is no mapping
            if key.startswith(b"__") and key.endswith(b"__"):
                continue
            self._text += key
            self._ends.append(len(self._text))
            if len(self) > most:  # a damaged tree may lead round in circles
                raise StoreError(f"{opened.path}: the file is damaged; it has too many items")

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._text[self._ends[index] : self._ends[index + 1]])

    def key(self, index: int) -> str:
        return self[index].decode("utf-8", "backslashreplace")


def _is_pickle(data: Buffer) -> bool:
    """Whether it begins as pickles of protocol 2 and later do: no picture begins so."""
    return len(data) > 1 and data[0] == 0x80 and 2 <= data[1] <= 5
