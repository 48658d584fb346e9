"""Where results go, as the user is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastdecode.bench.files import printable

__all__ = ["naming"]


@contextmanager
def naming(place: str | Path) -> Iterator[None]:
    """Have errors name the file that cannot be written: that of a full disk has no name in it.

    Parameters
    ----------
    place : str or Path

    Raises
    ------
    OSError
        For one within the block.
    """
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"{printable(place)} cannot be written: {why}") from error
