"""Decoding what comes from shards: a few samples at a time, and what becomes of damaged ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from fastdecode.errors import DecodeError, FastDecodeError
from fastdecode.native import library
from fastdecode.outages import ITEM_ERRORS, is_the_items
from fastdecode.torch._errors import (
    SKIPPED,
    Failure,
    failure_of,
    naming,
    others,
    record,
    several,
)
from fastdecode.torch._native_batches import FALLBACK, Draws, NativeBatchMaker
from fastdecode.torch.dataset import DatasetOptions, DecodeDataset
from fastdecode.torch.shard_share import Entry

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from fastdecode.native.pool import Pool

__all__ = ["TOGETHER", "Pictures", "decoded"]

TOGETHER = 32
"""Samples that are decoded in one go."""


class Pictures(DecodeDataset):
    """A few samples out of shards, as a dataset.

    Parameters
    ----------
    shards : sequence of str
        Their locations, for errors.
    transform, target_transform : callable, optional
    **options
        Of `DecodeDataset`.
    """

    def __init__(
        self,
        shards: Sequence[str],
        transform: Callable[..., Any] | None,
        target_transform: Callable[..., Any] | None,
        **options: Unpack[DatasetOptions],
    ) -> None:
        super().__init__(transform, target_transform, **options)
        self.shards = shards
        self.entries: Sequence[Entry] = ()
        self.errors = []

    def copy(self) -> Self:
        """Return one with the same options and the same list of errors, and samples of its own."""
        return copy.copy(self)

    def __len__(self) -> int:
        return len(self.entries)

    def read(self, index: int) -> tuple[Any, Any]:
        """Return the bytes of a sample, and its target."""
        sample = self.entries[index].sample
        return sample.data, sample.target

    def make(self, index: int, seed: int) -> Any:
        """Make one sample, or what `on_error` puts in its place.

        Parameters
        ----------
        index : int
        seed : int
            What all draws follow from.

        Returns
        -------
        (image, target) or SKIPPED

        Raises
        ------
        FastDecodeError, OSError
            The message names the shard and the sample.
        """
        try:
            return self.load(index, generator=_generator(seed))
        except ITEM_ERRORS as error:
            if not is_the_items(error):
                raise
            failure = self._noted(index, error)
            if self.on_error == "raise":
                raise
            if self.on_error == "skip":
                return SKIPPED
            if callable(self.on_error):
                return self._supplied(self.on_error(failure.index, error), None)
            return self._another(index, seed, failure)

    def _another(self, index: int, seed: int, failure: Failure) -> Any:
        """Try the other samples that are here, each once, until one can be made."""
        failed = [failure]
        for other in others(index, range(len(self))):
            try:
                return self.load(other, generator=_generator(seed))
            except ITEM_ERRORS as error:
                if not is_the_items(error):
                    raise
                failed.append(self._noted(other, error))
        raise DecodeError(
            f"nothing can replace {failure.path}: {len(failed)} samples that were read together "
            f"are damaged: {several(failed)}"
        )

    def _naming(self, error: Exception, index: int, source: object) -> None:  # noqa: ARG002
        entry = self.entries[index]
        naming(error, entry.position, f"{self.shards[entry.shard]}, {entry.sample.key}")

    def _noted(self, index: int, error: Exception) -> Failure:
        failure = failure_of(error, self.entries[index].position)
        record(self.errors, failure, self.on_error)  # type: ignore[arg-type]
        return failure


def decoded(
    pictures: Pictures,
    entries: Iterator[Entry],
    seed_of: Callable[[Entry], int],
    pool: Pool,
    skip: int = 0,
) -> Iterator[Any]:
    """Decode samples, `TOGETHER` at a time.

    Parameters
    ----------
    pictures : Pictures
        For nobody else meanwhile.
    entries : iterator of Entry
    seed_of : callable
        Gives what all draws of a sample follow from.
    pool : Pool
    skip : int
        How many of the first ones only to have at hand, for others to be replaced by.

    Yields
    ------
    (image, target) or SKIPPED
    """
    native = NativeBatchMaker(pictures, pool) if library.lib is not None else None
    for together in _chunks(entries):
        pictures.entries = together
        wanted = range(skip, len(together))
        skip = 0
        seeds = [seed_of(together[at]) for at in wanted]
        made = [FALLBACK] * len(wanted)
        if native is not None and native.eligible:
            made = native.make(wanted, Draws(seeds))
        for at, seed, sample in zip(wanted, seeds, made, strict=True):
            yield pictures.make(at, seed) if sample is FALLBACK else sample


def _chunks(entries: Iterator[Entry]) -> Iterator[list[Entry]]:
    """Gather samples; those before a damaged place come before its error."""
    together: list[Entry] = []
    try:
        for entry in entries:
            together.append(entry)
            if len(together) == TOGETHER:
                yield together
                together = []
    except (FastDecodeError, OSError):
        if together:
            yield together
        raise
    if together:
        yield together


def _generator(seed: int) -> torch.Generator:
    return torch.Generator("cpu").manual_seed(seed)
