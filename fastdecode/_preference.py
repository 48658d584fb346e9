"""What decides when the call names no backend, for the whole process.

The order of precedence is ``backend=`` of the call, then `use`, then the environment variable
``FASTDECODE_BACKEND``, then the ranking that ``python -m fastdecode calibrate`` saved, then the
default order.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, TypeAlias

from fastdecode import ranking, registry
from fastdecode._process import ForkLock, speaks_for_all
from fastdecode.errors import BackendUnavailable, UnknownBackend
from fastdecode.ranking import Ranking

if TYPE_CHECKING:
    from fastdecode.adapters.base import Backend

__all__ = [
    "Preference",
    "forget_saved",
    "load_named",
    "look_up",
    "preferred",
    "saved",
    "use",
    "used_here",
]

Preference: TypeAlias = "str | Ranking | None"
"""The one backend that is to answer, a ranking to choose by, or neither."""

generation = 0
"""Grows with every `use`: what was concluded from the preference before is out of date."""


class _Level:
    """A preference that holds until the end of a `with` block; if there is none, for good."""

    def __init__(self, preference: Preference, *, block: bool = False) -> None:
        self.preference, self.block = preference, block


_lock = ForkLock()
_levels = [_Level(None, block=True)]  # the last one decides
_MOST_PLAIN = 64
_NOT_READ = object()
_saved: object = _NOT_READ


class use:  # noqa: N801 - to its users it is a function
    """Set the backend, or the ranking, for every later `decode` of this process.

    As a plain call it stays set; as a context manager it ends with the block. Blocks of several
    threads may overlap: the one that began last decides, for all threads.

    Parameters
    ----------
    preference : str, Ranking or None
        A backend's name (it then answers alone), a ranking to choose by, or None for what would
        decide without `use`.

    Raises
    ------
    UnknownBackend
        If no backend has that name.
    BackendUnavailable
        If its library is missing or broken.

    Notes
    -----
    Forked children inherit it, and the datasets of `fastdecode.torch` carry it into workers. Other
    spawned children begin anew, with the saved ranking: call `use` in each.

    Examples
    --------
    >>> with use("pillow"):
    ...     image = decode(data)  # doctest: +SKIP
    """

    def __init__(self, preference: str | Ranking | None) -> None:
        if isinstance(preference, str):
            load_named(preference)
        elif not (preference is None or isinstance(preference, Ranking)):
            raise TypeError(f"use() takes a backend's name, a Ranking or None, not {preference!r}")
        self._own = _Level(preference)
        with _lock:
            _levels.append(self._own)
            plain = [level for level in _levels if not level.block]
            if len(plain) > _MOST_PLAIN:  # many later calls have replaced the oldest
                _levels.remove(plain[0])
            _count_change()

    def __enter__(self) -> None:
        with _lock:
            if self._own in _levels:
                _levels.remove(self._own)
            self._own.block = True
            _levels.append(self._own)
            _count_change()

    def __exit__(self, *error: object) -> None:
        with _lock:
            at = _levels.index(self._own)
            end = at + 1
            while end < len(_levels) and not _levels[end].block:
                end += 1  # what was set inside the block ends with it
            del _levels[at:end]
            _count_change()


def _count_change() -> None:
    """Come after every change, so that nothing concluded before it is taken for new."""
    global generation
    generation += 1


def used_here() -> Preference:
    """Return what `use` has set in this process, if anything."""
    return _levels[-1].preference


def preferred() -> Preference:
    """Return what decides when the call names no backend; None is the default order.

    The environment is looked at when a kind of file is met for the first time, not at each call.
    """
    used = used_here()
    if used is not None:
        return used
    name = os.environ.get("FASTDECODE_BACKEND", "").strip()
    if not name:
        return saved()
    try:
        load_named(name)
    except (UnknownBackend, BackendUnavailable) as error:
        raise type(error)(f"FASTDECODE_BACKEND={name}: {error}") from error
    return name


def saved() -> Ranking | None:
    """Return the ranking that was measured and saved for this machine; None if there is none.

    The file is read once a process. One that is damaged or out of date is ignored, with a warning.
    """
    global _saved
    if _saved is _NOT_READ:
        found, problem = look_up()
        with _lock:
            first, _saved = _saved is _NOT_READ, found
        if first and problem and speaks_for_all():  # outside the lock: a warning may run anything
            warnings.warn(
                f"the saved ranking of the backends is ignored: {problem}. The default order "
                "serves; to measure anew: python -m fastdecode calibrate",
                stacklevel=2,
            )
    return _saved if isinstance(_saved, Ranking) else None


def look_up() -> tuple[Ranking | None, str]:
    """Read the saved ranking; return it, or None and what is wrong with it, if there is one."""
    return ranking.look_up(Ranking.load, Ranking.stale)


def forget_saved() -> None:
    """Read the saved ranking again when it is needed next."""
    global _saved
    with _lock:
        _saved = _NOT_READ
        _count_change()


def load_named(name: str) -> Backend:
    """Load a backend that somebody asked for; if it cannot be used, say which can."""
    try:
        return registry.load(name)
    except (BackendUnavailable, UnknownBackend) as error:
        usable = [info.name for info in registry.backends() if info.usable]
        raise type(error)(f"{error}\nUsable here: {', '.join(usable)}") from error
