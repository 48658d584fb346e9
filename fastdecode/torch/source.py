"""One way to ask any map-style dataset for a sample."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import torch
from torch.utils.data import IterableDataset, Subset

from fastdecode._preference import load_named, preferred
from fastdecode.errors import BackendUnavailable, UnknownBackend
from fastdecode.native import library
from fastdecode.native.batch import Pool
from fastdecode.torch.dataset import DecodeDataset
from fastdecode.torch.failures import SKIPPED, Failures
from fastdecode.torch.found import Found
from fastdecode.torch.lane import Lane
from fastdecode.torch.way import Way, crop_of

__all__ = ["Source"]

_Shape: TypeAlias = "tuple[int, int, int] | None"


class Source:
    """A dataset, seen through torch's Subset, and what a loader must know about it.

    Parameters
    ----------
    dataset : Dataset
        Map-style: with ``__getitem__`` and ``__len__``.

    Attributes
    ----------
    dataset : Dataset
    as_bytes : bool
        The normalising is left out: pictures are ``torch.uint8``.
    """

    as_bytes = False

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
        self._decoding = dataset if isinstance(dataset, DecodeDataset) else None
        self._subset: Sequence[int] | None = indices

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def isolated(self) -> bool:
        """Whether all random draws of a sample come from the generator that is handed to it."""
        return self._decoding is not None and self._decoding.isolated

    @property
    def shape(self) -> _Shape:
        """Shape of every image, if it can be written straight into a batch."""
        return None if self._decoding is None else self._decoding.sample_shape

    @property
    def dtype(self) -> torch.dtype:
        """Type of every image, where there is a `shape`."""
        if self.as_bytes:
            return torch.uint8
        dtype = None if self._decoding is None else self._decoding.sample_dtype
        return dtype or torch.float32

    @property
    def crop(self) -> Way | str:
        """How others than the dataset can make its samples; if they cannot, why, in words."""
        if self._decoding is None:
            return f"{type(self.dataset).__name__} is none of this package's datasets"
        return crop_of(self._decoding, DecodeDataset)

    def of_bytes(self) -> Source:
        """Return the same as a source of ``torch.uint8``, where there is a `crop`."""
        source = copy.copy(self)
        source.as_bytes = True
        return source

    @property
    def ours(self) -> Any:
        """The package's own dataset, without the subsets around it; None if it is none of those."""
        return self._decoding

    def place(self, index: Any) -> Any:
        """Return what the dataset calls an item of the subset."""
        return index if self._subset is None else self._subset[index]

    @property
    def remote(self) -> bool:
        """Whether a server is asked for each sample."""
        return bool(getattr(self._decoding, "remote", False))

    def together(self, indices: Sequence[Any]) -> AbstractContextManager[object]:
        """Let the dataset read a batch, whose items are fetched within, all at once if it can."""
        if self._decoding is None:
            return nullcontext()
        return self._decoding._together([self.place(index) for index in indices])

    @property
    def reads_for_itself(self) -> str:
        """Why nobody else may read for the dataset, in words; empty if somebody may."""
        own = self._decoding
        if own is None:
            return f"{type(self.dataset).__name__} is none of this package's datasets"
        changed = [
            name
            for name in ("__getitem__", "fetch", "load")
            if getattr(type(own), name) is not getattr(DecodeDataset, name)
        ]
        return f"{type(own).__name__} has its own {changed[0]}" if changed else ""

    @property
    def holds_gil(self) -> bool:
        """Whether one backend alone decodes, and lets no other Python thread run meanwhile."""
        named = None if self._decoding is None else self._decoding.backend
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
        return Failures() if self._decoding is None else self._decoding.errors  # type: ignore[return-value]

    @property
    def reports(self) -> bool:
        """Whether `errors` is told of what is damaged."""
        return self._decoding is not None

    def fetch(
        self,
        index: Any,
        generator: torch.Generator | None,
        out: torch.Tensor | None,
        found: Found | None = None,
    ) -> Any:
        """Return a sample, or SKIPPED.

        Parameters
        ----------
        index : int or key
        generator : torch.Generator or None
            For all random draws; None for torch's global one.
        out : tensor or None
            Slot of a batch for the image.
        found : Found or None
            What was read for it already, where there is a `crop`.
        """
        if self._decoding is None:
            return self.dataset[index]
        if out is None and self.as_bytes:
            out = torch.empty(self.shape or (), dtype=torch.uint8, device="cpu")
        place, among = self.place(index), self._subset
        fetch = self._decoding.fetch
        if found is None:  # a subclass with its own `fetch` may not know that
            return self.handed_out(fetch(place, generator=generator, out=out, among=among))
        return self.handed_out(fetch(place, generator=generator, out=out, among=among, found=found))

    def handed_out(self, sample: Any) -> Any:
        """Return the picture alone of a dataset that has no targets."""
        if self._decoding is None or self._decoding.has_targets or sample is SKIPPED:
            return sample
        # A subclass with its own __getitem__ has the say of what a sample is.
        ours = type(self._decoding).__getitem__ is DecodeDataset.__getitem__
        return sample[0] if ours else sample

    def lane(self, pool: Pool) -> Lane | None:
        """Return what makes samples by the native core, if it is there; indices are as here."""
        if self._decoding is None or library.lib is None:
            return None
        return Lane(self._decoding, DecodeDataset, pool, self._subset, as_bytes=self.as_bytes)
