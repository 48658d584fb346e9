"""What a task does with its share: read, decode, and hand on tables as they are done."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import ray

from fastdecode.errors import FastDecodeError
from fastdecode.outages import ITEM_ERRORS
from fastdecode.ray.errors import is_the_pictures
from fastdecode.ray.rows import Portion, portions, rows_at_once
from fastdecode.ray.tables import image_column, label_column, nothing

if TYPE_CHECKING:
    from fastdecode.ray.options import Options
    from fastdecode.stores.base import Store

__all__ = ["Decode", "Read"]

_opened: dict[str, Store] = {}
"""The store that this process has read last, by the reference to its description."""


class _Item(NamedTuple):
    """An item of a store, as it was read."""

    number: int
    source: Any
    path: str
    label: Any


class Read:
    """Reads and decodes items of a store.

    Parameters
    ----------
    store : ObjectRef
        Of a pickled store: it is sent to each node once, and opened once in each process.
    options : Options
    columns : sequence of {"label", "path"}
        Which to have beside the image.
    labels : pyarrow.DataType or None
        See `label_type`.
    threads : int
        How many read, while the pictures before are decoded; 0 reads when it is time.
    """

    def __init__(
        self, store: Any, options: Options, columns: Sequence[str], labels: Any, threads: int
    ) -> None:
        self._store = store
        self._options = options
        self._columns = list(columns)
        self._labels = labels
        self._threads = threads

    def __call__(self, batch: Any) -> Iterator[Any]:
        """Yield tables of the items with the numbers in the column ``"id"``."""
        some = False
        for items in self._read(batch["id"].tolist()):
            sources, names = [item.source for item in items], [item.path for item in items]
            for portion in portions(sources, names, self._options):
                if portion.kept:
                    some = True
                    yield self._table(portion, items)
        if not some:
            yield self._empty()

    def _read(self, indices: list[int]) -> Iterator[list[_Item]]:
        store, rows = _store(self._store), rows_at_once(self._options)
        portions = [indices[at : at + rows] for at in range(0, len(indices), rows)]
        if not self._threads:
            for portion in portions:
                read = (self._items(store, group) for group in _groups(store, portion))
                yield _joined(portion, read)
            return
        with ThreadPoolExecutor(self._threads) as pool:
            ahead: list[tuple[list[int], list[Any]]] = []
            for portion in portions:
                # Asking for all keys opens all shards: else their neighbours are not known yet.
                list(pool.map(partial(_key, store), portion))
                groups = _groups(store, portion)
                begun = [pool.submit(self._items, store, group) for group in groups]
                ahead.append((portion, begun))
                if len(ahead) > 1:
                    done, reads = ahead.pop(0)
                    yield _joined(done, (each.result() for each in reads))
            for done, reads in ahead:
                yield _joined(done, (each.result() for each in reads))

    def _items(self, store: Store, indices: list[int]) -> list[_Item]:
        sources = store.read_group(indices)
        return [self._item(store, *one) for one in zip(indices, sources, strict=True)]

    def _item(self, store: Store, index: int, source: Any) -> _Item:
        path, label = f"item {index}", None
        try:
            path = store.key(index)
            if isinstance(source, Exception):
                raise source
            if "label" in self._columns:
                label = store.target(index)
        except (FastDecodeError, OSError) as error:
            if not is_the_pictures(error):
                raise
            return _Item(index, error, path, None)
        return _Item(index, source, source if isinstance(source, str) else path, label)

    def _table(self, portion: Portion, items: Sequence[_Item]) -> Any:
        columns = {"image": image_column(portion.images, self._options)}
        if "label" in self._columns:
            labels = [items[at].label for at in portion.kept]
            columns["label"] = label_column(labels, self._labels)
        if "path" in self._columns:
            columns["path"] = pa.array([items[at].path for at in portion.kept], pa.string())
        if self._options.on_error == "column":
            columns["error"] = pa.array(portion.errors, pa.string())
        return pa.table(columns)

    def _empty(self) -> Any:
        columns = {"image": nothing(self._options)}
        if "label" in self._columns:
            columns["label"] = label_column([], self._labels or pa.null())
        if "path" in self._columns:
            columns["path"] = pa.array([], pa.string())
        return pa.table(columns)


class Decode:
    """Decodes a column of encoded bytes.

    Parameters
    ----------
    column, name : str or None
        Of the bytes; and the column that has names for errors.
    output : str
        Column for the pictures.
    keep : bool
        Leave the bytes among the columns.
    options : Options
    """

    def __init__(
        self, column: str, name: str | None, output: str, keep: bool, options: Options
    ) -> None:
        self._column, self._name, self._output = column, name, output
        self._keep = keep
        self._options = options

    def __call__(self, table: Any) -> Iterator[Any]:
        """Yield tables of the rows of one."""
        sources = [_encoded(value) for value in _column(table, self._column)]
        names = self._names(table, sources)
        some = False
        for portion in portions(sources, names, self._options):
            if portion.kept:
                some = True
                yield self._table(table, portion)
        if not some:
            columns = {"image": nothing(self._options)}
            yield self._with(table[:0], columns["image"], [])

    def _names(self, table: Any, sources: Sequence[Any]) -> Sequence[str]:
        if self._name is not None:
            return [str(name) for name in _column(table, self._name).to_pylist()]
        return _Digests(sources)

    def _table(self, table: Any, portion: Portion) -> Any:
        kept = portion.kept
        whole = len(kept) == portion.stop - portion.start
        rows = table.slice(portion.start, len(kept)) if whole else table.take(kept)
        return self._with(rows, image_column(portion.images, self._options), portion.errors)

    def _with(self, rows: Any, images: Any, errors: Sequence[str | None]) -> Any:
        if not self._keep:
            rows = rows.drop_columns([self._column])
        columns = {self._output: images}
        if self._options.on_error == "column":
            columns["error"] = pa.array(errors, pa.string())
        for name, column in columns.items():
            if name in rows.column_names:
                rows = rows.drop_columns([name])
            rows = rows.append_column(name, column)
        return rows


class _Digests(Sequence[str]):
    """Names for bytes that have none, made when they are asked for."""

    def __init__(self, sources: Sequence[Any]) -> None:
        self._sources = sources

    def __len__(self) -> int:
        return len(self._sources)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return _Digests(self._sources[at])
        source = self._sources[at]
        given = b"" if isinstance(source, Exception) else source
        return f"picture {hashlib.blake2b(given, digest_size=8).hexdigest()}"


def _key(store: Store, index: int) -> None:
    """Let the store know an item's key; if it cannot, whoever reads the item is told."""
    with suppress(FastDecodeError, OSError):
        store.key(index)


