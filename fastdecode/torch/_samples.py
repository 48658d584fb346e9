"""The samples of any map-style dataset: one by one, or as a batch in the native core."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, Subset

from fastdecode._selection import load_named, preferred
from fastdecode.errors import BackendUnavailable, UnknownBackend
from fastdecode.native import _library
from fastdecode.native._batch import Pool
from fastdecode.torch._errors import SKIPPED, Failures
from fastdecode.torch._native_batches import FALLBACK, Draws, EligibleCrop, NativeBatchMaker
from fastdecode.torch.dataset import DecodeDataset, EncodedSample, overridden
from fastdecode.torch.transforms._random_crop import generator_of

if TYPE_CHECKING:
    from fastdecode.torch._order import Item
    from fastdecode.torch._read_ahead import Read


class Source:
    """A dataset without the torch Subsets around it, and what a loader must know about it."""

    as_uint8 = False
    """Images are ``torch.uint8`` and not normalised."""

    def __init__(self, dataset: Any) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
            raise TypeError(
                "Loader needs a map-style dataset, with __getitem__ and __len__, not "
                f"{type(dataset).__name__}: give an iterable one to torch's DataLoader, and that "
                "to DevicePrefetcher"
            )
        self.dataset = dataset
        indices = None
        while type(dataset) is Subset:
            own = dataset.indices
            indices = own if indices is None else [own[at] for at in indices]
            dataset = dataset.dataset
        self.ours: Any = dataset if isinstance(dataset, DecodeDataset) else None
        """The dataset without subsets if it is a `DecodeDataset`, else None."""
        self._subset: Sequence[int] | None = indices

    def __len__(self) -> int:
        return len(self.dataset)

    def as_uint8_source(self) -> Source:
        """Return this source with images of ``torch.uint8``; only where there is a `crop`."""
        source = copy.copy(self)
        source.as_uint8 = True
        return source

    def dataset_index(self, index: Any) -> Any:
        """Return the dataset's index of an item of the subset."""
        return index if self._subset is None else self._subset[index]

    @property
    def isolated(self) -> bool:
        """Whether all random draws of a sample come from the generator that it is given."""
        return self.ours is not None and self.ours.isolated

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Shape of every image, if images can be written straight into a batch; else None."""
        return None if self.ours is None else self.ours.sample_shape

    @property
    def dtype(self) -> torch.dtype:
        """Type of every image, where there is a `shape`."""
        return torch.uint8 if self.as_uint8 else self.ours.sample_dtype

    @property
    def crop(self) -> EligibleCrop | str:
        """How the core or a device makes the samples; if they cannot, the reason in words."""
        return self._foreign_dataset_reason() if self.ours is None else self.ours._eligible_crop()

    def _foreign_dataset_reason(self) -> str:
        return f"{type(self.dataset).__name__} is not one of this package's datasets"

    @property
    def remote(self) -> bool:
        """Whether each sample is requested from a server."""
        return bool(getattr(self.ours, "remote", False))

    def prefetch_batch(self, indices: Sequence[Any]) -> AbstractContextManager[object]:
        """Let the dataset read a batch at once if it can; fetch its items within the block."""
        if self.ours is None:
            return nullcontext()
        reading: AbstractContextManager[object]
        reading = self.ours._prefetch_batch([self.dataset_index(index) for index in indices])
        return reading

    @property
    def no_read_ahead_reason(self) -> str:
        """The reason why other threads may not read for the dataset; empty if they may."""
        if self.ours is None:
            return self._foreign_dataset_reason()
        kind = type(self.ours)
        changed = overridden(kind, DecodeDataset, ("__getitem__", "fetch", "load"))
        return f"{kind.__name__} has its own {changed}" if changed else ""

    @property
    def holds_gil(self) -> bool:
        """Whether the dataset decodes with one named backend that holds the GIL."""
        named = None if self.ours is None else self.ours.decode_options.backend
        name = preferred() if named is None else named
        if not isinstance(name, str):
            return False
        try:
            return not load_named(name).releases_gil
        except (BackendUnavailable, UnknownBackend):
            return False  # the first sample raises it, with advice

    @property
    def errors(self) -> Failures:
        """The samples that could not be decoded; a dataset of another kind records none."""
        return Failures() if self.ours is None else self.ours.errors

    def fetch(
        self,
        index: Any,
        generator: torch.Generator,
        out: torch.Tensor | None,
        encoded: EncodedSample | None = None,
    ) -> Any:
        """Return a sample, or SKIPPED.

        All random draws come from `generator`. `out` is the image's slot in a batch. `encoded` is
        the sample if it has already been read, only where there is a `crop`.
        """
        if self.ours is None:
            return self.dataset[index]
        if out is None and self.as_uint8:
            out = torch.empty(self.shape or (), dtype=torch.uint8, device="cpu")
        # A subclass with its own `fetch` may not know of `encoded`.
        read = {} if encoded is None else {"encoded": encoded}
        options = {"generator": generator, "out": out, "among": self._subset, **read}
        return self.as_user_sample(self.ours.fetch(self.dataset_index(index), **options))

    @property
    def is_bare(self) -> bool:
        """Whether a sample is handed out as the image alone, because the dataset has no targets."""
        # A subclass with its own __getitem__ decides what a sample is.
        own = self.ours
        return own is not None and not own.has_targets and not own._is_overridden()

    def as_user_sample(self, sample: Any) -> Any:
        """Return a sample in the form that the user gets: the image alone if `is_bare`."""
        return sample[0] if sample is not SKIPPED and self.is_bare else sample

    def native(self, pool: Pool) -> NativeBatchMaker | None:
        """Return a maker of batches in the native core, for this source's indices, or None."""
        if self.ours is None or _library.lib is None:
            return None
        return NativeBatchMaker(self.ours, pool, self._subset, as_uint8=self.as_uint8)


