"""Where the files of a batch are, as the core is told: addresses of names and of bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeAlias

from fastdecode._buffers import as_buffer
from fastdecode.native import library

__all__ = ["addresses", "as_source"]

_Columns: TypeAlias = "tuple[list[int], list[int] | int, list[int] | int]"


def as_source(source: Any) -> Any:
    """Return the bytes, or the path as a string.

    Parameters
    ----------
    source : bytes-like or path
    """
    if type(source) is bytes or type(source) is str:
        return source
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(source)
    return as_buffer(source)


def addresses(sources: Sequence[Any]) -> tuple[_Columns, tuple[Any, ...]]:
    """Say where files are.

    Parameters
    ----------
    sources : sequence
        For each item a path, or the bytes of the file, or None for neither.

    Returns
    -------
    columns : (paths, data, sizes)
        For each item the address of its path, or that of its bytes and how many there are. 0 is
        none, and a 0 alone is none for all.
    alive : tuple
        What they point to, for as long as this lives.
    """
    named = [source for source in sources if isinstance(source, str)]
    paths, view = _paths(named)
    if len(named) == len(sources):
        return (paths, 0, 0), (view,)
    rest = iter(paths)
    views: list[Any] = [view]
    columns = []
    for source in sources:
        if isinstance(source, str):
            columns.append((next(rest), 0, 0))
        elif source is None:
            columns.append((0, 0, 0))
        else:
            views.append(library.ffi.from_buffer(source))
            columns.append((0, _address(views[-1]), len(views[-1])))
    paths, places, sizes = map(list, zip(*columns, strict=True))
    return (paths, places, sizes), (*views, sources)


def _paths(paths: Sequence[str]) -> tuple[list[int], Any]:
    """Return the addresses of names, and what they lie in: one after another, a zero after each."""
    text = "\0".join(paths)
    if text.isascii() and text.count("\0") == len(paths) - 1:
        names, lengths = text.encode(), map(len, paths)
    else:
        encoded = [_file_name(path) for path in paths]
        names, lengths = b"\0".join(encoded), map(len, encoded)
    view = library.ffi.from_buffer(names)  # bytes end with a zero of their own
    return list(accumulate(lengths, _next_address, initial=_address(view)))[:-1], view


def _next_address(address: int, length: int) -> int:
    return address + length + 1


def _address(view: Any) -> int:
    return int(library.ffi.cast("uintptr_t", view))


def _file_name(path: str) -> bytes:
    """Encode a path; what can be no file's name becomes empty, which is no file's name either."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        return b""
    return b"" if b"\0" in name else name
