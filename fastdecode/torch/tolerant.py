"""A dataset that knows what to do about a damaged sample, whoever asks for it."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

from fastdecode.errors import DecodeError
from fastdecode.outages import ITEM_ERRORS, is_the_items, told_if_vanished
from fastdecode.torch.failures import (
    SKIPPED,
    Failure,
    Failures,
    OnError,
    check_on_error,
    failure_of,
    naming,
    others,
    record,
    several,
)
from fastdecode.torch.found import Found

__all__ = ["TolerantDataset", "plain_index"]

_RAISE = object()
"""Verdict that the error is to be raised, where it was caught: a frame that has it as a local name
would be part of its traceback, and keep it, and a whole batch, alive until a garbage collection."""


class TolerantDataset(Dataset[Any]):
    """The error policy of `DecodeDataset`, which says what the attributes mean."""

    on_error: OnError = "raise"
    has_targets: bool = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_on_error(cls.on_error)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "on_error":
            check_on_error(value)
        super().__setattr__(name, value)

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must say how many samples it has")

    def load(
        self,
        index: int,
        *,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,
    ) -> tuple[Any, Any]:
        """Make one sample, or raise what is wrong with it."""
        raise NotImplementedError

    @property
    def errors(self) -> list[Failure]:
        """Damaged samples, one entry for each index."""
        failures: Failures = self.__dict__.setdefault("_errors", Failures())
        return failures

    @errors.setter
    def errors(self, failures: Sequence[Failure]) -> None:
        self.__dict__["_errors"] = Failures(failures)

    def fetch(
        self,
        index: int,
        *,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,
        among: Sequence[int] | None = None,
        found: Found | None = None,
    ) -> Any:
        """Make one sample, or what `on_error` puts in its place: what loaders call.

        Parameters
        ----------
        index : int
        generator : torch.Generator, optional
            As for `load`.
        out : tensor, optional
            As for `load`.
        among : sequence of int, optional
            The indices that ``on_error="replace"`` may draw from, such as those of a subset.
        found : Found, optional
            What was read for it already.

        Returns
        -------
        (image, target) or SKIPPED
            The target is None where there are none. Of a subclass with its own ``__getitem__``,
            whatever that returns.

        Raises
        ------
        FastDecodeError, OSError
            With ``on_error="raise"``, and where too many in a row are damaged.
        """
        try:
            if found is not None:
                return found.made(self, index, generator, out)
            return self._made(index, generator, out)
        except ITEM_ERRORS as error:
            sample = self._instead(index, error, generator, out, among)
            if sample is _RAISE:
                raise
            return sample

    def __getitem__(self, index: int) -> Any:
        try:
            sample = self.load(index)
        except ITEM_ERRORS as error:
            sample = self._instead(index, error)
            if sample is SKIPPED:  # nothing can stand for a single one
                _close(error, SKIPPED)
                raise
            if sample is _RAISE:
                raise
        return sample if self.has_targets else sample[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return a whole batch as a list of samples: what PyTorch's DataLoader calls.

        Parameters
        ----------
        indices : sequence of int

        Returns
        -------
        list
            Without those that `on_error` skips.

        Raises
        ------
        DecodeError
            If none is left.
        """
        fetched = self._fetch_all(indices)
        samples = [sample for sample in fetched if sample is not SKIPPED]
        if fetched and not samples:
            asked = {plain_index(index) for index in indices}
            named = several(failure for failure in self.errors if failure.index in asked)
            raise DecodeError(f"all {len(fetched)} samples of a batch are damaged: {named}")
        if self.has_targets or self._is_overridden():
            return samples
        return [image for image, _ in samples]

    def _fetch_all(self, indices: Sequence[int]) -> list[Any]:
        """Fetch one sample after the other: for a subclass that can do better."""
        return [self.fetch(index) for index in indices]

    def _is_overridden(self) -> bool:
        """Whether a subclass makes its samples in a ``__getitem__`` of its own."""
        return type(self).__getitem__ is not TolerantDataset.__getitem__

    def _made(self, index: int, generator: torch.Generator | None, out: torch.Tensor | None) -> Any:
        """Make a sample as a subclass would have it made."""
        if not self._is_overridden():
            return self.load(index, generator=generator, out=out)
        if out is not None:
            raise ValueError(f"{type(self).__name__} has its own __getitem__, which takes no out")
        return self[index]

    def _instead(
        self,
        index: int,
        error: Exception,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,
        among: Sequence[int] | None = None,
    ) -> Any:
        """Apply the policy to an error; return what stands in, SKIPPED or _RAISE."""
        self._look_for_its_folder(error)
        if not is_the_items(error):
            return _RAISE
        verdict = getattr(error, "verdict", None)
        if verdict is not None:  # an overriding __getitem__ has called ours
            return SKIPPED if verdict is SKIPPED else _RAISE
        first = self._note(index, error)
        if self.on_error == "skip":
            return SKIPPED
        if self.on_error == "replace":
            candidates = range(len(self)) if among is None else among
            return self._replaced(candidates, first, error, generator, out)
        if callable(self.on_error):
            return self._supplied(self.on_error(index, error), out)
        _close(error, "raise")
        return _RAISE

    def _replaced(
        self,
        among: Sequence[int],
        first: Failure,
        error: Exception,
        generator: torch.Generator | None,
        out: torch.Tensor | None,
    ) -> Any:
        """Try others, each once, until one can be made."""
        failed = [first]
        for other in others(operator.index(first.index) % len(self), among):
            try:
                return self._made(other, generator, out)
            except ITEM_ERRORS as another:
                self._look_for_its_folder(another)
                if not is_the_items(another):
                    raise
                failed.append(self._note(other, another))
        exhausted = DecodeError(
            f"nothing can replace sample {first.index}: {len(failed)} in a row are damaged: "
            f"{several(failed)}"
        )
        _close(exhausted, "raise")
        try:
            raise exhausted from error
        finally:
            del exhausted, error  # its traceback leads here

    def _supplied(self, sample: Any, out: torch.Tensor | None) -> Any:
        """Take what the caller's function returned: as from ``dataset[index]``, or None."""
        if sample is None or sample is SKIPPED:
            return SKIPPED
        if self._is_overridden():
            return sample
        if self.has_targets and not (isinstance(sample, tuple) and len(sample) == 2):
            raise TypeError(
                "on_error must return what dataset[index] gives, a pair of picture and target, or "
                f"None to skip, not {type(sample).__name__}"
            )
        image, target = sample if self.has_targets else (sample, None)
        if out is None:
            return image, target
        if getattr(image, "shape", None) != out.shape:
            raise ValueError(
                f"on_error returned a picture of shape {getattr(image, 'shape', None)}, but the "
                f"batch has room for {tuple(out.shape)}"
            )
        return self._put(image, out), target

    def _put(self, image: Any, out: torch.Tensor) -> torch.Tensor:
        """Write what stands in for a picture into a slot of a batch."""
        return out.copy_(torch.as_tensor(image))

    def _look_for_its_folder(self, error: Exception) -> None:
        """Tell a missing file from a missing folder: for a subclass that knows where files are."""
        root = getattr(self, "root", None)
        if isinstance(root, (str, os.PathLike)):
            told_if_vanished(error, os.fspath(root))

    def _naming(self, error: Exception, index: int, source: object) -> None:
        """Say in an error which sample it is about: for a subclass that knows more than its path.

        Parameters
        ----------
        error : Exception
            Of `ITEM_ERRORS`.
        index : int
        source : object
            What `read` has given; None if that has failed.
        """
        naming(error, plain_index(index), source)

    def _note(self, index: int, error: Exception) -> Failure:
        failure = failure_of(error, plain_index(index))
        record(self.errors, failure, self.on_error)  # type: ignore[arg-type]
        return failure


def plain_index(index: Any) -> Any:
    """Make an int of an index that is a tensor or a NumPy number; others are kept as they are."""
    try:
        return operator.index(index)
    except TypeError:
        return index


def _close(error: Exception, verdict: object) -> None:
    """Note in an error that the policy has been applied."""
    error.verdict = verdict  # type: ignore[attr-defined]
