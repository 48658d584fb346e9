"""What a backend makes of each file, outside the clock: refused, the same pixels, or others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fastdecode import decode, selection
from fastdecode.errors import FastDecodeError

if TYPE_CHECKING:
    from fastdecode.bench.files import Photo
    from fastdecode.types import Header, Image, Reduce

__all__ = ["AUTOMATIC", "Check", "check", "named"]

AUTOMATIC = "decode()"
"""Stands among the backends for the automatic choice."""

_REFERENCE = "pillow"


@dataclass
class Check:
    """What one backend made of one format at one reduction.

    Attributes
    ----------
    read : set of int
        Files that it decoded, by their index.
    refused : dict of int to str
        Why it did not.
    differing : set of int
        Files whose pixels should be those of the reference, and are not.
    averaged : set of int
        JPEG files that it does not reduce inside its decoder: the package averages the full
        picture, which gives other values by design. They are not in `differing`.
    max_difference : int
        The largest difference of a sample from the reference, over all files, in levels of 255; 255
        where the shapes differ.
    """

    read: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    differing: set[int] = field(default_factory=set)
    averaged: set[int] = field(default_factory=set)
    max_difference: int = 0


def check(
    photos: Sequence[Photo], reduce: Reduce, checks: dict[str, Check], tick: Callable[[], object]
) -> None:
    """Decode every photo once with every backend, and compare with the reference.

    Parameters
    ----------
    photos : sequence of Photo
        Of one format.
    reduce : {1, 2, 4, 8}
    checks : dict of str to Check
        By backend name or `AUTOMATIC`; they are filled photo by photo, so that what is known so far
        is there if this is interrupted.
    tick : callable
        Called after each photo.
    """
    for index, photo in enumerate(photos):
        reference = _reference(photo, reduce)
        for name, result in checks.items():
            try:
                image = decode(photo.data, reduce, backend=named(name))
            except Exception as error:  # a broken backend must not end the run
                result.refused[index] = _reason(error)
                continue
            result.read.add(index)
            if reference is None:
                continue
            difference = _difference(image, reference)
            result.max_difference = max(result.max_difference, difference)
            if not _native(name, photo.header, reduce):
                result.averaged.add(index)
            elif difference > _allowed(photo.header):
                result.differing.add(index)
        tick()


def named(name: str) -> str | None:
    """Return what `decode` takes as its ``backend``."""
    return None if name == AUTOMATIC else name


def _reference(photo: Photo, reduce: Reduce) -> Image | None:
    """Pillow's pixels; the automatic choice's where Pillow has none; None where nothing has."""
    for backend in (_REFERENCE, None):
        try:
            return decode(photo.data, reduce, backend=backend)
        except FastDecodeError:  # the next one may read it; if none does, all refuse and say why
            continue
    return None


def _native(name: str, header: Header, reduce: Reduce) -> bool:
    """Whether the backend makes this reduction itself, if that changes the pixels."""
    if reduce == 1 or header.format != "jpeg":
        return True
    want = selection.Want("RGB", reduce, strict=False, complete=True)
    return selection.first(named(name), header, want).reduce == reduce


def _difference(image: Image, reference: Image) -> int:
    """Return the largest difference of a sample, in levels; 255 where the shapes differ."""
    if image.shape != reference.shape:
        return 255
    # Unsigned, so the smaller is taken from the larger: a signed type would need more memory.
    return int((np.maximum(image, reference) - np.minimum(image, reference)).max())


def _allowed(header: Header) -> int:
    """Return the difference that still counts as the same pixels, in levels."""
    # CMYK becomes RGB by a formula that rounds; the contract of `decode` allows one level.
    return 1 if header.color == "cmyk" else 0


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, FastDecodeError) else f"{type(error).__name__}: {error}"
