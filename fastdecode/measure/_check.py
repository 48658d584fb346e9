"""What a backend makes of a file, outside the clock: refused, the same pixels, or others."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastdecode import _selection
from fastdecode._process import ChildDied
from fastdecode._stats import stats
from fastdecode.api import decode
from fastdecode.errors import FastDecodeError, without_advice
from fastdecode.measure.result import AUTOMATIC

if TYPE_CHECKING:
    from fastdecode.measure._collection import Photo
    from fastdecode.types import Header, Image, Reduce

_REFERENCE = "pillow"


class Finding(NamedTuple):
    """What one backend made of one file."""

    refused: str = ""  # why it did not decode it; empty if it did
    # the automatic choice's first backend refused it, and another decoded it
    fell_back: bool = False
    # it is a JPEG that the backend does not reduce inside its decoder: the package averages the
    # full image, which gives other values by design
    averaged: bool = False
    differs: bool = False  # the pixels should be those of the reference, and are not
    # the largest of a sample from the reference, in levels; 255 where the shapes differ
    difference: int = 0


@dataclass
class Check:
    """What one backend made of one format at one reduction."""

    read: set[int] = field(default_factory=set)  # files that it decoded, by their index
    refused: dict[int, str] = field(default_factory=dict)  # why it did not
    differing: set[int] = field(default_factory=set)  # differing, averaged: as in `Finding`
    averaged: set[int] = field(default_factory=set)
    fallbacks: int = 0
    max_difference: int = 0  # over all files

    def add(self, index: int, finding: Finding) -> None:
        """Take in what became of one file."""
        if finding.refused:
            self.refused[index] = finding.refused
            return
        self.read.add(index)
        self.fallbacks += finding.fell_back
        self.max_difference = max(self.max_difference, finding.difference)
        if finding.averaged:
            self.averaged.add(index)
        if finding.differs:
            self.differing.add(index)


def named(name: str) -> str | None:
    """Return what `decode` takes as its ``backend``."""
    return None if name == AUTOMATIC else name


def reference_digest(data: bytes, reduce: Reduce) -> bytes | None:
    """Return what the right pixels come to; None if nothing reads the file."""
    image = _reference(data, reduce)
    return None if image is None else _digest(image)


def examine(photo: Photo, reduce: Reduce, backend: str, right: bytes | None) -> Finding:
    """Decode a file once, and compare the pixels with the reference."""
    stats(reset=True)
    try:
        data = bytes(photo.read())
        image = decode(data, reduce, backend=named(backend))
        fell_back = bool(stats().fallbacks)
        averaged = not _native(backend, photo.header, reduce)
        # What is averaged is right if it was right before.
        whole = decode(data, backend=named(backend)) if averaged else image
    except Exception as error:  # a broken backend must not end the run
        return Finding(refused=reason(error))
    if right is None or _digest(image) == right:
        return Finding(fell_back=fell_back, averaged=averaged)
    difference = _from_reference(image, data, reduce)
    wrong = _from_reference(whole, data, 1) if averaged else difference
    return Finding("", fell_back, averaged, wrong > _allowed(photo.header), difference)


def reason(error: Exception) -> str:
    """Say in words why something was refused."""
    if isinstance(error, (FastDecodeError, ChildDied)):
        return without_advice(error)
    if "Original Traceback" in str(error):  # PyTorch's, from a worker process: the end says what
        return str(error).strip().splitlines()[-1]
    return f"{type(error).__name__}: {error}"


def _from_reference(image: Image, data: bytes, reduce: Reduce) -> int:
    """Return the largest difference from the right pixels; 0 if nobody knows them."""
    reference = _reference(data, reduce)
    return 0 if reference is None else _difference(image, reference)


def _reference(data: bytes, reduce: Reduce) -> Image | None:
    """Pillow's pixels; the automatic choice's where Pillow has none; None where nothing has."""
    for backend in (_REFERENCE, None):
        try:
            return decode(data, reduce, backend=backend)
        except FastDecodeError:  # the next one may read it; if none does, all refuse and say why
            continue
    return None


def _digest(image: Image) -> bytes:
    """Stand for pixels: sending and keeping them all would need too much memory."""
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(image).data)
    return digest.digest()


def _native(name: str, header: Header, reduce: Reduce) -> bool:
    """Whether the backend makes this reduction itself, if that changes the pixels."""
    if reduce == 1 or header.format != "jpeg":
        return True
    want = _selection.Want("RGB", reduce, strict=False, complete=True)
    return _selection.first(named(name), header, want).reduce == reduce


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
