"""What becomes of a sample whose file is damaged: the record of it, and what can stand in."""

from __future__ import annotations

import os
import random
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeAlias

from torch.utils.data import get_worker_info

__all__ = [
    "SKIPPED",
    "Failure",
    "Failures",
    "OnError",
    "check_on_error",
    "failure_of",
    "naming",
    "others",
    "record",
    "several",
    "take_along",
]

OnError: TypeAlias = "Literal['raise', 'skip', 'replace'] | Callable[[int, Exception], Any]"
"""What to do about a damaged sample."""

_ATTEMPTS = 32
_lock = threading.Lock()
_taken_along = False  # whether this worker's failures travel to the training process


class Failure(NamedTuple):
    """A sample that could not be had.

    Attributes
    ----------
    index : int
        As it was asked for.
    path : str
        Of its file; empty where the dataset reads bytes.
    reason : str
    """

    index: int  # type: ignore[assignment]  # it hides tuple.index, which nobody needs here
    path: str
    reason: str

    def __str__(self) -> str:
        where = f"{self.path} (item {self.index})" if self.path else f"item {self.index}"
        return f"{where}: {self.reason}"


class Failures(list[Failure]):
    """A list that keeps one entry for each sample, however often that is asked for."""

    _known: set[tuple[int, str]] | None = None

    def add(self, failure: Failure) -> bool:
        """Append it unless its sample is there; return whether it was new."""
        sample = failure.index, failure.path
        with _lock:
            if self._known is None or len(self._known) != len(self):
                # Somebody has cleared the list.
                self._known = {(known.index, known.path) for known in self}
            if sample in self._known:
                return False
            self._known.add(sample)
            self.append(failure)
            return True


class _Skipped(Enum):
    """An enumeration, because its member stays the same one when it is pickled."""

    SKIPPED = "skipped"

    def __repr__(self) -> str:
        return "SKIPPED"


SKIPPED = _Skipped.SKIPPED
"""What `DecodeDataset.fetch` returns for a sample that is left out."""


def check_on_error(on_error: object) -> None:
    """Refuse what is no policy."""
    if on_error not in ("raise", "skip", "replace") and not callable(on_error):
        raise ValueError(
            f"on_error must be 'raise', 'skip', 'replace' or a callable, not {on_error!r}"
        )


def naming(error: Exception, index: int, source: object) -> None:
    """Say in an error which sample it is about: its path where there is one, and its index."""
    path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else ""
    if isinstance(error, OSError) and error.strerror is not None:  # its words are made of these
        path = path or str(error.filename or "")
        failure = Failure(index, path, error.strerror)
        error.strerror, error.filename = f"{failure.reason} (item {index})", path or None
    else:
        reason = str(error.args[0]) if error.args else type(error).__name__
        failure = Failure(index, path, reason.removeprefix(f"{path}: ") if path else reason)
        error.args = (str(failure), *error.args[1:])
    error.failure = failure  # type: ignore[attr-defined]  # for `failure_of`


def failure_of(error: Exception, index: int) -> Failure:
    """Return what `naming` knew of an error, or as much as the error itself tells."""
    known = getattr(error, "failure", None)
    if isinstance(known, Failure) and known.index == index:
        return known
    return Failure(index, str(getattr(error, "filename", None) or ""), str(error))


def take_along() -> None:
    """Let failures of this worker process go without a warning: `Loader` takes them along."""
    global _taken_along
    _taken_along = True


def record(failures: Failures, failure: Failure, on_error: OnError) -> None:
    """Add a failure; in a DataLoader's worker, where nobody would see it, also warn of it."""
    unseen = get_worker_info() is not None and not _taken_along
    if failures.add(failure) and on_error != "raise" and unseen:
        policy = on_error if isinstance(on_error, str) else "a function"
        warnings.warn(
            f"{failure} (on_error is {policy!r}; dataset.errors of the training process does not "
            "see what a worker process meets: repair or remove the file, or let "
            "fastdecode.torch.Loader read in threads)",
            RuntimeWarning,
            stacklevel=2,
        )


def others(index: int, among: Sequence[int]) -> Iterator[int]:
    """Draw the indices that may stand in for a damaged sample: no two alike, and always the same.

    Parameters
    ----------
    index : int
        Of the damaged sample.
    among : sequence of int
        The indices to draw from.

    Returns
    -------
    iterator of int
        At most 32.
    """
    count = len(among)
    tried = {index}
    for attempt in range(min(_ATTEMPTS, count)):
        # A string as the key, because its draws are the same on every machine and in every version.
        start = random.Random(f"{index}/{attempt}").randrange(count)  # noqa: S311
        for place in range(start, start + count):
            drawn = among[place % count]
            if drawn not in tried:
                tried.add(drawn)
                yield drawn
                break


def several(failures: Iterable[Failure]) -> str:
    """Name some failures, but not hundreds."""
    named = [str(failure) for failure in failures]
    rest = len(named) - 5
    return "; ".join(named[:5]) + (f"; and {rest} more" if rest > 0 else "")


def _renew_lock() -> None:
    """Forget in a forked child who held the lock in the parent."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
