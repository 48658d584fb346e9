"""The samples of any map-style dataset: one by one, or a batch by the native core."""

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
    """A dataset, seen through torch's Subset, and what a loader must know about it."""

    as_bytes = False
    """The normalising is left out: images are ``torch.uint8``."""

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
        """The package's own dataset, without subsets around it; None if it is none of those."""
        self._subset: Sequence[int] | None = indices

    def __len__(self) -> int:
        return len(self.dataset)

    def of_bytes(self) -> Source:
        """Return the same as a source of ``torch.uint8``, where there is a `crop`."""
        source = copy.copy(self)
        source.as_bytes = True
        return source

    def place(self, index: Any) -> Any:
        """Return what the dataset calls an item of the subset."""
        return index if self._subset is None else self._subset[index]

    @property
    def isolated(self) -> bool:
        """Whether all random draws of a sample come from the generator that is handed to it."""
        return self.ours is not None and self.ours.isolated

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Shape of every image, if it can be written straight into a batch."""
        return None if self.ours is None else self.ours.sample_shape

    @property
    def dtype(self) -> torch.dtype:
        """Type of every image, where there is a `shape`."""
        return torch.uint8 if self.as_bytes else self.ours.sample_dtype

    @property
    def crop(self) -> EligibleCrop | str:
        """How others than the dataset can make its samples; if they cannot, why, in words."""
        return self._not_ours() if self.ours is None else self.ours._eligible_crop()

    def _not_ours(self) -> str:
        return f"{type(self.dataset).__name__} is none of this package's datasets"

    @property
    def remote(self) -> bool:
        """Whether a server is asked for each sample."""
        return bool(getattr(self.ours, "remote", False))

    def together(self, indices: Sequence[Any]) -> AbstractContextManager[object]:
        """Let the dataset read a batch, whose items are fetched within, all at once if it can."""
        if self.ours is None:
            return nullcontext()
        reading: AbstractContextManager[object]
        reading = self.ours._together([self.place(index) for index in indices])
        return reading

    @property
    def reads_for_itself(self) -> str:
        """Why nobody else may read for the dataset, in words; empty if somebody may."""
        if self.ours is None:
            return self._not_ours()
        kind = type(self.ours)
        changed = overridden(kind, DecodeDataset, ("__getitem__", "fetch", "load"))
        return f"{kind.__name__} has its own {changed}" if changed else ""

    @property
    def holds_gil(self) -> bool:
        """Whether one backend alone decodes, and lets no other Python thread run meanwhile."""
        named = None if self.ours is None else self.ours.backend
        name = preferred() if named is None else named
        if not isinstance(name, str):
            return False
        try:
            return not load_named(name).releases_gil
        except (BackendUnavailable, UnknownBackend):
            return False  # the first sample says so, with the way out

    @property
    def errors(self) -> Failures:
        """What could not be decoded, where the dataset keeps that."""
        return Failures() if self.ours is None else self.ours.errors

    def fetch(
        self,
        index: Any,
        generator: torch.Generator,
        out: torch.Tensor | None,
        encoded: EncodedSample | None = None,
    ) -> Any:
        """Return a sample, or SKIPPED.

        All random draws come from `generator`; `out` is the image's slot of a batch, and `encoded`
        what was read already, where there is a `crop`.
        """
        if self.ours is None:
            return self.dataset[index]
        if out is None and self.as_bytes:
            out = torch.empty(self.shape or (), dtype=torch.uint8, device="cpu")
        # A subclass with its own `fetch` may not know of `encoded`.
        read = {} if encoded is None else {"encoded": encoded}
        how = {"generator": generator, "out": out, "among": self._subset, **read}
        return self.handed_out(self.ours.fetch(self.place(index), **how))

    @property
    def bare(self) -> bool:
        """Whether a sample is handed out as the image alone: of a dataset that has no targets."""
        # A subclass with its own __getitem__ has the say of what a sample is.
        own = self.ours
        return own is not None and not own.has_targets and not own._is_overridden()

    def handed_out(self, sample: Any) -> Any:
        """Return what the user gets of a sample that the dataset has made."""
        return sample[0] if sample is not SKIPPED and self.bare else sample

    def native(self, pool: Pool) -> NativeBatchMaker | None:
        """Return what makes batches by the native core, if it is there; indices are as here."""
        if self.ours is None or _library.lib is None:
            return None
        return NativeBatchMaker(self.ours, pool, self._subset, as_bytes=self.as_bytes)


class SampleMaker:
    """Makes samples: a batch by the native core where it is eligible, the others one by one.

    Any number of threads may use it at once. `pool` is of the native core; None makes all samples
    one by one. `alone` is for a process that does nothing else meanwhile: the user's own code has
    random numbers of the sample's, too.
    """

    def __init__(self, source: Source, pool: Pool | None, *, alone: bool = False) -> None:
        self.source = source
        self.native = None if pool is None else source.native(pool)
        self._seed_all = _seed_all if alone else None

    def make(self, items: Sequence[Item]) -> list[Any]:
        """Make samples, with SKIPPED for each that is left out."""
        return [
            self.one(item) if sample is FALLBACK else sample
            for item, sample in zip(items, self.batch(items), strict=True)
        ]

    def batch(
        self,
        items: Sequence[Item],
        images: torch.Tensor | None = None,
        stopped: Callable[[], bool] = bool,
        reads: Sequence[Read] | None = None,
    ) -> list[Any]:
        """Make what the core makes, with FALLBACK for each that is to be made one by one.

        Arguments are as of `NativeBatchMaker.make`.
        """
        if self.native is None or not self.native.eligible:
            return [FALLBACK] * len(items)
        indices = [item.index for item in items]
        draws = Draws([item.seed for item in items], self._seed_all)
        made = self.native.make(indices, draws, images, stopped, reads)
        if not self.source.bare:
            return made
        return [FALLBACK if sample is FALLBACK else sample[0] for sample in made]

    def one(
        self, item: Item, out: torch.Tensor | None = None, encoded: EncodedSample | None = None
    ) -> Any:
        """Make one sample, or SKIPPED: into a slot of a batch, of what was read already."""
        if self._seed_all is not None:
            self._seed_all(item.seed)
        return self.source.fetch(item.index, generator_of(item.seed), out, encoded)


@contextmanager
def draws_left_alone() -> Iterator[None]:
    """Put back what `SampleMaker` seeds for the user's own code: training draws from the same."""
    states = torch.default_generator.get_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        torch.default_generator.set_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])  # noqa: NPY002


def _seed_all(seed: int) -> None:
    """Seed all that a user's own code might draw from."""
    # Not `torch.manual_seed`, which goes on to every other device there might be, and takes 0.1 ms.
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - it is the global one that they draw from