def _groups(store: Store, indices: list[int]) -> list[list[int]]:
    """Part items into those that one request reads."""
    try:
        return store.groups(indices)
    except ITEM_ERRORS:  # whoever reads such an item is told
        return [[index] for index in indices]


def _joined(indices: list[int], groups: Iterable[list[_Item]]) -> list[_Item]:
    """Put items that were read in groups into their order."""
    found = {item.number: item for group in groups for item in group}
    return [found[index] for index in indices]


def _column(table: Any, name: str) -> Any:
    if name not in table.column_names:
        raise ValueError(f"there is no column {name!r}, only {', '.join(table.column_names)}")
    return table.column(name)


def _encoded(value: Any) -> Any:
    """Return an Arrow value as encoded bytes, without a copy."""
    if not value.is_valid:
        return FastDecodeError("there is nothing in the row")
    if not hasattr(value, "as_buffer"):
        raise TypeError(f"the column must hold bytes, not {value.type}")
    return memoryview(value.as_buffer())


def _store(reference: Any) -> Store:
    """Return the store of a job, opened in this process."""
    name = reference.hex()
    if name not in _opened:
        for other in list(_opened):
            _opened.pop(other).close()
        _opened[name] = ray.get(reference)
    store = _opened[name]
    store.reach()  # on a node without its drive every picture would be missing
    return store
