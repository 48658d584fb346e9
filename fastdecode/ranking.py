"""What the caller prefers: a ranking of the backends, or one of them, for the whole process.

The order of precedence is ``backend=`` of the call, then `use`, then the environment variable
``FASTDECODE_BACKEND``, then the default ranking.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from fastdecode import registry
from fastdecode.errors import BackendUnavailable, UnknownBackend

if TYPE_CHECKING:
    from types import TracebackType

    from fastdecode.adapters.base import Backend
    from fastdecode.types import Format, Reduce

__all__ = ["DEFAULT", "Preference", "Ranking", "load_named", "preferred", "use"]


@dataclass(frozen=True)
class Ranking:
    """An order of preference among backends: plain data.

    Attributes
    ----------
    orders : Mapping
        Backend names, fastest first, by ``(format, reduce)``. A key that is missing falls back to
        ``(format, 1)``, then to the default ranking; names that are missing come last.
    """

    orders: Mapping[tuple[Format, Reduce], tuple[str, ...]] = field(default_factory=dict)

    def order(self, format: Format, reduce: Reduce) -> tuple[str, ...]:
        """Names for one format and reduction, fastest first."""
        return self.orders.get((format, reduce)) or self.orders.get((format, 1)) or ()


# Fastest first on real photos, by the table of bench/results/default_order.json. Two departures
# from it: PyTorch's decoders come last, because choosing one would import PyTorch into programs
# that have no other use for it; kornia_rs stands behind Pillow, because it stops all other Python
# threads.
DEFAULT = Ranking(
    {
        ("jpeg", 1): (
            "simplejpeg",
            "turbojpeg",
            "jpeg4py",
            "imagecodecs",
            "opencv",
            "pillow",
            "kornia_rs",
            "torchcodec",
            "torchvision",
        ),
        ("jpeg", 2): ("simplejpeg", "turbojpeg", "jpeg4py", "opencv", "pillow"),
        ("jpeg", 4): ("simplejpeg", "turbojpeg", "jpeg4py", "opencv", "pillow"),
        ("jpeg", 8): ("simplejpeg", "turbojpeg", "jpeg4py", "opencv", "pillow"),
        ("png", 1): ("opencv", "pillow", "torchcodec"),
        ("webp", 1): ("opencv", "pillow"),
        ("jpeg2000", 1): ("pillow", "imagecodecs"),
    }
)


Preference: TypeAlias = "str | Ranking | None"
"""The one backend that is to answer, a ranking to choose by, or neither."""

generation = 0
"""Grows with every `use`: what was concluded from the preference before is out of date."""

_used: Preference = None


class use:  # noqa: N801 - to its users it is a function
    """Set the backend, or the ranking, for every later `decode` of this process.

    As a plain call it stays set; as a context manager it is set back at the end.

    Parameters
    ----------
    preference : str, Ranking or None
        A backend's name (it then answers alone), a ranking to choose by, or None for the default.

    Raises
    ------
    UnknownBackend
        If no backend has that name.
    BackendUnavailable
        If its library is missing or broken.

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
        self._before = _used
        _set(preference)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        _set(self._before)
        return False


def _set(preference: Preference) -> None:
    global _used, generation
    _used = preference
    generation += 1


def preferred() -> Preference:
    """Return what decides when the call names no backend; None is the default ranking.

    Raises
    ------
    UnknownBackend, BackendUnavailable
        If ``FASTDECODE_BACKEND`` names a backend that cannot be used.

    Notes
    -----
    The environment is looked at when a kind of file is met for the first time, not at each call.
    """
    if _used is not None:
        return _used
    name = os.environ.get("FASTDECODE_BACKEND")
    if not name:
        return None
    try:
        load_named(name)
    except (UnknownBackend, BackendUnavailable) as error:
        raise type(error)(f"FASTDECODE_BACKEND={name}: {error}") from error
    return name


def load_named(name: str) -> Backend:
    """Load a backend that somebody asked for; if it cannot be used, say which can."""
    try:
        return registry.load(name)
    except BackendUnavailable as error:
        usable = [info.name for info in registry.backends() if info.usable]
        raise BackendUnavailable(f"{error}\nUsable here: {', '.join(usable)}") from error
