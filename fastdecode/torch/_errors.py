"""Damaged samples: their names, their record, and what may replace them."""

from __future__ import annotations

import errno
import operator
import os
import random
import warnings
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from torch.utils.data import get_worker_info

from fastdecode._system.process import ForkLock
from fastdecode.torch._options import OnError

NO_SHARED_MEMORY = (errno.ENOENT, errno.EACCES, errno.EROFS, errno.ENOSPC, errno.ENOSYS)
"""What the system says to a process that makes a lock for others, where there is no /dev/shm."""

_MAX_REPLACEMENTS = 32
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
"""Stands for a sample that is skipped."""


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
            candidate = plain_index(among[position % count])
            if candidate not in tried:
                tried.add(candidate)
                yield candidate
                break


def describe_failures(failures: Iterable[Failure]) -> str:
    """Describe the first five failures, and count the others."""
    descriptions = [str(failure) for failure in failures]
    rest = len(descriptions) - 5
    return "; ".join(descriptions[:5]) + (f"; and {rest} more" if rest > 0 else "")


def plain_index(index: Any) -> Any:
    """Return an index that is a tensor or a NumPy number as an int, and any other unchanged."""
    try:
        return operator.index(index)
    except TypeError:
        return index


def no_shared_memory(error: Exception) -> OSError:
    """Return an error that says what to do where processes cannot share memory."""
    return OSError(
        f"worker processes cannot share memory here ({error}): /dev/shm must be there, writable "
        "and large enough (in a container: docker run --shm-size=1g)"
    )


def too_many_files(error: Exception) -> RuntimeError | None:
    """Return an error that says what to do where no file can be opened any more, if that is it."""
    if getattr(error, "errno", 0) != errno.EMFILE and "ancdata" not in str(error):
        return None
    return RuntimeError(
        f"too many files are open ({error}): each large tensor that comes from a worker process "
        "holds one. Keep copies of them (masks.clone()), raise the limit (ulimit -n), or call "
        'torch.multiprocessing.set_sharing_strategy("file_system")'
    )
