"""Damaged samples: the policy `on_error`, and the record of failures."""

from __future__ import annotations

import operator
import os
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import partial
from types import GenericAlias
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data import Dataset, get_worker_info

from fastdecode._arguments import is_int
from fastdecode._error_policy import (
    ITEM_ERRORS,
    is_item_error,
    mark_fatal,
    mark_if_folder_vanished,
)
from fastdecode._process import ForkLock
from fastdecode.errors import DecodeError
from fastdecode.torch._options import DecodeOptions, OnError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from fastdecode.torch.mixin import EncodedSample

    Sample_co = TypeVar("Sample_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    Sample_co = TypeVar("Sample_co", covariant=True)

_MAX_REPLACEMENTS = 32
_RAISE = object()
"""Says that the caller must raise the error where it caught it.

If another frame raised it, its local variable and the traceback would form a cycle, which keeps the
error and a whole batch alive until a garbage collection.
"""

_lock = ForkLock()
_warnings_suppressed = False  # `Loader` returns this worker's failures to the training process


class Failure(NamedTuple):
    """A sample that could not be read or decoded.

    Attributes
    ----------
    index : int
        The index of the sample, counted from 0.
    path : str
        The path of its file; empty if the dataset reads bytes.
    reason : str
        What is wrong, in words.

    Examples
    --------
    >>> from fastdecode.torch import ImageList
    >>> dataset = ImageList(["cat.jpg", "missing.jpg"], on_error="replace")
    >>> image = dataset[1]  # cat.jpg in its place
    >>> dataset.errors[0].path, dataset.errors[0].reason
    ('missing.jpg', 'No such file or directory')
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here
    path: str
    reason: str

    def __str__(self) -> str:
        where = f"{self.path} (item {self.index})" if self.path else f"item {self.index}"
        return f"{where}: {self.reason}"


class Failures(list[Failure]):
    """A list with one entry per sample, however often the sample is read."""

    _known: set[tuple[int, str]] | None = None

    def add(self, failure: Failure) -> bool:
        """Append a failure unless its sample is listed; return whether it was new."""
        sample = failure.index, failure.path
        with _lock:
            if self._known is None or len(self._known) != len(self):
                # The user has changed the list, for example cleared it.
                self._known = {(known.index, known.path) for known in self}
            if sample in self._known:
                return False
            self._known.add(sample)
            self.append(failure)
            return True


class _Skipped(Enum):
    """An enumeration, because a pickle of a member yields the same object."""

    SKIPPED = "skipped"

    def __repr__(self) -> str:
        return "SKIPPED"


SKIPPED = _Skipped.SKIPPED
"""What `DecodeDataset.fetch` returns for a sample that is skipped."""


def name_sample(error: Exception, index: int, source: object) -> None:
    """Add the sample's index, and its path if it has one, to the message of an error."""
    path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else ""
    if isinstance(error, OSError) and error.strerror is not None:
        # str(error) is built from strerror and filename, not from args.
        path = path or str(error.filename or "")
        failure = Failure(index, path, error.strerror)
        error.strerror, error.filename = f"{failure.reason} (item {index})", path or None
    else:
        reason = str(error.args[0]) if error.args else type(error).__name__
        failure = Failure(index, path, reason.removeprefix(f"{path}: ") if path else reason)
        error.args = (str(failure), *error.args[1:])
    error.failure = failure  # type: ignore[attr-defined]  # for `as_failure`


def as_failure(error: Exception, index: int) -> Failure:
    """Return the Failure that `name_sample` stored in an error, else one made from the error."""
    known = getattr(error, "failure", None)
    if isinstance(known, Failure) and known.index == index:
        return known
    return Failure(index, str(getattr(error, "filename", None) or ""), str(error))


def suppress_worker_warnings() -> None:
    """Warn of no failures in this worker process: `Loader` carries them to the training process."""
    global _warnings_suppressed
    _warnings_suppressed = True


def record_failure(failures: Failures, failure: Failure, on_error: OnError) -> None:
    """Add a failure; in a DataLoader's worker, where the list stays unseen, also warn."""
    unseen = get_worker_info() is not None and not _warnings_suppressed
    if failures.add(failure) and on_error != "raise" and unseen:
        warnings.warn(
            f"{failure} (on_error is {on_error!r}; dataset.errors of the training process does not "
            "list the failures of worker processes: repair or remove the file, or let "
            "fastdecode.torch.Loader read in threads)",
            RuntimeWarning,
            stacklevel=2,
        )


def replacement_candidates(index: int, among: Sequence[int]) -> Iterator[int]:
    """Yield up to 32 different indices that may replace a damaged sample, always the same ones."""
    count = len(among)
    tried = {index}
    for attempt in range(min(_MAX_REPLACEMENTS, count)):
        # Seeded with a string, whose draws are the same on every machine and Python version.
        start = random.Random(f"{index}/{attempt}").randrange(count)  # noqa: S311
        for position in range(start, start + count):
            candidate = among[position % count]
            if candidate not in tried:
                tried.add(candidate)
                yield candidate
                break


def describe_failures(failures: Iterable[Failure]) -> str:
    """Describe the first five failures, and count the others."""
    descriptions = [str(failure) for failure in failures]
    rest = len(descriptions) - 5
    return "; ".join(descriptions[:5]) + (f"; and {rest} more" if rest > 0 else "")


class TolerantDataset(Dataset[Sample_co]):
    """The error policy of `DecodeDataset`: what its option `on_error` says."""

    if not TYPE_CHECKING:
        # With `typing.Generic` as a base, no class of torchvision could be added as the last base.
        __class_getitem__ = classmethod(GenericAlias)

    has_targets: bool = True
    _load: Any
    """`DecodeDataset._load`, which makes a sample that may have been read already."""

    @property
    def _options(self) -> DecodeOptions:
        """The options that are in effect; `DecodeMixin` has them."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError(
            f"{type(self).__name__} has no length: write `def __len__(self)`, which returns how "
            "many samples there are"
        )

    def load(
        self,
        index: int,
        *,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,
    ) -> tuple[Any, Any]:
        """Return one sample, or raise its error."""
        raise NotImplementedError

    @property
    def errors(self) -> list[Failure]:
        """The damaged samples, one entry per index."""
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
        encoded: EncodedSample | None = None,
    ) -> Any:
        """Return one sample, or what `on_error` puts in its place. Loaders call this.

        Parameters
        ----------
        index : int
        generator : torch.Generator, optional
            As for `load`.
        out : tensor, optional
            As for `load`.
        among : sequence of int, optional
            The indices that ``on_error="replace"`` may draw from, such as those of a subset.
        encoded : EncodedSample, optional
            The sample as far as it has been read already.

        Returns
        -------
        (image, target) or SKIPPED
            The target is None if there are no targets. For a subclass with its own ``__getitem__``,
            the result of that.

        Raises
        ------
        FastDecodeError, OSError
            With ``on_error="raise"``; with any `on_error` if data cannot be reached, or if too many
            samples in a row are damaged.
        """
        make = partial(self._make_sample, generator=generator, out=out)
        try:
            if encoded is not None:
                return self._load(index, encoded, generator, out)
            return make(index)
        except ITEM_ERRORS as error:
            sample = self._apply_policy(index, error, make, among)
            if sample is _RAISE:
                raise
            return sample

    def __getitem__(self, index: int) -> Sample_co:
        try:
            sample: Any = self.load(index)
        except ITEM_ERRORS as error:
            # Replacements with `load`: a subclass's own method would come here again.
            sample = self._apply_policy(index, error, self.load)
            if sample is SKIPPED or sample is _RAISE:  # a single sample cannot be left out
                raise
        return sample if self.has_targets else sample[0]  # type: ignore[no-any-return]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample_co]:
        """Return the samples of a batch. PyTorch's DataLoader calls this.

        Parameters
        ----------
        indices : sequence of int

        Returns
        -------
        list
            The samples, without those that `on_error` skips.

        Raises
        ------
        DecodeError
            All samples are skipped.
        """
        fetched = self._fetch_all(indices)
        samples = [sample for sample in fetched if sample is not SKIPPED]
        if fetched and not samples:
            asked = {self._number(index) for index in indices}
            named = describe_failures(failure for failure in self.errors if failure.index in asked)
            raise DecodeError(f"all {len(fetched)} samples of a batch are damaged: {named}")
        return [image for image, _ in samples] if self._is_bare() else samples

    def _fetch_all(self, indices: Sequence[int]) -> list[Any]:
        """Fetch the samples one by one; a subclass may do better."""
        return [self.fetch(index) for index in indices]

    @property
    def fetches(self) -> bool:
        """Whether a loader calls `fetch`: False for a subclass with its own ``__getitems__``."""
        return type(self).__getitems__ is TolerantDataset.__getitems__

    def _is_overridden(self) -> bool:
        """Return whether a subclass has its own ``__getitem__``."""
        return type(self).__getitem__ is not TolerantDataset.__getitem__

    def _is_bare(self) -> bool:
        """Return whether a sample is handed out as the image alone, as there are no targets."""
        # A subclass with its own __getitem__ decides what a sample is.
        return not self.has_targets and not self._is_overridden()

    def _make_sample(
        self, index: int, generator: torch.Generator | None, out: torch.Tensor | None
    ) -> Any:
        """Make a sample with `load`, or with the subclass's own ``__getitem__``."""
        if not self._is_overridden():
            return self.load(index, generator=generator, out=out)
        if out is not None:
            raise ValueError(f"{type(self).__name__} has its own __getitem__, which takes no out")
        return self[index]

    def _apply_policy(
        self,
        index: int,
        error: Exception,
        make: Callable[[int], Any],
        among: Sequence[int] | None = None,
    ) -> Any:
        """Apply the policy to an error; return what `make` makes instead, SKIPPED or _RAISE."""
        self._mark_if_folder_vanished(error)
        if not is_item_error(error):
            return _RAISE
        first = self._record_failure(index, error)
        on_error = self._options.on_error
        if on_error == "skip":
            return SKIPPED
        if on_error == "replace":
            candidates = range(len(self)) if among is None else among
            return self._make_replacement(index, candidates, first, error, make)
        return _RAISE

    def _make_replacement(
        self,
        index: int,
        among: Sequence[int],
        first: Failure,
        error: Exception,
        make: Callable[[int], Any],
    ) -> Any:
        """Return the first candidate that can be made; raise if all fail."""
        failed = [first]
        for candidate in replacement_candidates(self._number(index), among):
            try:
                return make(candidate)
            except ITEM_ERRORS as candidate_error:
                self._mark_if_folder_vanished(candidate_error)
                if not is_item_error(candidate_error):
                    raise
                failed.append(self._record_failure(candidate, candidate_error))
        exhausted = mark_fatal(DecodeError(self._no_replacement_message(failed)))
        try:
            raise exhausted from error
        finally:
            del exhausted, error  # else this frame and their tracebacks form a cycle

    def _no_replacement_message(self, failed: list[Failure]) -> str:
        return (
            f"nothing can replace sample {failed[0].index}: {len(failed)} in a row are damaged: "
            f"{describe_failures(failed)}"
        )

    def _mark_if_folder_vanished(self, error: Exception) -> None:
        """Say in the error of a missing file if its whole folder is missing, too."""
        root = getattr(self, "root", None)
        if isinstance(root, (str, os.PathLike)):
            mark_if_folder_vanished(error, os.fspath(root))

    def _name_sample(self, error: Exception, index: int, source: object) -> None:
        """Name the sample in an error; a subclass may know more than the path.

        `source` is what `read` returned, or None if it failed.
        """
        name_sample(error, self._number(index), source)

    def _number(self, index: Any) -> Any:
        """Return the index of a sample counted from 0, as a plain int."""
        plain = plain_index(index)
        return plain % len(self) if is_int(plain) and -len(self) <= plain < 0 else plain

    def _record_failure(self, index: int, error: Exception) -> Failure:
        failure = as_failure(error, self._number(index))
        record_failure(self.errors, failure, self._options.on_error)  # type: ignore[arg-type]
        return failure


def plain_index(index: Any) -> Any:
    """Return an index that is a tensor or a NumPy number as an int, and any other unchanged."""
    try:
        return operator.index(index)
    except TypeError:
        return index
