"""The samples of any map-style dataset: one by one, or as a batch in the native core."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset, IterDataPipe, StackDataset, Subset

from fastdecode._arguments import is_int, shown
from fastdecode._backends.selection import load_named, preferred
from fastdecode.errors import BackendUnavailable, UnknownBackend
from fastdecode.native._pool import Pool
from fastdecode.torch._errors import SKIPPED, Failure
from fastdecode.torch._loader.native_batches import (
    FALLBACK,
    NativeBatchMaker,
    Take,
    take_new,
)
from fastdecode.torch._unchanged import forget
from fastdecode.torch._user_code import is_thread_safe, seed_global_generators
from fastdecode.torch._wrappers import inside, items_of, locate, snapshot, unwrap
from fastdecode.torch.dataset import (
    DecodeDataset,
    EligibleRecipe,
    Settings,
)
from fastdecode.torch.transforms._random_crop import (
    SampleGenerator,
    draws_beside_users_code,
    generator_of,
)

if TYPE_CHECKING:
    from fastdecode.torch._loader.order import Item


_ITEM_METHODS = frozenset(("__getitem__", "__getitems__"))


class SampleSource:
    """A dataset with torch's wrappers looked through, and what a loader must know about it.

    The wrappers are Subset and ConcatDataset, in each other as well.
    """

    as_uint8 = False
    """Images are ``torch.uint8`` and not normalised."""
    singly = False
    """Samples are made one by one, and not in batches."""

    def __init__(
        self,
        dataset: Any,
        options: Mapping[str, Any] | None = None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.iterable = isinstance(dataset, IterableDataset)
        if isinstance(dataset, IterDataPipe) or not (
            self.iterable or hasattr(dataset, "__getitem__")
        ):
            raise TypeError(
                "Loader needs a map-style dataset, with __getitem__ and __len__, or an "
                f"IterableDataset, not {type(dataset).__name__}: give that to torch's DataLoader, "
                "and this to DevicePrefetcher"
            )
        self.dataset = dataset
        self._wrappers = snapshot(dataset)
        inner = [one for one in unwrap(self._wrappers) if not inside(one)]
        self._inner = tuple({id(one): one for one in inner}.values())
        ours = inner and all(isinstance(one, DecodeDataset) and one.fetches for one in inner)
        self.datasets: tuple[Any, ...] = self._inner if ours else ()
        """The datasets inside if all of them are `DecodeDataset`, else none."""
        self._options = dict(options or {})
        if options and not ours:
            raise ValueError(
                f"{', '.join(options)}= is for datasets of this package: "
                f"{self._foreign_dataset_reason()}"
            )
        if changed := options and next(filter(None, (one._own_way() for one in self.datasets)), ""):
            named = ", ".join(options)
            raise ValueError(f"{named}= is not possible, because {changed}: say it of the dataset")
        self._lock = lock or nullcontext()
        forget()  # once for all datasets: it takes two milliseconds to look at the libraries again
        self._settings: dict[int, Settings] = {
            id(one): one._settings_of_epoch(**self._options) for one in self.datasets
        }

    def length(self, *, needed: bool) -> int | None:
        """Return how many items there are; None if the dataset does not say, unless `needed`."""
        if isinstance(self.dataset, Sized):
            optional = self.iterable or not needed
            with suppress(TypeError, NotImplementedError) if optional else nullcontext():
                return len(self.dataset)
        if needed:
            name = type(self.dataset).__name__
            raise TypeError(f"{name} has no len(): give a sampler of its indices")
        return None

    @property
    def ours(self) -> Any:
        """The dataset inside if it is a single `DecodeDataset`, else None."""
        return self.datasets[0] if len(self.datasets) == 1 else None

    def __getstate__(self) -> dict[str, Any]:
        # What is known by the `id` of a dataset is not true of a copy of it in another process.
        state = {**self.__dict__, "_settings": {}}
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = nullcontext()  # the process has one thread

    def made_of(self) -> list[Any]:
        """Return what an epoch makes its samples with, to compare it with that of another one."""
        parts = (part for one in self.datasets for part in self.settings(one))
        chosen = (getattr(one, "indices", None) for one in unwrap(self._wrappers) if inside(one))
        return [self.length(needed=False), *self._inner, *chosen, *parts]

    def as_uint8_source(self) -> SampleSource:
        """Return this source with images of ``torch.uint8``; only where a recipe is `eligible`."""
        source = self._copied()
        source.as_uint8 = True
        return source

    def _copied(self) -> SampleSource:
        source = copy.copy(self)
        source._lock = self._lock
        return source

    def settings(self, dataset: Any) -> Settings:
        """Return those of a dataset inside, as they were when this source was made."""
        if id(dataset) not in self._settings:  # of a copy in another process
            self._settings[id(dataset)] = dataset._settings_of_epoch(**self._options)
        return self._settings[id(dataset)]

    def batch_getter(self) -> Callable[[list[Any]], Any] | None:
        """Return how the dataset gives a whole batch, if it does: see `_batch_getter`."""
        return None if self.datasets or self.singly else _batch_getter(self.dataset)

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """The lock under which to call code of the user's; of no effect if none is there.

        Only those who ask for threads in spite of such code need it, and give one.
        """
        return nullcontext() if self.isolated else self._lock

    def locate(self, index: Any) -> tuple[Any, Any]:
        """Return the dataset inside that has an item, and its index there."""
        return locate(self._wrappers, index)

    def name_sampler(self, error: Exception, index: Any) -> None:
        """Say in the error of an item what the sampler gave, if only that can have asked for it."""
        count = self.length(needed=False)
        if count is not None and not (is_int(index) and -count <= index < count):
            error.args = (
                f"{error} (the sampler gave {shown(index)}, and the dataset has {count} items)",
            )

    def dataset_index(self, index: Any) -> Any:
        """Return the index of an item in the dataset inside that has it."""
        return self.locate(index)[1]

    @property
    def isolated(self) -> bool:
        """Whether threads may make the samples: no code of the user's does, or the user says so."""
        if not self.datasets:
            return not self.iterable and all(
                is_thread_safe(one, *_ITEM_METHODS) for one in self._inner
            )
        return all(not one._why_processes(self.settings(one)) for one in self.datasets)

    @property
    def why_processes(self) -> str:
        """Say why processes make the samples, and what would let threads; empty if these may."""
        if not (self.datasets or self.isolated or self.iterable):
            return (
                f"{self._foreign_dataset_reason()}. For threads, use one, or say "
                "thread_safe = True in its class"
            )
        if self.holds_gil:
            return "the chosen backend holds the GIL. For threads, choose another"
        return next(
            filter(None, (one._why_processes(self.settings(one)) for one in self.datasets)), ""
        )

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Shape of every image, if images can be written straight into a batch; else None."""
        kinds = {self._kind(one) for one in self.datasets}
        return kinds.pop()[0] if len(kinds) == 1 else None

    def _kind(self, dataset: Any) -> tuple[tuple[int, int, int] | None, torch.dtype | None]:
        """Return shape and type of every image of a dataset inside, or None."""
        settings = self.settings(dataset)
        shape = None if dataset._is_overridden() else settings.shape
        return shape, None if shape is None else settings.transform.dtype

    @property
    def dtype(self) -> torch.dtype:
        """Type of every image, where there is a `shape`."""
        return torch.uint8 if self.as_uint8 else self._kind(self.datasets[0])[1] or torch.uint8

    @property
    def eligible(self) -> EligibleRecipe | str:
        """How the core or a device makes the samples; if they cannot, the reason in words."""
        if len(self.datasets) > 1:
            return f"{type(self.dataset).__name__} has several datasets, each with its transform"
        if self.ours is None:
            return self._foreign_dataset_reason()
        eligible: EligibleRecipe | str = self.ours._eligible_recipe(self.settings(self.ours))
        return eligible

    def _foreign_dataset_reason(self) -> str:
        return f"{type(self.dataset).__name__} is not one of this package's datasets"

    @property
    def remote(self) -> bool:
        """Whether each sample is requested from a server."""
        return any(getattr(one, "remote", False) for one in self.datasets)

    @contextmanager
    def prefetch_batch(self, indices: Sequence[Any]) -> Iterator[None]:
        """Let datasets on a server read a batch at once; make its samples within the block."""
        with ExitStack() as stack:
            if self.remote:
                places = []
                for index in indices:
                    with suppress(IndexError, TypeError):  # raised when the item is made
                        places.append(self.locate(index))
                for dataset in self.datasets:
                    inside = [index for where, index in places if where is dataset]
                    stack.enter_context(dataset._prefetch_batch(inside))
            yield

    @property
    def holds_gil(self) -> bool:
        """Whether a dataset decodes with one named backend that holds the GIL."""
        backends = [self.settings(one).options.backend for one in self.datasets] or [None]
        return any(map(_holds_gil, backends))

    @property
    def first_error(self) -> Failure | None:
        """The first sample that could not be decoded, if any is known, whichever failed first."""
        found = (sorted(dataset.errors, key=lambda error: error.index) for dataset in self.datasets)
        return next((errors[0] for errors in found if errors), None)

    def error_counts(self) -> list[int]:
        """Count the failures of each dataset inside."""
        return [len(dataset.errors) for dataset in self.datasets]

    def errors_since(self, reported: Sequence[int]) -> list[list[Failure]]:
        """Return the failures of each dataset inside, without the first `reported` of them."""
        return [
            dataset.errors[before:] for dataset, before in zip(self.datasets, reported, strict=True)
        ]

    def add_errors(self, failures: Sequence[Sequence[Failure]]) -> None:
        """Add the failures that another process has found to those of each dataset inside."""
        for dataset, found in zip(self.datasets, failures, strict=True):
            for failure in found:
                dataset.errors.add(failure)

    def fetch(self, index: Any, generator: torch.Generator, out: torch.Tensor | None) -> Any:
        """Return a sample, or SKIPPED.

        All random draws come from `generator`. `out` is the image's slot in a batch.
        """
        if not self.datasets:
            return self.dataset[index]
        if out is None and self.as_uint8:
            out = torch.empty(self.shape or (), dtype=torch.uint8, device="cpu")
        dataset, place = self.locate(index)
        among = partial(items_of, self._wrappers, dataset)
        sample = dataset._fetch(place, self.settings(dataset), generator, out, among)
        return sample[0] if sample is not SKIPPED and dataset._is_bare() else sample


def _batch_getter(dataset: Any) -> Callable[[list[Any]], Any] | None:
    """Return a function from the indices of a batch to its samples, as torch's DataLoader calls.

    It is the dataset's ``__getitems__``, also inside a Subset; that of a StackDataset, if one of
    its datasets has it. A class below the one that has it may have a ``__getitem__`` of its own,
    which it would pass by: then there is none.
    """
    if type(dataset) is Subset:
        inner, indices = _batch_getter(dataset.dataset), dataset.indices
        return None if inner is None else lambda wanted: inner([indices[at] for at in wanted])
    if type(dataset) is StackDataset:
        held = dataset.datasets
        parts = held.values() if isinstance(held, dict) else held
        return dataset.__getitems__ if any(map(_batch_getter, parts)) else None
    getter = getattr(dataset, "__getitems__", None)
    kinds = [kind for kind in type(dataset).__mro__ if not _ITEM_METHODS.isdisjoint(vars(kind))]
    first = (
        "__getitems__" in getattr(dataset, "__dict__", ())
        or not kinds
        or "__getitems__" in vars(kinds[0])
    )
    return getter if callable(getter) and first else None


def _holds_gil(backend: Any) -> bool:
    name = preferred() if backend is None else backend
    if not isinstance(name, str):
        return False
    try:
        return not load_named(name).releases_gil
    except (BackendUnavailable, UnknownBackend):
        return False  # the first sample raises it, with advice


class SampleMaker:
    """Makes samples: in batches in the native core where possible, the others one by one.

    Any number of threads may use it at once. `pool` is a pool of the native core; with None all
    samples are made one by one. `alone` says that nothing else runs in the process meanwhile: then
    the global generators are seeded for each sample that code of the user's helps to make.
    """

    def __init__(self, source: SampleSource, pool: Pool | None, *, alone: bool = False) -> None:
        self.source = source
        self._isolated = source.isolated
        self._seeds = alone and not self._isolated
        self._lock = nullcontext() if self._seeds else source.lock
        self._getter: Any = source.batch_getter()
        self.native: NativeBatchMaker | None = None
        if pool is not None and source.ours is not None:
            self.native = NativeBatchMaker(
                source.ours,
                source.settings(source.ours),
                pool,
                source.dataset_index,
                self._lock,
                as_uint8=source.as_uint8,
                isolated=self._isolated,
                seeds=self._seeds,
            )

    def make(self, items: Sequence[Item]) -> list[Any]:
        """Make samples; one that is left out is SKIPPED."""
        return [
            self.make_one(item) if sample is FALLBACK else sample
            for item, sample in zip(items, self.make_batch(items), strict=True)
        ]

    def make_batch(
        self,
        items: Sequence[Item],
        images: torch.Tensor | None = None,
        stopped: Callable[[], bool] = bool,
        take: Take = take_new,
    ) -> list[Any]:
        """Make the samples that the core can make; each of the others is FALLBACK.

        The arguments are those of `NativeBatchMaker.make`.
        """
        if self.native is None or not self.native.eligible:
            return [FALLBACK] * len(items)
        return self.native.make(items, images, stopped, take)

    def make_one(self, item: Item, out: torch.Tensor | None = None) -> Any:
        """Make one sample, or SKIPPED; `out` is as for `SampleSource.fetch`."""
        with self._lock:
            if self._seeds:
                seed_global_generators(item.seed)
            try:
                return self.source.fetch(item.index, self.generator_of(item.seed), out)
            except (IndexError, TypeError) as error:
                self.source.name_sampler(error, item.index)
                raise

    def generator_of(self, seed: int) -> SampleGenerator:
        if self._isolated:
            return generator_of(seed)
        return draws_beside_users_code(seed, globally=self._seeds)

    @property
    def makes_whole_batches(self) -> bool:
        """Whether the dataset is asked for whole batches, by `make_whole`."""
        return self._getter is not None

    def make_whole(self, items: Sequence[Item]) -> Any:
        """Return what the dataset's ``__getitems__`` gives, for `collate_fn`."""
        with self._lock:
            if self._seeds:
                seed_global_generators(items[0].seed)
            return self._getter([item.index for item in items])
