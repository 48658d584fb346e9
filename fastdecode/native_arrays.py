"""Arrays of many JPEGs at once, by the native core's own threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastdecode import _headers, _selection
from fastdecode._arguments import check_out, reduce_for, window_of
from fastdecode._buffers import as_buffer
from fastdecode._selection import Want
from fastdecode.api import DEFAULT_MAX_PIXELS, read_file
from fastdecode.errors import FastDecodeError
from fastdecode.native import library
from fastdecode.native.batch import Items
from fastdecode.native.pool import Pool

if TYPE_CHECKING:
    from fastdecode.types import Box, Buffer, Image

__all__ = ["Arrays", "can"]

_NAME = "native"
_CHUNK, _LEAST_CHUNK = 128, 16
_pool = cache(Pool)


class _Kept(threading.local):
    """What each thread reads into."""

    def __init__(self) -> None:
        self.items = Items()


_kept = _Kept()


class _Part(NamedTuple):
    """What is to be decoded of a file, as in ``fd_request``, and where to."""

    numbers: tuple[int, ...]
    out: Image


def can(options: dict[str, Any]) -> bool:
    """Whether the core may be the one that is chosen, with these arguments of `decode`."""
    return (
        library.lib is not None
        and options.get("backend") in (None, _NAME)
        and options.get("mode", "RGB") in ("RGB", "L")
        and not options.get("orient")
        and not options.get("strict")
    )


class Arrays:
    """Decodes lists of files in the way of `decode`, as far as the core is chosen for them.

    Parameters
    ----------
    options : dict
        Arguments of `decode`, checked.
    threads : int
        How many decode, whoever calls.

    Attributes
    ----------
    chunk : int
        How many files to decode in one call.
    """

    def __init__(self, options: dict[str, Any], threads: int) -> None:
        self._options = options
        self._pool = _pool(threads)
        self.chunk = max(_LEAST_CHUNK, _CHUNK // threads)

    def suits(self, source: Any) -> bool:
        """Whether the core is chosen for this one: then most likely for those beside it, too."""
        try:
            named = isinstance(source, (str, os.PathLike))
            data = read_file(os.fspath(source)) if named else as_buffer(source)
        except (OSError, TypeError, ValueError):
            return False
        return self._part(data, None) is not None

    def make(self, sources: Sequence[Any], targets: Sequence[Any]) -> list[Image | None]:
        """Decode.

        Parameters
        ----------
        sources : sequence
            Bytes or paths.
        targets : sequence of ndarray or None
            For each the `out` of `decode`.

        Returns
        -------
        list of ndarray or None
            None for what is to be decoded in another way, or not at all.
        """
        items = _kept.items
        made: list[Image | None] = [None] * len(sources)
        try:
            headers = items.read(self._pool, [_as_source(source) for source in sources])
            parts: dict[int, _Part] = {}
            for at in np.flatnonzero(headers.readable & (headers.ended == 1)).tolist():
                part = self._part(items.data(at), targets[at])
                if part is not None:
                    parts[at] = part
            if parts:
                numbers, outs = zip(*parts.values(), strict=True)
                done = items.decode(self._pool, list(parts), numbers, outs)
                for at, out, whole in zip(parts, outs, done, strict=True):
                    made[at] = out if whole else None
        finally:
            items.clear()
        return made

    def _part(self, data: Buffer, out: Any) -> _Part | None:
        """Do what `decode` does before it decodes; errors are left to it, too."""
        options = self._options
        mode, reduce = options.get("mode", "RGB"), options.get("reduce", 1)
        region, most = options.get("region"), options.get("max_pixels", DEFAULT_MAX_PIXELS)
        try:
            header = _headers.probe(data)
            if most is not None and header.width * header.height > most:
                return None
            if options.get("min_size") is not None:
                reduce = reduce_for(header, options["min_size"], region=region)
            window = None if region is None else window_of(region, header, reduce, 1)
            part = window is not None
            want = Want(mode, reduce, strict=False, complete=True, part=part)
            choice = _selection.first(options.get("backend"), header, want)
            if (choice.name, choice.layout, choice.reduce) != (_NAME, mode, reduce):
                return None
            if header.coding == "arithmetic":  # which cannot run out of data, so more is to be done
                return None
            if out is not None:
                check_out(out, data, header, mode, reduce, window, 1)
        except (FastDecodeError, TypeError, ValueError):
            return None
        left, top, right, bottom = window or _whole(header, reduce)
        if out is None:
            channels = () if mode == "L" else (3,)
            out = np.empty((bottom - top, right - left, *channels), np.uint8)
        return _Part((left, top, right, bottom, reduce, library.LAYOUTS[mode]), out)


def _whole(header: Any, reduce: int) -> Box:
    return 0, 0, -(-header.width // reduce), -(-header.height // reduce)


def _as_source(source: Any) -> Any:
    """Return bytes, or a path as a string; None for what is neither, or has been closed."""
    try:
        named = isinstance(source, (str, os.PathLike))
        return os.fsdecode(source) if named else as_buffer(source)
    except (TypeError, ValueError):
        return None