class SampleMaker:
    """Makes samples: in batches in the native core where possible, the others one by one.

    Any number of threads may use it at once. `pool` is a pool of the native core; with None all
    samples are made one by one. `alone` says that nothing else runs in the process meanwhile: then
    the global generators are seeded for each sample, too, for user code that draws from them.
    """

    def __init__(self, source: Source, pool: Pool | None, *, alone: bool = False) -> None:
        self.source = source
        self.native = None if pool is None else source.native(pool)
        self._seed_global_generators = _seed_global_generators if alone else None

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
        reads: Sequence[Read] | None = None,
    ) -> list[Any]:
        """Make the samples that the core can make; each of the others is FALLBACK.

        The arguments are those of `NativeBatchMaker.make`.
        """
        if self.native is None or not self.native.eligible:
            return [FALLBACK] * len(items)
        indices = [item.index for item in items]
        draws = Draws([item.seed for item in items], self._seed_global_generators)
        made = self.native.make(indices, draws, images, stopped, reads)
        if not self.source.is_bare:
            return made
        return [FALLBACK if sample is FALLBACK else sample[0] for sample in made]

    def make_one(
        self, item: Item, out: torch.Tensor | None = None, encoded: EncodedSample | None = None
    ) -> Any:
        """Make one sample, or SKIPPED; `out` and `encoded` are as for `Source.fetch`."""
        if self._seed_global_generators is not None:
            self._seed_global_generators(item.seed)
        return self.source.fetch(item.index, generator_of(item.seed), out, encoded)


@contextmanager
def preserve_generators() -> Iterator[None]:
    """Restore the global generators that `SampleMaker` seeds: the training code draws from them."""
    states = torch.default_generator.get_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        torch.default_generator.set_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])  # noqa: NPY002


def _seed_global_generators(seed: int) -> None:
    """Seed the global generators that user code might draw from."""
    # `torch.manual_seed` would also seed every other device, and takes 0.1 ms.
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - user code may draw from the global generator
