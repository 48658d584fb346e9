"""Counts of fallbacks and failures, so that no fallback is silent."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

from fastdecode._system.process import ForkLock

_RECENT = 20
_lock = ForkLock()
_fallbacks: Counter[tuple[str, str]] = Counter()
_failures: Counter[str] = Counter()
_recent: deque[str] = deque(maxlen=_RECENT)


@dataclass(frozen=True)
class Stats:
    """Counts of fallbacks and failures in this process.

    Attributes
    ----------
    fallbacks : Mapping[tuple[str, str], int]
        By ``(refused, decoded)``: images that the first backend refused and the second decoded.
    failures : Mapping[str, int]
        Images that no backend decoded, by the backend that was tried first.
    recent : tuple of str
        The last 20 refusals in words, oldest first.

    Examples
    --------
    >>> from fastdecode import DecodeError, decode, stats
    >>> before = stats(reset=True)
    >>> try:
    ...     decode(data[:5000])
    ... except DecodeError:
    ...     sum(stats().failures.values())
    1
    """

    fallbacks: Mapping[tuple[str, str], int]
    failures: Mapping[str, int]
    recent: tuple[str, ...]


def stats(*, reset: bool = False) -> Stats:
    """Return how often this process fell back to another backend, and why.

    Parameters
    ----------
    reset : bool
        Set the counts to zero afterwards.

    Returns
    -------
    Stats
        A copy, which does not change any more.

    Examples
    --------
    >>> from fastdecode import decode, stats
    >>> before = stats(reset=True)
    >>> image = decode(data)
    >>> stats().fallbacks  # no backend refused the image
    {}
    """
    if not isinstance(reset, bool):
        raise TypeError(f"reset must be True or False, not {reset!r}")
    with _lock:
        result = Stats(dict(_fallbacks), dict(_failures), tuple(_recent))
        if reset:
            _fallbacks.clear()
            _failures.clear()
            _recent.clear()
    return result


def count_fallback(refused: Mapping[str, str], decoded: str) -> None:
    """Count an image that `decoded` decoded after other backends refused it, with their reasons."""
    with _lock:
        for name, reason in refused.items():
            _fallbacks[name, decoded] += 1
            _recent.append(f"{name}: {reason}")


def count_failure(refused: Mapping[str, str]) -> None:
    """Count an image that no backend decoded."""
    with _lock:
        _failures[next(iter(refused), "")] += 1
        _recent.extend(f"{name}: {reason}" for name, reason in refused.items())
