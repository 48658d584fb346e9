"""Where the records of a RecordIO file are, that has been made by MXNet's own tools or alike."""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdecode.errors import StoreError
from fastdecode.stores.mapped import Mapped
from fastdecode.stores.recordio_format import Picture, offsets, picture, read_record

__all__ = ["Places", "read_lines", "scan"]

_CHUNK = 1 << 20
_SAMPLES = 8


class Places(NamedTuple):
    """Where the pictures of a file are.

    Attributes
    ----------
    keys, offsets : ndarray of int64
    has_ids : bool
        Whether the keys are also the ids in the records, by which a record can be told from others.
    """

    keys: NDArray[Any]
    offsets: NDArray[Any]
    has_ids: bool


def read_lines(lines: Mapped, records: Mapped, *, all_of_it: bool) -> Places:
    """Read an ``.idx``: a line for each record with its key and its offset.

    Data sets of faces in InsightFace's layout have a record 0 without a picture, whose two labels
    say up to where the keys of the pictures go; the records after that list who is on them. Of such
    a file the pictures are given.

    Parameters
    ----------
    lines, records : Mapped
    all_of_it : bool
        Whether the lines must be those of all records, and the last one end with the file.

    Raises
    ------
    OSError
        If a file cannot be read.
    StoreError
        If a line is not of that form, or the files do not end at the same record.
    """
    chunks = [np.empty((0, 2), np.int64)]
    for number, text in _chunks(lines):
        try:
            chunk = np.loadtxt(io.BytesIO(text), np.int64, comments=None, ndmin=2)
        except ValueError as error:
            raise StoreError(f"{lines.location}, after line {number}: {error}") from error
        if chunk.shape[1] != 2 or chunk.min() < 0:
            raise StoreError(
                f"{lines.location}, after line {number}: each line must have a key and an offset, "
                "both numbers"
            )
        chunks.append(chunk)
    keys, places = np.concatenate(chunks).T.copy()
    if all_of_it:
        _check_end(lines, records, int(places.max(initial=-1)))
    first = _try_picture(records, int(places[0])) if len(keys) and keys[0] == 0 else None
    if first is not None and not first.data and first.listed and len(first.labels) == 2:
        pictures = (keys >= 1) & (keys < first.labels[0])
        keys, places = keys[pictures], places[pictures]
    return Places(keys, places, _has_ids(records, keys, places))


def scan(records: Mapped) -> Places:
    """Find the records of a file that has no ``.idx``.

    Raises
    ------
    StoreError
        If the file is damaged, or a remote one.
    """
    if not records.is_local:
        raise StoreError(
            f"{records.location}: there is no .idx beside it, without which all of it would have "
            "to be fetched; copy the file, or name the index by index="
        )
    places = np.array(array("q", offsets(records)), np.int64)
    return Places(np.arange(len(places)), places, has_ids=False)


def _chunks(lines: Mapped) -> Iterator[tuple[int, bytes]]:
    """Cut the text at the ends of lines, and count the lines before."""
    text = memoryview(lines.read(0, lines.size))
    at = number = 0
    while at < len(text):
        chunk = bytes(text[at : at + _CHUNK])
        if at + len(chunk) < len(text):
            chunk = chunk[: chunk.rfind(b"\n") + 1] or chunk
        if chunk.strip():
            yield number, chunk
        number += chunk.count(b"\n")
        at += len(chunk)


def _check_end(lines: Mapped, records: Mapped, last: int) -> None:
    """Make sure that nothing comes after the last record."""
    try:
        end = 0 if last < 0 else read_record(records, last)[1]
    except StoreError as error:
        raise StoreError(
            f"{records.location}: {error}; it is damaged or cut short, or {lines.location} belongs "
            "to another file"
        ) from error
    if end != records.size:
        raise StoreError(
            f"{lines.location} ends at {end}, but {records.location} at {records.size}: it has "
            "been cut, or belongs to another file; if it names some records on purpose, say so by "
            "index="
        )


def _has_ids(records: Mapped, keys: NDArray[Any], places: NDArray[Any]) -> bool:
    """Look at some records: im2rec writes the key as id, others write 0 everywhere."""
    chosen = sorted({int(place) for place in np.linspace(0, len(keys) - 1, _SAMPLES)})
    same = 0
    for place in chosen if len(keys) else ():
        found = _try_picture(records, int(places[place]))
        same += found is not None and found.id == keys[place]
    # Most of them, for one may be what the ids are to find out.
    return same * 2 > len(chosen)


def _try_picture(records: Mapped, offset: int) -> Picture | None:
    try:
        return picture(read_record(records, offset)[0])
    except StoreError:
        return None
