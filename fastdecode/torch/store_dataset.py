"""`StoreDataset`: the images of a store as a dataset."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from fastdecode._arguments import check_kinds, is_iterable, wrong_kind
from fastdecode._error_policy import ITEM_ERRORS, is_item_error, mark_if_folder_vanished
from fastdecode._system.process import ForkLock
from fastdecode.stores import Store, open_store
from fastdecode.torch._errors import name_sample
from fastdecode.torch._loader.threads import ThreadPool
from fastdecode.torch._options import DatasetOptions
from fastdecode.torch._user_code import is_thread_safe
from fastdecode.torch.dataset import DecodeDataset, Sample_co, Settings

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fastdecode.stores.base import StoreOptions
    from fastdecode.torch.dataset import Source

_MAX_PROBED_ITEMS = 64
"""How many items are checked for a target, to find out whether the store has targets."""
_REQUESTS = 32
"""How many requests to a server run at the same time."""
_lock = ForkLock()


class _Begun(threading.local):
    """The reads that this thread has begun for a batch, by dataset and position in its store."""

    reads: Mapping[tuple[int, int], Future[tuple[Any, Any]]] = {}


_begun = _Begun()


class StoreDataset(DecodeDataset[Sample_co]):
    """The images of a folder, tar shards, LMDB, HDF5 or RecordIO, with or without targets.

    Parameters
    ----------
    store : Store, path or URI, or several of these
        Anything but a `Store` is opened with `fastdecode.stores.open_store`.
    transform, target_transform, transforms : callable, optional
        As for `DecodeDataset`.
    kind : str, optional
        The kind of store, as for `open_store`.
    store_options : mapping, optional
        The keyword arguments of `open_store` for this kind of store, such as ``{"image": "png"}``.
    has_targets : bool, optional
        Whether samples have targets; if false, ``dataset[index]`` is the image alone. By default it
        is true if the store has classes, or if one of 64 evenly spread items has a target.
    **options
        Those of `DecodeOptions`, by name: reduce, min_size, mode, orient, max_pixels, backend,
        output, on_error, fuse, quality, headroom.

    Attributes
    ----------
    store : Store
    classes : list of str
        Names of the classes; empty if the targets are not class indices.
    class_to_idx : dict of str to int
        The index of each class.
    targets : list
        All targets; read from the store at the first access.

    Raises
    ------
    FileNotFoundError, ImportError, StoreError, ValueError
        As from `open_store`, or options contradict each other.

    Notes
    -----
    A pickle holds the store but no open files: each worker process opens what it needs. Where the
    medium allows, images go from the store's memory to the decoder without a copy. The items of a
    batch from a server are requested at once, those that lie together in a shard in one request.

    Examples
    --------
    >>> from fastdecode.torch import StoreDataset
    >>> from fastdecode.torch.transforms import ResizeCenterCropNormalize
    >>> dataset = StoreDataset("train.tar", transform=ResizeCenterCropNormalize(256, 224))
    >>> image, target = dataset[3]
    >>> image.shape, target
    (torch.Size([3, 224, 224]), 1)
    """

    _readers: ThreadPool | None = None
    # `_targets` may be a million objects, which each worker would receive.
    _not_pickled = (*DecodeDataset._not_pickled, "_targets", "_readers")

    def __init__(
        self,
        store: Store | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        *,
        transforms: Callable[..., Any] | None = None,
        kind: str | None = None,
        store_options: StoreOptions | None = None,
        has_targets: bool | None = None,
        **options: Unpack[DatasetOptions],
    ) -> None:
        super().__init__(transform, target_transform, transforms=transforms, **options)
        own = {"kind": kind, "store_options": store_options, "has_targets": has_targets}
        check_kinds(own)
        if not isinstance(store, (Store, str, os.PathLike)) and not is_iterable(store):
            raise wrong_kind("store", "a store, or the path or URI of one, or several", store)
        if isinstance(store, Store) and (kind is not None or store_options):
            raise ValueError(
                "kind and store_options say how to open a location, but this store is open already"
            )
        made = (
            store if isinstance(store, Store) else open_store(store, kind, **(store_options or {}))
        )
        self.store = made
        self.classes = list(self.store.classes)
        self.class_to_idx = {name: index for index, name in enumerate(self.classes)}
        self.has_targets = _has_targets(self.store) if has_targets is None else has_targets

    def __len__(self) -> int:
        return len(self.store)

    def read(self, index: int) -> tuple[Source, Any]:
        """Return the path or the bytes of an image, and its target."""
        position = self._position(index)
        begun = _begun.reads.get((id(self), position))
        if begun is not None:
            return begun.result()
        return self.store.source(position), self.store.target(position)

    @contextmanager
    def _prefetch_batch(self, indices: Sequence[int]) -> Iterator[None]:
        own_read = type(self).read is not StoreDataset.read or not self._reads_in_threads
        before = _begun.reads
        if not (self.remote and len(indices) > 1) or own_read:
            indices = ()
        try:
            _begun.reads = {**before, **self._begin_reads(indices)} if indices else before
            yield
        finally:
            _begun.reads = before

    def _begin_reads(
        self, indices: Sequence[int]
    ) -> dict[tuple[int, int], Future[tuple[Any, Any]]]:
        """Begin to read items in other threads, those that lie together in one request."""
        with _lock:
            readers = self._readers = self._readers or ThreadPool(_REQUESTS)
        reads = {self._position(index): Future[tuple[Any, Any]]() for index in indices}
        try:
            groups = self.store.groups(list(reads))
        except Exception:  # each item raises its own when it is read
            groups = [[position] for position in reads]
        for group in groups:
            readers.submit(partial(self._read_group, group, reads))
        return {(id(self), position): read for position, read in reads.items()}

    def _read_group(
        self, group: Sequence[int], reads: Mapping[int, Future[tuple[Any, Any]]]
    ) -> None:
        """Read some items; any error is raised where the sample is made."""
        try:
            found: Sequence[Any] = self.store.read_group(group)
        except BaseException as error:
            found = [error] * len(group)
        for position, source in zip(group, found, strict=True):
            if isinstance(source, BaseException):
                reads[position].set_exception(source)
                continue
            try:
                reads[position].set_result((source, self.store.target(position)))
            except BaseException as error:
                reads[position].set_exception(error)

    @property
    def remote(self) -> bool:
        """Whether each image is read from a server."""
        return self.store.remote

    @property
    def _reads_in_threads(self) -> bool:
        """Whether several threads may read at once."""
        of_store = ("source", "read", "_read", "groups", "read_group", "target")
        return is_thread_safe(self, "read") and is_thread_safe(self.store, *of_store)

    def _users_code(self, settings: Settings) -> Iterator[str]:
        yield from super()._users_code(settings)
        if not self._reads_in_threads:
            yield f"the store ({type(self.store).__name__})"

    def key(self, index: int) -> str:
        """Return the name of an image in the store.

        Raises
        ------
        IndexError
            There is no such item.
        """
        return self.store.key(self._position(index))

    @property
    def targets(self) -> list[Any]:
        """All targets, before `target_transform`."""
        known: list[Any] | None = self.__dict__.get("_targets")
        if known is None:
            known = [self.store.target(index) for index in range(len(self))]
            self.__dict__["_targets"] = known
        return known

    def extra_repr(self) -> str:
        """Return the line that names the store."""
        return f"Store: {self.store.kind} at {self.store.location}"

    def _position(self, index: int) -> int:
        """Return the position in the store; a negative index counts from the end."""
        position = operator.index(index)
        return position + len(self.store) if position < 0 else position

    def _mark_if_folder_vanished(self, error: Exception) -> None:
        store = self.store
        mark_if_folder_vanished(error, store.folder, listed=store.kind == "folder")

    def _name_sample(self, error: Exception, index: int, source: object) -> None:
        if isinstance(source, (str, os.PathLike)):  # the path of a file is enough
            super()._name_sample(error, index, source)
            return
        position, where = self._position(index), self.store.location
        key_suffix = self.store._key_suffix(position)
        if error.args and isinstance(error.args[0], str):
            # The store has named the item already; do not repeat it.
            error.args = (
                _strip_location(error.args[0], where, position, key_suffix),
                *error.args[1:],
            )
        name_sample(error, position, f"{where}, {key_suffix[2:-1]}" if key_suffix else where)


def _strip_location(message: str, where: str, position: int, key_suffix: str) -> str:
    for prefix in (f"{where}, item {position}{key_suffix}: ", f"{where}: "):
        if message.startswith(prefix):
            return message[len(prefix) :]
    return message


def _has_targets(store: Store) -> bool:
    """Return whether a store has targets, judging by some evenly spread items."""
    if store.classes:
        return True
    count = len(store)
    for position in range(0, count, -(-count // _MAX_PROBED_ITEMS) or 1):
        try:
            if store.target(position) is not None:
                return True
        except ITEM_ERRORS as error:  # the same error comes again when the item is read
            if not is_item_error(error):
                raise
    return False
